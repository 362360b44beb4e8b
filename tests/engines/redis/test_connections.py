"""The scripts: how they are put together, and what they cost the server."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
import redis

from tenure.engines import Outgoing
from tenure.engines.redis import RedisEngine
from tenure.engines.redis.connections import script

Opened = Callable[..., RedisEngine]
NAMES = sorted(
    path.name.removesuffix(".lua") for path in (files("tenure.engines.redis") / "lua").iterdir() if path.is_file()
)


@pytest.mark.parametrize("name", NAMES)
def test_every_script_looks_first_whether_the_server_went_back(name: str) -> None:
    made = script(name)
    assert made.source.startswith("local P, W = KEYS[1], KEYS[2]")
    assert made.sha == hashlib.sha1(made.source.encode()).hexdigest().encode()
    assert ("wrote()" in made.source.replace("local function wrote()", "")) == made.writes
    assert "{memory}" not in made.source
    assert "{batch}" not in made.source


def test_scripts_that_the_server_forgot_are_sent_again(opened: Opened, valkey_url: str) -> None:
    mailbox = opened().mailbox("work")
    mailbox.send("before")
    with redis.Redis.from_url(valkey_url) as client:
        client.script_flush()
    mailbox.send("after")
    assert [message.body for message in mailbox.receive(10)] == ["before", "after"]


def steps(client: Any, act: Callable[[], object]) -> int:
    """How many commands the server ran for it, those inside of scripts too."""

    def total() -> int:
        return sum(row["calls"] for name, row in client.info("commandstats").items() if name != "cmdstat_info")

    before = total()
    act()
    return total() - before


def test_what_a_call_costs_does_not_grow_with_the_mailbox(opened: Opened, valkey_url: str) -> None:
    """Sorted sets make each of those commands O(log n); their number must not depend on n."""
    mailbox = opened("&pool=1").mailbox("work", max_delivery_count=5)

    def round_of_calls() -> None:
        mailbox.send("x", key=f"k{mailbox.depth().ready}-{mailbox.approximate_count()}", generation=1)
        first, second, third = mailbox.receive(3, 60)
        first.extend_visibility(60, b"c")
        first.acknowledge()
        second.nack(30)
        third.release()

    with redis.Redis.from_url(valkey_url) as client:
        mailbox.send_many([Outgoing(n) for n in range(10)])
        round_of_calls()
        few = steps(client, round_of_calls)
        for _ in range(5):
            mailbox.send_many([Outgoing(n) for n in range(1_000)])
        mailbox.receive(1_000, 60)
        many = steps(client, round_of_calls)
    assert few == many


def test_all_keys_of_a_namespace_are_in_one_slot(opened: Opened, valkey_url: str, namespace: str) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="a{b}c", reply_to="replies")
    mailbox.receive()[0].dead_letter("no")
    engine.journal("log").append([b"e"], epoch=1, expect=0, append_id="1")
    engine.journal("log").snapshot(b"s", 1, epoch=1)
    engine.election("chief").campaign("me", 5)
    engine.store("results").put("{k}", b"v", ttl=60)
    from redis.crc import key_slot

    with redis.Redis.from_url(valkey_url) as client:
        keys = list(client.scan_iter(f"*{namespace}*", count=1_000))
    assert len(keys) > 10
    assert {key_slot(key) for key in keys} == {key_slot(f"{{{namespace}}}:".encode())}

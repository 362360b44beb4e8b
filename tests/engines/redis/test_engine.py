"""What this engine does beyond the contract: forks, limits of its pool, forgetting, metrics, reasons."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from os import _exit
from typing import Any

import prometheus_client
import pytest
import redis

from tenure.clock import ManualClock
from tenure.engines import Outgoing
from tenure.engines.contracts import KEY_MEMORY_S, Fence
from tenure.engines.redis import RedisEngine
from tenure.engines.redis.address import read_url
from tenure.errors import (
    EngineBusyError,
    EngineClosedError,
    EngineUnavailableError,
    EngineVersionError,
    KeyRefusedError,
    LimitError,
    ReceiptHandleExpiredError,
    StaleFenceError,
)

Opened = Callable[..., RedisEngine]


@pytest.fixture
def client(valkey_url: str) -> Any:
    with redis.Redis.from_url(valkey_url) as made:
        yield made


def test_a_key_is_kept_while_its_message_lives_and_for_a_day_after_it_ended(
    opened: Opened, client: Any, namespace: str
) -> None:
    mailbox = opened().mailbox("work")
    mailbox.send("x", key="k", generation=1)
    remembered = f"{{{namespace}}}:k:work:k"
    assert client.ttl(remembered) == -1  # no end
    mailbox.receive()[0].acknowledge()
    assert KEY_MEMORY_S - 60 < client.ttl(remembered) <= KEY_MEMORY_S
    mailbox.send("y", key="k", generation=2)
    assert client.ttl(remembered) == -1
    client.pexpire(remembered, 1)  # as if the day had passed, for a message that ended
    time.sleep(0.01)
    mailbox.send("z", key="k", generation=1)


def test_a_tombstone_is_kept_for_a_day(opened: Opened, client: Any, namespace: str) -> None:
    mailbox = opened().mailbox("work")
    mailbox.revoke("k")
    assert KEY_MEMORY_S - 60 < client.ttl(f"{{{namespace}}}:k:work:k") <= KEY_MEMORY_S
    with pytest.raises(KeyRefusedError):
        mailbox.send("x", key="k", generation=9)


def test_nothing_is_left_of_messages_that_ended_and_of_values_that_ran_out(
    opened: Opened, client: Any, namespace: str
) -> None:
    engine = opened()
    mailbox, store = engine.mailbox("work"), engine.store("results")
    for number in range(20):
        mailbox.send(number)
        store.put(f"old/{number}", b"v", ttl=0.01)
    for message in mailbox.receive(20):
        message.acknowledge()
    time.sleep(1.05)
    for number in range(20):  # each put takes two of the old ones with it
        store.put(f"new/{number}", b"v", ttl=60)
    names = {key.decode().split(":", 1)[1] for key in client.scan_iter(f"*{namespace}*", count=1_000)}
    assert not [name for name in names if name.startswith(("x:", "q:", "h:", "v:results:old"))]
    assert client.zcard(f"{{{namespace}}}:s:results") == 20
    assert client.zcard(f"{{{namespace}}}:t") == 20


def test_the_fence_of_a_value_that_runs_out_is_kept_for_a_day_longer(
    opened: Opened, client: Any, namespace: str
) -> None:
    store = opened().store("results")
    store.put("k", b"v", fence=Fence(2, 1), ttl=100)
    assert KEY_MEMORY_S + 90 < client.ttl(f"{{{namespace}}}:f:results:k") <= KEY_MEMORY_S + 101
    with pytest.raises(StaleFenceError):
        store.put("k", b"old", fence=Fence(1, 9))


def test_a_dead_receipt_says_why(opened: Opened) -> None:
    mailbox = opened().mailbox("work")

    def reason(end: Callable[[Any], object], lease: float = 60) -> str:
        mailbox.send("x", key="k", generation=int(time.monotonic_ns()))
        (message,) = mailbox.receive(1, lease)
        end(message)
        with pytest.raises(ReceiptHandleExpiredError) as caught:
            message.extend_visibility(5)
        mailbox.purge()
        return caught.value.reason

    assert "settled, replaced, revoked or purged" in reason(lambda message: message.acknowledge())
    assert reason(lambda message: time.sleep(0.06), lease=0.05) == "its lease ran out"
    assert "delivered again" in reason(lambda message: (time.sleep(0.06), mailbox.receive()), lease=0.05)
    assert "given back" in reason(lambda message: message.nack(30))
    assert "dead letter" in reason(lambda message: message.dead_letter("no"))


def test_a_claim_brings_no_more_than_a_server_can_hold_at_once(opened: Opened) -> None:
    mailbox = opened().mailbox("work")
    for _ in range(9):
        mailbox.send_many([Outgoing("x" * 500_000) for _ in range(8)])
    first = mailbox.receive(1_000)
    assert 32 < len(first) < 72  # 32 MiB of bodies, and the one that went over it
    assert len(mailbox.receive(1_000)) == 72 - len(first)
    mailbox.purge()


def test_more_messages_than_one_step_are_purged(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.engines.redis.mailbox.PURGE_STEP", 3)
    mailbox = opened().mailbox("work")
    for number in range(10):
        mailbox.send(number)
    for message in mailbox.receive(4):
        message.dead_letter("no")
    assert (mailbox.purge(), mailbox.dead_letters.purge()) == (6, 4)


def test_a_long_journal_is_read_and_truncated_in_steps(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.engines.redis.journal_election_store._READ_BYTES", 2_500)
    monkeypatch.setattr("tenure.engines.redis.journal_election_store._TRUNCATE_STEP", 4)
    journal = opened().journal("log")
    for seq in range(20):
        journal.append([b"x" * 1_000], epoch=1, expect=seq, append_id=str(seq))
    assert [entry.seq for entry in journal.read(2)] == list(range(3, 21))
    assert [entry.seq for entry in journal.read(2, limit=7)] == list(range(3, 10))
    journal.snapshot(b"s", 15, epoch=1)
    journal.truncate(99)
    assert [entry.seq for entry in journal.read(15)] == list(range(16, 21))


def test_numbers_that_the_servers_lua_cannot_hold_are_refused(opened: Opened) -> None:
    engine = opened()
    with pytest.raises(LimitError):
        engine.journal("log").append([b"e"], epoch=2**53, expect=0, append_id="1")
    with pytest.raises(LimitError):
        engine.election("chief").campaign("me", 5, above=2**53)
    term = engine.election("chief").campaign("me", 5, above=2**53 - 2)
    assert term is not None
    assert term.epoch == 2**53 - 1


def test_a_failure_reply_keeps_a_large_generation_and_any_text(opened: Opened) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    key = 'k"\\\n/ü\U0001f600'
    mailbox.send("x", key=key, generation=2**53 - 1, reply_to="replies")
    mailbox.receive()[0].dead_letter('no "use"\\ \x07 \ud800 ü')
    failure = engine.mailbox("replies").receive()[0].failure
    assert failure is not None
    assert (failure.key, failure.generation) == (key, 2**53 - 1)
    assert failure.reason == 'no "use"\\ \x07 ? ü'


def test_the_engines_time_never_goes_back(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened()
    first = engine.now()
    assert abs(first - time.time()) < 60
    monkeypatch.setattr(engine.connections, "call", lambda *_: [0, int((first - 100) * 1e6)])
    assert engine.now() >= first


def test_a_pool_that_is_too_small_says_so(opened: Opened) -> None:
    engine = opened("&pool=1&timeout=0.3")
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    held = engine.connections.borrow("test", EngineUnavailableError)
    with pytest.raises(EngineBusyError, match=r"Raise \?pool="):
        mailbox.depth()
    engine.connections.drop(held)
    assert mailbox.depth() == (1, 0, 0)


def test_many_threads_share_few_connections(opened: Opened) -> None:
    engine = opened("&pool=2")
    mailbox = engine.mailbox("work")
    threads = [threading.Thread(target=lambda: [mailbox.send(n) for n in range(20)]) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mailbox.approximate_count() == 200
    assert engine.connections.opened <= 2


def test_a_forked_child_opens_its_own_connections_and_leaves_the_parents_alone(opened: Opened) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send("parent")
    assert mailbox.receive(1, 60, 0.05) != []
    assert mailbox.receive(1, 60, 0.05) == []  # the listener runs
    child = os.fork()
    if child == 0:
        code = 1
        try:
            mailbox.send("child")
            code = 0 if [message.body for message in mailbox.receive(1, 60, 5)] == ["child"] else 2
            engine.close()
        finally:
            _exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    mailbox.send("after")
    assert [message.body for message in mailbox.receive(1, 60, 5)] == ["after"]


def test_operations_and_errors_are_counted(opened: Opened) -> None:
    registry = prometheus_client.REGISTRY
    labels = {"engine": "redis", "operation": "send_keyed"}
    before = registry.get_sample_value("tenure_engine_operation_seconds_count", labels) or 0
    opened().mailbox("work").send("x", key="k")
    assert registry.get_sample_value("tenure_engine_operation_seconds_count", labels) == before + 1


def test_a_namespace_that_a_newer_tenure_wrote_is_refused(opened: Opened, client: Any, namespace: str) -> None:
    client.set(f"{{{namespace}}}:i", "2 somebody")
    with pytest.raises(EngineVersionError, match="format 2"):
        opened()


def test_engines_on_one_namespace_see_one_instance(opened: Opened) -> None:
    assert opened().instance == opened().instance


def test_closing_takes_the_count_of_writes_away_and_later_calls_are_refused(
    opened: Opened, client: Any, namespace: str
) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    assert client.keys(f"*{namespace}*w:*")
    engine.close()
    engine.close()
    assert not client.keys(f"*{namespace}*w:*")
    with pytest.raises(EngineClosedError):
        mailbox.send("y")


def test_the_count_of_writes_is_kept_alive_and_begins_anew_after_a_month_of_silence(
    namespace: str, valkey_url: str, client: Any
) -> None:
    clock = ManualClock()
    with RedisEngine(read_url(f"{valkey_url}?namespace={namespace}"), clock) as engine:
        mailbox = engine.mailbox("work")
        mailbox.send("x")
        (counter,) = client.keys(f"*{namespace}*w:*")
        client.expire(counter, 100)
        clock.advance(3_601)
        mailbox.depth()
        assert client.ttl(counter) > 86_400
        client.delete(counter)  # as the server does after a month
        clock.advance(31 * 86_400)
        assert mailbox.depth() == (1, 0, 0)

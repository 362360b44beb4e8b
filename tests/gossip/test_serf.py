from __future__ import annotations

import pytest
from tests.gossip.one_node import passed_on, tell, with_peers

from tenure.gossip.encodings import pack, unpack
from tenure.gossip.messages import User
from tenure.gossip.sealing import Keyring, format_key
from tenure.gossip.serf import SerfQueries
from tenure.ids import secret_bytes

OLD, NEW = bytes(16), bytes(range(16))


def query(name: str, key: bytes | None = None, *, number: int = 7, flags: int = 0) -> bytes:
    payload = b"\x07" + pack({"Key": key}) if key is not None else b""
    return b"\x04" + pack(
        {
            "LTime": 3,
            "ID": number,
            "Addr": bytes((10, 0, 0, 9)),
            "Port": 7946,
            "Filters": None,
            "Flags": flags,
            "RelayFactor": 0,
            "Timeout": 10**9,
            "Name": name,
            "Payload": payload,
        }
    )


def answered(queries: SerfQueries, payload: bytes) -> dict:
    reply, _ = queries.answer(payload)
    assert reply is not None
    assert reply.to == ("10.0.0.9", 7946)
    assert reply.payload[0] == 5
    fields, _ = unpack(reply.payload, 1)
    assert (fields[b"LTime"], fields[b"ID"], fields[b"From"]) == (3, 7, b"me")
    assert fields[b"Payload"][0] == 8
    return unpack(fields[b"Payload"], 1)[0]


def test_the_three_steps_and_the_list_are_obeyed_and_answered() -> None:
    keyring = Keyring([OLD], entropy=secret_bytes)
    queries = SerfQueries("me", keyring)
    for name, key, keys in (
        ("install-key", NEW, (OLD, NEW)),
        ("use-key", NEW, (NEW, OLD)),
        ("remove-key", OLD, (NEW,)),
    ):
        assert answered(queries, query(f"_serf_{name}", key))[b"Result"] is True
        assert keyring.keys == keys
    assert answered(queries, query("_serf_list-keys"))[b"Keys"] == [format_key(NEW).encode()]


@pytest.mark.parametrize(
    ("name", "key", "why"),
    [
        ("_serf_use-key", NEW, b"not in the keyring"),
        ("_serf_remove-key", OLD, b"primary key cannot be removed"),
        ("_serf_install-key", b"short", b"5 bytes"),
        ("_serf_install-key", None, b"ends early"),
    ],
)
def test_a_step_that_cannot_be_taken_is_answered_with_its_reason(name: str, key: bytes | None, why: bytes) -> None:
    keyring = Keyring([OLD], entropy=secret_bytes)
    answer = answered(SerfQueries("me", keyring), query(name, key))
    assert answer[b"Result"] is False
    assert why in answer[b"Message"]
    assert keyring.keys == (OLD,)


def test_a_node_without_keys_says_so() -> None:
    assert answered(SerfQueries("me", None), query("_serf_list-keys"))[b"Result"] is False


def test_other_queries_and_events_are_passed_on_once_and_not_answered() -> None:
    swim = with_peers()
    for payload in (query("uptime"), b"\x03" + pack({"LTime": 1, "Name": "deploy"})):
        outcome = tell(swim, User(payload))
        assert not outcome.packets
        assert passed_on(swim) == [User(payload)]
        swim.forget_rumours()
        tell(swim, User(payload))
        assert swim.queued == 0
    tell(swim, User(query("_serf_x", flags=2)))
    assert swim.queued == 0  # it asks not to be passed on


def test_what_is_no_query_costs_a_counter() -> None:
    swim = with_peers()
    for payload in (b"\x04", b"\x04\x93", b"\x04" + pack({"Name": "_serf_list-keys", "Addr": b"xy"})):
        tell(swim, User(payload))
    assert swim.counters.malformed == 3
    assert swim.queued == 0


def test_what_was_seen_is_bounded() -> None:
    queries = SerfQueries("me", None)
    assert all(queries.is_news(b"\x03%d" % number) for number in range(2000))
    assert not any(queries.is_news(b"\x03%d" % number) for number in range(2000 - 512, 2000))
    assert queries.is_news(b"\x03%d" % (2000 - 513))  # so much is remembered, and no more

from __future__ import annotations

import pytest
from tests.gossip.one_node import passed_on, tell, with_peers

from tenure.gossip.encodings import pack, unpack
from tenure.gossip.messages import User
from tenure.gossip.sealing import Keyring, format_key
from tenure.gossip.serf import Intent, SerfClock, SerfQueries, decode_intent
from tenure.gossip.state import Effects
from tenure.randomness import secret_bytes

OLD, NEW = bytes(16), bytes(range(16))


def query(
    name: str,
    key: bytes | None = None,
    *,
    number: int = 7,
    flags: int = 0,
    filters: list[bytes] | None = None,
    payload: bytes = b"",
) -> bytes:
    payload = b"\x07" + pack({"Key": key}) if key is not None else payload
    return b"\x04" + pack(
        {
            "LTime": 3,
            "ID": number,
            "Addr": bytes((10, 0, 0, 9)),
            "Port": 7946,
            "Filters": filters,
            "Flags": flags,
            "RelayFactor": 0,
            "Timeout": 10**9,
            "Name": name,
            "Payload": payload,
        }
    )


def answered(queries: SerfQueries, payload: bytes) -> dict:
    [reply], _ = queries.answer(payload)
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


def responses(outcome: Effects) -> list[dict]:
    """Returns the responses that go to the asker."""
    found = []
    for packet in outcome.packets:
        assert packet.to == ("10.0.0.9", 7946)
        [body] = packet.parts
        assert body[:2] == b"\x08\x05"
        found.append(unpack(body, 2)[0])
    return found


def test_a_query_that_wants_acks_gets_one_and_serfs_own_also_their_answer() -> None:
    swim = with_peers()
    [ack] = responses(tell(swim, User(query("uptime", flags=1))))
    assert (ack[b"Flags"], ack[b"From"], ack[b"ID"], ack[b"Payload"]) == (1, b"me", 7, b"")
    ack, answer = responses(tell(swim, User(query("_serf_list-keys", flags=1))))
    assert (ack[b"Flags"], answer[b"Flags"], answer[b"Payload"][0]) == (1, 0, 8)


def test_a_query_for_other_nodes_gets_no_ack() -> None:
    swim = with_peers()
    for filters, count in ((["you"], 0), (["you", "me"], 1)):
        asked = query("uptime", flags=1, number=count, filters=[b"\x00" + pack(filters)])
        assert len(tell(swim, User(asked)).packets) == count
    by_tag = query("uptime", flags=1, number=9, filters=[b"\x01" + pack({"Tag": "role", "Expr": "(a+)+$"})])
    assert not tell(swim, User(by_tag)).packets  # a regular expression of another node is not run


def test_a_conflict_over_a_name_gets_our_vote() -> None:
    """Serf's agent asks all members where they know its name, and shuts down when most of them name another address."""
    swim = with_peers()
    [vote] = responses(tell(swim, User(query("_serf_conflict", payload=b"p2"))))
    assert vote[b"Payload"][0] == 6
    known = unpack(vote[b"Payload"], 1)[0]
    assert (known[b"Name"], known[b"Addr"], known[b"Port"], known[b"Status"]) == (b"p2", bytes((10, 0, 0, 2)), 7946, 1)
    assert (known[b"ProtocolMax"], known[b"DelegateCur"]) == (5, 5)
    [vote] = responses(tell(swim, User(query("_serf_conflict", payload=b"nobody"))))
    assert vote[b"Payload"] == b"\x06\xc0"
    assert not tell(swim, User(query("_serf_conflict", payload=b"me"))).packets  # nobody votes about itself


def test_a_message_that_is_too_large_for_a_packet_is_neither_remembered_nor_passed_on() -> None:
    swim = with_peers()
    tell(swim, User(b"\x03" + bytes(60_000)))
    assert swim.queued == 0


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


def test_intents_carry_a_time_that_only_grows() -> None:
    clock = SerfClock()
    first, second = decode_intent(clock.leave("a")), decode_intent(clock.stay("a"))
    assert first == Intent("a", 2, True)
    assert second == Intent("a", 3, False)
    clock.witness(40)
    assert decode_intent(clock.leave("a")).time == 42
    clock.witness(2**64 - 1)  # a forged time must not leave us without room
    assert decode_intent(clock.leave("a")).time == 43


def test_the_time_is_learnt_from_serfs_state() -> None:
    clock = SerfClock()
    clock.witness_state(b"\x02" + pack({"LTime": 17, "StatusLTimes": {"a": 30, "b": 90}}), "a")
    assert clock.time == 31
    for nonsense in (b"", b"\x02", b"\x02\x93", b"\x09\x80", b"\x02" + pack({"LTime": "x"})):
        clock.witness_state(nonsense, "a")
    assert clock.time == 31


def test_serfs_other_messages_are_skipped() -> None:
    assert decode_intent(b"") is None
    assert decode_intent(b"\x03\x80") is None

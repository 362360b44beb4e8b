from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gossip.strategies import messages

from tenure.errors import WireError
from tenure.gossip.encodings import pack
from tenure.gossip.messages import VERSIONS, Ack, Alive, Dead, IndirectPing, MemberState, Message, Ping, Suspect
from tenure.gossip.wire import decode, decode_node_state, encode, pack_host, unpack_host


@given(messages)
def test_each_message_comes_back_from_its_bytes(message: Message) -> None:
    assert decode(encode(message)) == message


def test_a_ping_of_ours_has_the_fields_of_go_in_the_old_msgpack() -> None:
    ping = Ping(7, "web-1", ("10.1.2.3", 7946), "web-2")
    assert encode(ping) == (
        b"\x00\x85\xa5SeqNo\x07\xa4Node\xa5web-1\xaaSourceAddr\xa4\x0a\x01\x02\x03\xaaSourcePort\xcd\x1f\x0a"
        b"\xaaSourceNode\xa5web-2"
    )


def test_long_names_use_raw16_for_the_old_msgpack_has_no_raw8() -> None:
    assert b"\xda\x00\x28" + b"n" * 40 in encode(Suspect(1, "n" * 40, "me"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\x00\x82\xa5SeqNo\x05\xa4Node\xa1a", Ping(5, "a")),
        (b"\x02\x82\xa5SeqNo\x05\xa7Payload\xc0", Ack(5)),
        (b"\x02\x83\xa5SeqNo\x05\xa7Payload\xc4\x01\x01\xa6Future\x91\xc3", Ack(5, b"\x01")),
        (b"\x03\x83\xa4From\xd9\x01b\xabIncarnation\xce\x00\x00\x00\x02\xa4Node\xa1a", Suspect(2, "a", "b")),
        (b"\x05\x83\xa4From\xa1a\xabIncarnation\x02\xa4Node\xa1a", Dead(2, "a", "a")),
    ],
)
def test_fields_come_in_any_order_in_both_msgpacks_with_fields_we_do_not_know(body: bytes, message: Message) -> None:
    assert decode(body) == message


def test_a_mapped_ipv4_address_is_that_ipv4_address() -> None:
    mapped = b"\x00" * 10 + b"\xff\xff" + bytes((127, 0, 0, 1))
    assert unpack_host(mapped) == "127.0.0.1"
    assert pack_host("::ffff:127.0.0.1") == bytes((127, 0, 0, 1))


def test_the_versions_never_leave_the_delegate_empty() -> None:
    assert encode(Alive(1, "a", ("127.0.0.1", 1))).endswith(b"\xa6\x01\x05\x02\x02\x05\x05")
    assert all(VERSIONS)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "empty"),
        (b"\x63\x80", "unknown type 99"),
        (b"\x00\x01", "not a msgpack map"),
        (b"\x00\x81\xa5SeqNo\xa1x", "SeqNo is b'x'"),
        (b"\x00\x81\xa5SeqNo\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "not a number from 0"),
        (b"\x03\x81\xa4Node\xa0", "empty, and must name a node"),
        (b"\x03\x81\xa4Node\xa2\xff\xfe", "not UTF-8"),
        (b"\x03\x81\xa4Node\xda\xff\xff", "ends early"),
        (b"\x04" + pack({"Node": "a", "Addr": b"\x01\x02"}), "2 bytes, not 4 or 16"),
        (b"\x04" + pack({"Node": "a", "Addr": b"\x01" * 4, "Port": 70_000}), "Port is 70000"),
        (b"\x04" + pack({"Node": "a", "Addr": b"\x01" * 4, "Meta": b"m" * 513}), "513 bytes"),
        (b"\x04" + pack({"Node": "a", "Addr": b"\x01" * 4, "Vsn": b"\x01"}), "Vsn has 1 bytes"),
        (b"\x00" + b"\x91" * 100, "nested deeper"),
        (b"\x00\xc1", "starts no msgpack value"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(body: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        decode(body)


@given(st.integers(0, 3))
def test_a_line_of_a_push_pull_knows_four_states(state: int) -> None:
    fields = {b"Name": b"a", b"Addr": bytes((10, 0, 0, 1)), b"Port": 1, b"Incarnation": 3, b"State": state}
    assert decode_node_state(fields).state is MemberState(state)
    with pytest.raises(WireError):
        decode_node_state({**fields, b"State": state + 4})


def test_an_indirect_ping_says_whether_it_wants_a_nack() -> None:
    for nack in (True, False):
        ping = IndirectPing(9, ("10.0.0.9", 80), "c", nack, ("10.0.0.1", 81), "a")
        assert decode(encode(ping)) == ping

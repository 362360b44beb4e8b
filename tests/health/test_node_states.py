from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import LimitError, PiggybackError
from tenure.health.node_states import MAX_BYTES, MAX_NODE_ID_BYTES, VERSION, HealthPiggyback, NodeType
from tenure.health.overload import OverloadState

COUNT = st.integers(0, 2**32 - 1)
NODE_ID = st.text(min_size=1, max_size=MAX_NODE_ID_BYTES).filter(
    lambda text: text.isprintable() and len(text.encode()) <= MAX_NODE_ID_BYTES
)
PIGGYBACKS = st.builds(
    HealthPiggyback,
    node_id=NODE_ID,
    node_type=st.sampled_from(NodeType),
    accepting_work=st.booleans(),
    capacity=COUNT,
    throughput=COUNT,
    expected_throughput=COUNT,
    overload_state=st.sampled_from(OverloadState),
    waiting=COUNT,
    advancing=COUNT,
    sequence=COUNT,
)
ONE = HealthPiggyback("worker-1", "worker", True, 4, 12, 15, "healthy")


def outcome(data: bytes) -> str:
    """What a receiver of these bytes meets; any error but the one it may count on escapes."""
    try:
        HealthPiggyback.decode(data)
    except PiggybackError as error:
        return "refused" if "health piggyback" in error.fact and error.remedy else f"refused without words: {error}"
    return "read"


@given(PIGGYBACKS)
def test_what_is_encoded_is_decoded_and_fits(piggyback: HealthPiggyback) -> None:
    data = piggyback.encode()
    assert len(data) <= MAX_BYTES
    assert HealthPiggyback.decode(data) == piggyback


def test_the_largest_one_still_shares_a_datagram_with_gossip() -> None:
    most = 2**32 - 1
    largest = HealthPiggyback("w" * 128, "gate", True, most, most, most, "overloaded", most, most, most)
    assert len(largest.encode()) == 165


def test_an_ordinary_one_takes_about_twenty_bytes() -> None:
    assert len(ONE.encode()) == 20


@given(st.binary(max_size=300))
def test_any_bytes_are_a_piggyback_or_a_clear_error(data: bytes) -> None:
    assert outcome(data) in ("read", "refused")


@given(PIGGYBACKS, st.data())
def test_a_flipped_byte_never_raises_anything_else(piggyback: HealthPiggyback, data: st.DataObject) -> None:
    good = bytearray(piggyback.encode())
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    assert outcome(bytes(good)) in ("read", "refused")


@given(PIGGYBACKS)
def test_a_truncated_one_is_refused(piggyback: HealthPiggyback) -> None:
    data = piggyback.encode()
    for cut in range(len(data)):
        with pytest.raises(PiggybackError):
            HealthPiggyback.decode(data[:cut])


def test_another_version_is_refused_and_named() -> None:
    with pytest.raises(PiggybackError, match="version 9, and this node reads version 1"):
        HealthPiggyback.decode(bytes((9,)) + ONE.encode()[1:])


def test_too_many_bytes_are_refused_before_they_are_read() -> None:
    with pytest.raises(PiggybackError, match="this one 5000"):
        HealthPiggyback.decode(bytes((VERSION,)) * 5000)


def test_fields_that_a_later_release_appends_are_ignored() -> None:
    body = msgspec.msgpack.decode(ONE.encode()[1:])
    longer = bytes((VERSION,)) + msgspec.msgpack.encode([*body, "new", 7])
    assert HealthPiggyback.decode(longer) == ONE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node_id", ""),
        ("node_id", "a\nb"),
        ("node_id", "w" * 129),
        ("node_id", "ü" * 65),
        ("node_id", "\ud800"),
        ("node_type", "client"),
        ("accepting_work", 1),
        ("capacity", -1),
        ("capacity", 2**32),
        ("throughput", 1.5),
        ("expected_throughput", float("nan")),
        ("overload_state", "fine"),
        ("waiting", True),
        ("advancing", -3),
        ("sequence", None),
    ],
)
def test_a_wrong_field_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(LimitError, match=f"^{field} is "):
        dataclasses.replace(ONE, **{field: value})


def test_the_documents_strings_become_enums_that_equal_them() -> None:
    assert ONE.node_type is NodeType.WORKER
    assert ONE.node_type == "worker"
    assert ONE.overload_state is OverloadState.HEALTHY

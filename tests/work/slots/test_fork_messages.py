from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenure.work.slots.fork_messages import ForkFailed, ForkRefused, ServerReady, SlotForked, read_answer


@given(st.binary(max_size=64))
def test_bytes_that_are_no_answer_are_passed_over(message: bytes) -> None:
    answer = read_answer(message)
    assert answer is None or isinstance(answer, (ServerReady, SlotForked, ForkRefused, ForkFailed))


def test_answers_are_read_as_they_were_written() -> None:
    for answer in (ServerReady(), SlotForked(7), ForkRefused("a thread"), ForkFailed("no process")):
        assert read_answer(msgspec.msgpack.encode(answer)) == answer

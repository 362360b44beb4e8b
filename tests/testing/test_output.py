"""What a workflow emits: items with offsets, there while it runs, each once over all attempts."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import JobFailed, workflow
from tenure.codec import Codec
from tenure.control.messages.job_output import OutputItem
from tenure.errors import UnknownJobError
from tenure.testing import TestDatacenter


def pairs(items: Any) -> list[tuple[int, Any, int]]:
    return [(one.offset, one.item, one.attempt) for one in items]


@workflow(max_attempts=3)
def in_steps(ctx: Any) -> int:
    def first() -> int:
        ctx.emit("a", "b")
        return 2

    def second() -> int:
        ctx.emit("c")
        if ctx.attempt == 1:
            raise OSError("away")
        ctx.emit("d")
        return 2

    ctx.emit("begin")
    ctx.step("first", first)
    ctx.sleep(minutes=2)
    ctx.emit("between")
    ctx.step("second", second)
    return 1


def test_items_are_there_while_it_waits_and_none_comes_twice(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(in_steps)
    tenure_dc.advance(seconds=30)
    page = tenure_dc.output(job.id)
    assert (pairs(page.items), page.next, page.ended) == ([(0, "begin", 1), (1, "a", 1), (2, "b", 1)], 3, False)
    tenure_dc.advance(minutes=3)
    job.wait()
    assert pairs(job.output(3)) == [(3, "between", 1), (4, "c", 1), (5, "d", 2)]
    assert [one.item for one in job.output(follow=True)] == ["begin", "a", "b", "between", "c", "d"]
    last = tenure_dc.output(job.id, 5)
    assert (last.next, last.more, last.ended) == (6, False, True)


@workflow(max_attempts=3)
async def with_a_cursor(ctx: Any) -> int:
    begin = ctx.resume or 0
    for number in range(begin, 6):
        await ctx.emit({"row": number})
        if number % 2:
            await ctx.checkpoint(number + 1)
        if number == 4 and ctx.attempt == 1:
            raise OSError("away")
    return begin  # type: ignore[no-any-return]


def test_an_attempt_that_goes_on_from_its_checkpoint_goes_on_at_the_same_place(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(with_a_cursor)
    assert job.wait() == 4
    assert pairs(job.output()) == [(n, {"row": n}, 2 if n == 5 else 1) for n in range(6)]


@workflow(max_attempts=1)
def many(ctx: Any, rows: int, size: int) -> int:
    for number in range(rows):
        ctx.emit(f"{number} " + "x" * size)
    return rows


def test_long_outputs_come_in_pages_from_any_offset(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(many, rows=120, size=1_000)
    job.wait()
    assert len(tenure_dc.engine.store("output").list("")) > 5, "it is written in chunks"
    page = tenure_dc.output(job.id, 37, limit=50)
    assert [one.offset for one in page.items] == list(range(37, 87))
    assert page.more
    assert [one.item.split()[0] for one in job.output(60)] == [str(n) for n in range(60, 120)]
    assert pairs(tenure_dc.output(job.id, 500).items) == []


@workflow(max_attempts=1)
def slow(ctx: Any) -> None:
    for number in range(3):
        ctx.emit(number)
        ctx.sleep(20)


def test_a_reader_that_follows_waits_for_items_until_the_end(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(slow)
    assert [one.item for one in job.output(follow=True)] == [0, 1, 2]
    assert job.state == "completed"


def test_what_cannot_be_emitted_is_a_clear_error(tenure_dc: TestDatacenter) -> None:
    with pytest.raises(JobFailed, match=r"an emitted item is .* bytes"):
        tenure_dc.submit(many, rows=1, size=70_000).wait()
    with pytest.raises(UnknownJobError):
        tenure_dc.output("nobody")


class Backwards(Codec):
    def encode(self, data: bytes, about: str) -> bytes:
        return about.encode() + b"|" + data[::-1]

    def decode(self, data: bytes, about: str) -> bytes:
        head, _, rest = data.partition(b"|")
        assert head == about.encode()
        return rest[::-1]


def test_items_are_sealed_by_the_codec() -> None:
    with TestDatacenter([many], codec=Backwards()) as datacenter:
        job = datacenter.submit(many, rows=2, size=1)
        job.wait()
        assert [one.item for one in job.output()] == ["0 x", "1 x"]
        [stored] = [value for _, value in datacenter.engine.store("output").scan("")]
        assert b"0 x" not in stored
        assert isinstance(next(iter(job.output())), OutputItem)

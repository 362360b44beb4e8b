"""Right and wrong submissions, for type checkers. `test_submit_types.py` compares their errors with the marks: a line ends in `# error` when both mypy and
pyright must refuse it, and any other line must pass both. Nothing here is ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from tenure import (
    AsyncClient,
    AsyncContext,
    Client,
    Context,
    Job,
    embedded,
    hours,
    submit_in,
    submit_in_async,
    workflow,
)
from tenure.client.async_job import AsyncJob
from tenure.work.job_submission import AsyncChildJob, ChildJob

if TYPE_CHECKING:
    from tenure.testing.datacenter import TestDatacenter


@workflow
def encode(ctx: Context, path: str, crf: int = 23) -> int:
    return len(path) + crf


@workflow(stall=600, max_attempts=1)
async def review(ctx: AsyncContext, pr: int, *, deep: bool = False) -> str:
    return str(pr)


@workflow
def tick(ctx: Context) -> None:
    return None


def remote(path: str, crf: int = 23) -> int: ...  # type: ignore[empty-body]  # pyright: ignore[reportReturnType]


def blocking(client: Client) -> None:
    assert_type(client.submit(encode, path="a.mov"), Job[int])
    assert_type(client.submit(encode, "a.mov", 18), Job[int])
    assert_type(client.submit(review, pr=1, deep=True).wait(), str)
    assert_type(client.submit(review, 1), Job[str])
    client.submit(tick)
    client.submit(encode, path=1)  # error
    client.submit(encode, 1)  # error
    client.submit(encode, "a.mov", "18")  # error
    client.submit(encode, "a.mov", 18, 3)  # error
    client.submit(encode)  # error
    client.submit(encode, pth="a.mov")  # error
    client.submit(encode, path="a.mov", crf="low")  # error
    client.submit(review, 1, True)  # error
    client.submit(review, pr="1")  # error
    client.submit(tick, 1)  # error
    client.submit(remote, path="a.mov")  # error


def with_options(client: Client) -> None:
    assert_type(client.submit(encode, path="a.mov", timeout=hours(6)), Job[int])
    assert_type(client.submit(review, 1, queue="gpu", priority=2), Job[str])
    assert_type(client.submit(encode, {"path": "a.mov"}, queue="gpu"), Job[int])
    client.submit(encode, path="a.mov", timeout="6h")  # error
    client.submit(encode, path="a.mov", queue=3)  # error
    client.submit(encode, path="a.mov", max_attempts="3")  # error
    client.submit(encode, path="a.mov", priorty=3)  # error
    both = encode.options(timeout=hours(6), queue="gpu")
    assert_type(client.submit(both, path="a.mov"), Job[int])
    client.submit(both, path=1)  # error
    encode.options(timeout="6h")  # error
    encode.options(priorty=3)  # error


def by_name(client: Client) -> None:
    assert_type(client.submit("encode", path=1, queue="gpu"), Job[Any])
    unlike = client.workflow("encode")
    assert_type(unlike.options(timeout=hours(6)).submit("a.mov", anything=1), Job[Any])
    known = client.workflow("encode", like=remote)
    assert_type(known.submit("a.mov", crf=18), Job[int])
    assert_type(known.options(timeout=hours(6)).submit(path="a.mov").wait(), int)
    known.submit(path=1)  # error
    known.submit()  # error
    known.options(tiemout=1)  # error


async def awaited(client: AsyncClient) -> None:
    assert_type(await client.submit(encode, path="a.mov"), AsyncJob[int])
    assert_type(await (await client.submit(review, 1)).wait(), str)
    assert_type(await client.submit(encode, "a.mov", job_id="a"), AsyncJob[int])
    await client.submit(encode, path=1)  # error
    await client.submit(review, pr="1")  # error
    known = await client.workflow("encode", like=remote)
    assert_type(await known.submit("a.mov"), AsyncJob[int])
    await known.submit(1)  # error


def inside() -> None:
    with embedded(workflows=[encode, review]) as here:
        assert_type(here.submit(encode, path="a.mov").wait(), int)
        here.submit(encode, path=1)  # error


def kit(tenure_dc: TestDatacenter) -> None:
    assert_type(tenure_dc.submit(review, pr=1), Job[str])
    tenure_dc.submit(review, pr="1")  # error


async def in_transactions(connection: Any) -> None:
    assert_type(submit_in(connection, encode, path="a.mov"), str)
    assert_type(submit_in(connection, encode, "a.mov", schema="jobs"), str)
    assert_type(submit_in(connection, "encode", path=1), str)
    assert_type(await submit_in_async(connection, review, 1), str)
    submit_in(connection, encode, path=1)  # error
    submit_in(connection, encode, path="a.mov", schema=1)  # error
    await submit_in_async(connection, review, pr="1")  # error


async def called(ctx: Context, other: AsyncContext) -> None:
    assert_type(encode(ctx, "a.mov"), int)
    assert_type(await review(other, 1), str)
    encode(ctx, 1)  # error


def children(ctx: Context) -> None:
    assert_type(ctx.submit(encode, path="a.mov"), ChildJob[int])
    assert_type(ctx.submit(encode, "a.mov", 18).wait(), int)
    assert_type(ctx.submit(review, 1, key="first", timeout=hours(6)), ChildJob[str])
    assert_type(ctx.submit(encode, {"path": "a.mov"}, queue="gpu"), ChildJob[int])
    assert_type(ctx.submit("encode", path=1), ChildJob[Any])
    assert_type(ctx.wait_job(ctx.submit(encode.options(priority=2), path="a.mov")), int)
    ctx.submit(encode, path=1)  # error
    ctx.submit(encode)  # error
    ctx.submit(encode, "a.mov", "18")  # error
    ctx.submit(encode, pth="a.mov")  # error
    ctx.submit(encode.options(priority=2), path=1)  # error
    ctx.submit(encode, path="a.mov", timeout="6h")  # error
    ctx.submit(encode, path="a.mov", key=1)  # error
    ctx.submit(encode, path="a.mov", job_id="mine")  # error
    ctx.submit(remote, path="a.mov")  # error


async def awaited_children(ctx: AsyncContext) -> None:
    assert_type(await ctx.submit(encode, path="a.mov"), AsyncChildJob[int])
    assert_type(await (await ctx.submit(review, 1)).wait(), str)
    assert_type(await ctx.submit(encode, "a.mov", key="one"), AsyncChildJob[int])
    await ctx.submit(encode, path=1)  # error
    await ctx.submit(review, pr="1")  # error
    await ctx.submit(review, pr=1, max_attempts="3")  # error

"""The jobs of the contest as workflows: the module that `tenure worker` serves."""

from driver import answer_ping, mark

from tenure import workflow

COMPUTED = 40_000
"""Takes 1.0 ms on the machine of docs/performance.md."""


@workflow
def noop(ctx) -> None:
    mark()


@workflow
def compute(ctx) -> None:
    """A millisecond of pure Python, or about that: the same work wherever it runs."""
    sum(number * number for number in range(COMPUTED))
    mark()


@workflow
def ping(ctx, number: int) -> int:
    return answer_ping(number)


@workflow
async def noop_async(ctx) -> None:
    mark()


@workflow
def echo(ctx, number: int) -> int:
    return number

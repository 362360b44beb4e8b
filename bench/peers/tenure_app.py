"""The jobs of the contest as workflows: the module that `tenure worker` serves."""

from driver import answer_ping, mark

from tenure import workflow


@workflow
def noop(ctx) -> None:
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

"""Durable steps in a whole datacenter: a finished step is not run again, whatever happened to its attempt."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from tenure import JobFailed, Retry, step, workflow
from tenure.testing import TestDatacenter

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


class Receipt(msgspec.Struct):
    order: int
    cents: int


def charge(order: int) -> Receipt:
    ran.append(f"charge {order}")
    return Receipt(order, 995)


async def mail(to: str) -> str:
    ran.append(f"mail {to}")
    await asyncio.sleep(1)
    return to.upper()


@workflow(max_attempts=4)
def buys(ctx: Any, order: int) -> int:
    paid = ctx.step("charge", charge, order)
    assert isinstance(paid, Receipt)
    if ctx.attempt < 3:
        raise OSError("the network is away")
    return paid.cents


@workflow(max_attempts=3)
async def mails(ctx: Any, people: list[str]) -> list[str]:
    sent = await asyncio.gather(*(ctx.step("mail", mail, one, key=one) for one in people))
    total = await ctx.step("count", len, sent)
    if ctx.attempt == 1:
        people.reverse()
        raise OSError("away")
    return [*sent, str(total)]


def test_a_finished_step_is_not_run_by_the_next_attempt(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(buys, order=7)
    assert job.wait() == 995
    assert (job.attempts, ran) == (3, ["charge 7"])


def test_concurrent_steps_and_functions_that_are_not_async(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(mails, people=["a", "b", "c"])
    assert job.wait() == ["A", "B", "C", "3"]
    assert sorted(ran) == ["mail a", "mail b", "mail c"]


@workflow(max_attempts=3)
async def mails_the_other_way_round(ctx: Any, people: list[str]) -> list[str]:
    order = people if ctx.attempt == 1 else people[::-1]
    sent = await asyncio.gather(*(ctx.step("mail", mail, one, key=one) for one in order))
    if ctx.attempt == 1:
        raise OSError("away")
    return sent


def test_concurrent_steps_may_come_in_another_order_and_none_runs_again(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(mails_the_other_way_round, people=["a", "b", "c"])
    assert job.wait() == ["C", "B", "A"]
    assert (job.attempts, sorted(ran)) == (2, ["mail a", "mail b", "mail c"])


@workflow(max_attempts=3)
def repeats(ctx: Any) -> None:
    for order in range(2):
        ctx.step("charge", charge, order)


@workflow(max_attempts=3)
def turns_round(ctx: Any) -> None:
    names = ["one", "two"] if ctx.attempt == 1 else ["two", "one"]
    for name in names:
        ctx.step(name, charge, 1)
    raise OSError("away")


def test_a_repeated_name_without_a_key_fails_the_job_at_once(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(repeats)
    with pytest.raises(JobFailed, match=r"step 'charge' was call 1 .* comes again as call 2"):
        job.wait()
    assert (job.attempts, ran) == (1, ["charge 0"])


def test_another_order_fails_the_job_and_nothing_ran_twice(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(turns_round)
    with pytest.raises(JobFailed, match=r"step 'one' comes after step 'two', and came before it"):
        job.wait()
    assert (job.attempts, len(ran)) == (2, 2)


@step(retry=Retry(max_attempts=3, delay=5.0))
def flaky(word: str) -> str:
    ran.append(word)
    if len(ran) < 3:
        raise OSError("away")
    return word


@workflow(max_attempts=1)
def decorated(ctx: Any) -> str:
    return str(flaky("x") + flaky.keyed("second")("y"))


def test_a_step_has_its_own_retries_and_a_decorated_one_is_a_plain_function_elsewhere(
    tenure_dc: TestDatacenter,
) -> None:
    begun = tenure_dc.now
    job = tenure_dc.submit(decorated)
    assert job.wait() == "xy"
    assert (job.attempts, ran) == (1, ["x", "x", "x", "y"])
    assert tenure_dc.now - begun >= 12
    assert flaky("outside") == "outside"


async def slow(ctx: Any) -> None:
    ran.append("slow")
    for _ in range(1000):
        await asyncio.sleep(1)
        ctx.beat()


@workflow(max_attempts=1)
async def impatient(ctx: Any) -> str:
    try:
        await ctx.step("slow", slow, ctx, timeout=10, retry=Retry(max_attempts=2, delay=1))
    except TimeoutError as error:
        return str(error)
    return "never"


def test_a_step_that_is_too_slow_is_ended_and_tried_again(tenure_dc: TestDatacenter) -> None:
    assert "timeout of 10 s" in tenure_dc.submit(impatient).wait()
    assert ran == ["slow", "slow"]


@workflow(max_attempts=2)
def falls(ctx: Any, times: int) -> int:
    for number in range(times):
        done = ctx.step("advance", charge, number, key=str(number))
        if ctx.attempt == number + 1:
            raise OSError("away")
    return done.order


@workflow(max_attempts=2)
def stands(ctx: Any) -> None:
    ctx.step("only", charge, 1)
    raise OSError("away")


def test_a_recorded_step_earns_retries_and_the_same_one_again_does_not(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(falls, times=6)
    assert job.wait() == 5
    assert job.attempts == 7
    stuck = tenure_dc.submit(stands)
    with pytest.raises(JobFailed):
        stuck.wait()
    assert stuck.attempts == 3  # the first one saved something


@workflow(max_attempts=1)
def cannot_be_kept(ctx: Any) -> None:
    ctx.step("object", object)


def test_a_result_that_is_no_json_is_refused(tenure_dc: TestDatacenter) -> None:
    with pytest.raises(JobFailed, match=r"result of step 'object', of type object, cannot be written as JSON"):
        tenure_dc.submit(cannot_be_kept).wait()


def test_a_step_costs_little(tenure_dc: TestDatacenter) -> None:
    @workflow
    def many(ctx: Any) -> int:
        return sum(ctx.step("n", int, n, key=str(n)) for n in range(1000))

    begun = time.perf_counter()
    assert tenure_dc.submit(many).wait() == 499_500
    assert time.perf_counter() - begun < 60

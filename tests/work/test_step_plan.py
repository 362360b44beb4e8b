"""Steps of a workflow, as its source has them, and whether recorded ones fit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import step
from tenure.work.step_plan import misfit, plan_of


@step
def charge(order: int) -> int:
    return order


@step(name="send")
def send_mail(to: str) -> str:
    return to


def helper(to: str) -> str:
    return send_mail(to)


def plain(ctx: Any, orders: list[int]) -> int:
    first = ctx.step("fetch", len, orders)
    with ctx.silence(5, why="x"):
        ctx.step("check", len, orders)
    for order in orders:
        charge.keyed(str(order))(order)
    helper("ada")
    ctx.step("done", len, [ctx.step("last", len, orders)])
    return first


async def concurrent(ctx: Any) -> int:
    await ctx.step("fetch", len, [])
    await asyncio.gather(ctx.step("a", len, []), ctx.step("b", len, []))
    return await ctx.step("end", len, [])


def leaves(ctx: Any, early: bool) -> int:
    ctx.step("fetch", len, [])
    if early:
        return 0
    return ctx.step("mail", len, [])


def hands_on(ctx: Any) -> int:
    return other(ctx)


def other(ctx: Any) -> int:
    return ctx.step("hidden", len, [])


def by_name(ctx: Any, name: str) -> int:
    return ctx.step(name, len, [])


def test_the_plan_has_the_steps_that_follow_each_other_and_knows_the_others_by_name() -> None:
    plan = plan_of(plain)
    assert plan is not None
    assert plan.straight == ("fetch", "check", "last", "done")
    assert plan.names == {"fetch", "check", "charge", "send", "last", "done"}
    assert plan.complete


def test_what_runs_at_once_and_what_comes_after_a_branch_that_may_leave_has_no_order() -> None:
    found = plan_of(concurrent)
    assert found is not None
    assert (found.straight, found.names) == (("fetch", "end"), {"fetch", "a", "b", "end"})
    left = plan_of(leaves)
    assert left is not None
    assert (left.straight, left.names) == (("fetch",), {"fetch", "mail"})


@pytest.mark.parametrize("function", [hands_on, by_name])
def test_code_that_hands_its_context_on_or_makes_up_names_may_have_any_step(function: Any) -> None:
    assert misfit(function, ["whatever"]) == ""


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        ([], ""),
        (["fetch", "check"], ""),
        (["fetch", "check", "charge", "charge", "send", "last", "done"], ""),
        (["check", "fetch"], "step 'fetch' comes before step 'check', and came after it when they were recorded"),
        (["check"], "step 'fetch' was added before step 'check', which is recorded"),
        (["fetch", "old"], "step 'old' was removed, and is recorded"),
    ],
)
def test_recorded_steps_are_compared_by_name(recorded: list[str], words: str) -> None:
    assert misfit(plain, recorded) == words


def test_a_function_without_source_fits_everything() -> None:
    space: dict[str, Any] = {}
    exec("def made(ctx): return ctx.step('a', len, [])", space)
    assert misfit(space["made"], ["b"]) == ""
    assert misfit(lambda ctx: ctx.step("a", len, []), ["b"]) == ""

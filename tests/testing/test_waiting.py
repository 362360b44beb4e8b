"""Work that waits gives its slot back: for time, for signals, for children, in a whole datacenter on a manual clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure import JobFailed, workflow
from tenure.control.messages.jobs import SignalJob
from tenure.engines.mailbox_keys import MailboxKeys
from tenure.errors import ArgumentsError, NodeRefusedError, UnknownJobError
from tenure.jobs.states import JobState
from tenure.testing import TestDatacenter

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def note(word: str) -> str:
    ran.append(word)
    return word


@workflow(max_attempts=1)
def drips(ctx: Any, mails: int) -> int:
    for number in range(mails):
        ctx.step("mail", note, f"mail {number}", key=str(number))
        ctx.sleep(minutes=7)
    return len(ran)


@workflow(max_attempts=1)
async def drips_async(ctx: Any, mails: int) -> int:
    for number in range(mails):
        await ctx.step("mail", note, f"mail {number}", key=str(number))
        await ctx.sleep(minutes=7)
    return len(ran)


@pytest.mark.parametrize("kind", [drips, drips_async])
def test_a_drip_campaign_holds_no_slot_and_runs_each_step_once(tenure_dc: TestDatacenter, kind: Any) -> None:
    job = tenure_dc.submit(kind, mails=4)
    tenure_dc.advance(minutes=3)
    [view] = job.status().workflows
    assert view.state == "suspended"
    assert view.waits_for == "7 min in all"
    assert ran == ["mail 0"]
    tenure_dc.advance(minutes=26)
    assert (job.state, job.attempts, ran) == (JobState.COMPLETED, 1, [f"mail {n}" for n in range(4)])
    assert "it holds no slot meanwhile" in job.why()


@workflow(max_attempts=2)
def saves(ctx: Any) -> str:
    if ctx.resume is None:
        ctx.checkpoint({"at": 7})
    ctx.sleep(minutes=3)
    return f"{ctx.resume} {ctx.attempt}"


def test_checkpoint_and_steps_outlive_what_the_engine_remembers(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(saves)
    tenure_dc.advance(minutes=1)
    # The engine forgets a key a day after its message ended; a day of this datacenter takes a minute, so it forgets at once.
    for box in tenure_dc.engine.boxes.values():
        box.state.keys = MailboxKeys()
    tenure_dc.advance(minutes=3)
    assert job.wait() == "{'at': 7} 1"


@workflow(max_attempts=1)
def sleeps_a_month(ctx: Any) -> str:
    if ctx.resume is None:
        ctx.checkpoint({"at": 7})
    ctx.step("mail", note, "mail")
    ctx.sleep(days=30)
    ctx.step("again", note, "again")
    return f"{ctx.resume} {ctx.attempt}"


def test_work_that_sleeps_for_thirty_days_goes_on_from_its_steps_and_its_checkpoint(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(sleeps_a_month)
    tenure_dc.advance(minutes=1)
    with tenure_dc.down():
        tenure_dc.advance(days=29)
    tenure_dc.advance(minutes=1)
    [view] = job.status().workflows
    assert (view.state, ran) == ("suspended", ["mail"])
    with tenure_dc.down():
        tenure_dc.advance(days=1)
    tenure_dc.advance(minutes=1)
    assert (job.wait(), ran) == ("{'at': 7} 1", ["mail", "again"])


@workflow(max_attempts=1)
def parent_that_comes_late(ctx: Any) -> list[str]:
    child = ctx.submit(three_sleep_short, key="one")
    ctx.pause(30.0, "the child ends meanwhile")
    return [ctx.wait_job(child)]


@workflow(max_attempts=1)
def three_sleep_short(ctx: Any) -> str:
    return "done"


def test_a_child_that_ended_before_its_parent_waits_suspends_nobody(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(parent_that_comes_late)
    tenure_dc.serve(three_sleep_short)
    assert job.wait() == ["done"]
    assert "it holds no slot meanwhile" not in job.why()


@workflow(max_attempts=3)
def fails_after_its_sleep(ctx: Any) -> int:
    ctx.sleep(minutes=2)
    note("awake")
    if ctx.attempt == 1:
        raise OSError("away")
    ctx.wait_until(datetime.fromtimestamp(ctx.clock.wall() + 120, UTC))
    return ctx.attempt  # type: ignore[no-any-return]


def test_a_sleep_that_is_over_is_not_slept_again_after_a_failure(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(fails_after_its_sleep)
    tenure_dc.advance(minutes=3)
    assert ran == ["awake", "awake"]
    tenure_dc.advance(minutes=3)
    assert job.wait() == 2


@workflow(max_attempts=1)
def three_sleep(ctx: Any) -> str:
    ctx.sleep(minutes=5)
    return "done"


def test_many_sleepers_need_no_more_than_two_slots() -> None:
    with TestDatacenter([three_sleep], slots=2) as datacenter:
        jobs = [datacenter.submit(three_sleep) for _ in range(20)]
        datacenter.advance(minutes=2)
        assert {job.status().workflows[0].state for job in jobs} == {"suspended"}
        datacenter.advance(minutes=5)
        assert {job.state for job in jobs} == {JobState.COMPLETED}


def test_cancel_and_deadline_end_work_that_waits(tenure_dc: TestDatacenter) -> None:
    one = tenure_dc.submit(drips, mails=2)
    two = tenure_dc.submit(drips, mails=2, timeout=240)
    tenure_dc.advance(minutes=1)
    one.cancel("enough")
    tenure_dc.advance(minutes=1)
    assert one.state is JobState.CANCELLED
    tenure_dc.advance(minutes=3)
    assert two.state is JobState.TIMED_OUT
    # Both keep their steps for a week: `tenure retry --from` begins again from one of them.
    assert sorted(tenure_dc.engine.store("suspended").list("")) == sorted(f"{job.id}/drips" for job in (one, two))


@workflow(max_attempts=1)
def child(ctx: Any, n: int) -> int:
    ctx.sleep(minutes=n / 4 + 0.1)
    if n == 3:
        raise ValueError("three")
    return n * n


@workflow(max_attempts=1)
def parent(ctx: Any, numbers: list[int]) -> int:
    children = [ctx.submit(child, n=n, key=str(n)) for n in numbers]
    return sum(ctx.gather(children))


@workflow(max_attempts=1)
async def async_parent(ctx: Any, n: int) -> int:
    found = await ctx.submit(child, n=n, key="only")
    return await ctx.wait_job(found)  # type: ignore[no-any-return]


def test_three_parents_on_two_slots_wait_for_their_children_without_holding_a_slot() -> None:
    with TestDatacenter([child, parent, async_parent], slots=2) as datacenter:
        jobs = [datacenter.submit(parent, numbers=[1, 2, 4]) for _ in range(3)]
        other = datacenter.submit(async_parent, n=4)
        datacenter.advance(minutes=3)
        assert [job.wait() for job in jobs] == [21, 21, 21]
        assert other.wait() == 16


def test_a_child_that_fails_fails_its_parent_and_says_why(tenure_dc: TestDatacenter) -> None:
    tenure_dc.serve(child)
    job = tenure_dc.submit(parent, numbers=[3])
    tenure_dc.advance(minutes=2)
    with pytest.raises(JobFailed, match="three"):
        job.wait()


@workflow(max_attempts=1)
async def waits_in_a_group(ctx: Any) -> str:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ctx.step("one", note, "one"))
        await first
        group.create_task(ctx.sleep(minutes=5))
    return "done"


def test_a_wait_inside_a_task_group_suspends(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(waits_in_a_group)
    tenure_dc.advance(minutes=1)
    assert job.status().workflows[0].state == "suspended"
    tenure_dc.advance(minutes=5)
    assert (job.wait(), ran) == ("done", ["one"])


@workflow(max_attempts=1)
def asks(ctx: Any, days: float = 0.0) -> str:
    ctx.step("ask", note, "asked")
    try:
        said = ctx.wait_event("approved", timeout=days * 86_400 if days else None)
    except TimeoutError as error:
        return str(error)
    return f"{said['by']} after {len(ctx.events)}"


@workflow(max_attempts=1)
async def asks_twice(ctx: Any) -> list[int]:
    return [await ctx.wait_event("n"), await ctx.wait_event("n")]


def test_a_signal_wakes_who_waits_and_is_kept_for_who_waits_later(tenure_dc: TestDatacenter) -> None:
    waits = tenure_dc.submit(asks)
    tenure_dc.advance(seconds=30)
    [view] = waits.status().workflows
    assert (view.state, view.waits_for) == ("suspended", "signal 'approved'")
    told = waits.why()
    assert "asks is suspended: it waits for signal 'approved'" in told
    assert f"To send it: tenure signal {waits.id} approved PAYLOAD" in told
    waits.signal("other", {"by": "nobody"})
    tenure_dc.advance(seconds=30)
    assert waits.status().workflows[0].state == "suspended"
    waits.signal("approved", {"by": "ada"})
    assert waits.wait() == "ada after 2"
    assert (waits.attempts, ran) == (1, ["asked"])
    early = tenure_dc.submit(asks_twice, delay=60)
    early.signal("n", 1)
    early.signal("n", 2)
    assert early.wait() == [1, 2]


def test_a_signal_that_is_sent_twice_counts_once(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(asks_twice)
    for _ in range(3):
        job.signal("n", 1, id="mail-17")
    tenure_dc.advance(seconds=30)
    assert job.status().workflows[0].state == "suspended"
    job.signal("n", 2)
    assert job.wait() == [1, 2]


def test_a_wait_for_a_signal_times_out_once_and_for_all(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(asks, days=120 / 86_400)
    tenure_dc.advance(minutes=1)
    tenure_dc.advance(minutes=2)
    assert job.wait() == "signal 'approved' did not come within 120 s"
    with pytest.raises(NodeRefusedError, match="ended"):
        job.signal("approved", {"by": "late"})


def test_a_signal_to_nobody_and_signals_without_end_are_refused(tenure_dc: TestDatacenter) -> None:
    with pytest.raises(UnknownJobError):
        tenure_dc.signal("nobody", "approved")
    job = tenure_dc.submit(asks_twice)
    with pytest.raises(NodeRefusedError, match="at most 1,000 signals of 262,144 bytes"):
        job.signal("n", "x" * 300_000)
    with pytest.raises(ArgumentsError, match="does not fit into 64 bits"):
        job.signal("n", {"deep": [2**64]})
    with pytest.raises(NodeRefusedError, match="an integer in the payload of signal 'n' is beyond 64 bits"):
        # Another sender's JSON carries it, and a snapshot could not.
        tenure_dc.ask(SignalJob(job_id=job.id, name="n", signal_id="1", payload={"deep": [2**64]}))


@workflow(max_attempts=1)
def gives_much(ctx: Any) -> str:
    return "x" * 600_000


@workflow(max_attempts=1)
def gathers_much(ctx: Any) -> list[int]:
    found = ctx.gather([ctx.submit(gives_much, key=str(number)) for number in range(8)])
    ctx.sleep(minutes=5)
    return [len(one) for one in found]


def test_a_childs_result_that_no_step_could_hold_is_read_from_the_child_again(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(gathers_much)
    tenure_dc.serve(gives_much)
    tenure_dc.advance(minutes=20)
    assert job.wait() == [600_000] * 8


@workflow(max_attempts=1)
def sleeps_oddly(ctx: Any, seconds: float, minutes: float) -> None:
    ctx.sleep(seconds * float("inf") if seconds == 7 else seconds, minutes=minutes)


@pytest.mark.parametrize(("seconds", "minutes"), [(-1, 0), (0, -1), (7, 0), (0, 6e7)])
def test_a_sleep_of_no_possible_length_is_refused_by_its_name(
    tenure_dc: TestDatacenter, seconds: float, minutes: float
) -> None:
    job = tenure_dc.submit(sleeps_oddly, seconds=seconds, minutes=minutes)
    with pytest.raises(JobFailed, match=r"sleep is .* s, and must be 0 to 316,224,000 s"):
        job.wait()

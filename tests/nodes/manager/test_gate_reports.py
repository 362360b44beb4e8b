"""What a leader tells gates, when, and for how long (document 002, part 4), on a manual clock."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.nodes.manager.harness import GatedManagers, ask, from_gate, submission, tell
from tests.nodes.manager.harness import run_gated as run

from tenure.control.async_caller import ConfiguredCaller
from tenure.control.messages.gates import MOST_REPORTS
from tenure.control.messages.jobs import AskWhy, Cancel, GetJob, Submit
from tenure.jobs.messages import JobLeaderTransfer, JobProgressReport, JobTimeoutReport
from tenure.jobs.states import JobState, TimeoutReason
from tenure.nodes.manager.gate_reports import ANSWER_S


def gaps(times: list[float]) -> list[float]:
    return [round(after - before, 2) for before, after in pairwise(times)]


def test_progress_is_reported_every_interval_and_not_more_often() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate())
        group.works(manager)
        await group.passes(35)
        found = group.gates.said(JobProgressReport)
        assert 3 <= len(found) <= 4
        assert all(9.5 <= gap <= 10.5 for gap in gaps(group.gates.times()))
        last = found[-1]
        assert (last.datacenter, last.manager_id, last.manager_port, last.fence_token) == ("a", "m-1", 8470, 1)
        assert (last.status, last.workflows_total, last.workflows_running) == (JobState.RUNNING, 1, 1)
        # Enough for a gate that lost its journal: how long it may take, since when, and where else it runs.
        assert (last.timeout_seconds, last.target_datacenters) == (600.0, ("a", "b"))
        assert 25 <= last.elapsed_seconds <= 40

    run(story)


def test_what_shows_no_progress_is_reported_as_such() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate(stuck_threshold=500.0))
        group.works(manager, advances=False)
        await group.passes(40)
        flags = [report.has_recent_progress for report in group.gates.said(JobProgressReport)]
        assert flags[0]
        assert not flags[-1]

    run(story)


def test_many_jobs_travel_in_batches() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        many = [from_gate(f"j-{number}") for number in range(MOST_REPORTS + 50)]
        for begin in range(0, len(many), 100):
            await tell(manager, *many[begin : begin + 100])
        group.gates.batches.clear()
        await group.passes(12)
        assert sum(group.gates.batches) >= len(many)
        assert max(group.gates.batches) <= MOST_REPORTS
        assert len(group.gates.batches) <= 8

    run(story)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"timeout_seconds": 30.0}, TimeoutReason.TIMEOUT), ({"stuck_threshold": 30.0}, TimeoutReason.STUCK)],
)
def test_time_that_ran_out_is_reported_at_once_and_again_until_the_gate_decides(
    options: dict[str, float], reason: TimeoutReason
) -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate(**options))
        group.works(manager, advances=False)
        begun = group.clock.monotonic()
        await group.until(lambda: group.gates.said(JobTimeoutReport), 40)
        assert 29 <= group.clock.monotonic() - begun <= 32  # and not at the next report, or the next check
        first = group.gates.said(JobTimeoutReport)[0]
        assert (first.reason, first.fence_token, first.datacenter) == (reason, 1, "a")
        # It waits for the gate: nothing has ended here.
        assert (await ask(manager, GetJob(job_id="j-1"))).state is JobState.RUNNING
        await group.passes(30)
        assert len(group.gates.said(JobTimeoutReport)) >= 3

    run(story)


def test_an_end_is_told_at_once_and_again_until_a_gate_has_acknowledged_it() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate())
        group.gates.acknowledges = False
        group.answer(await group.claimed())
        await group.until(lambda: any(one.status.terminal for one in group.gates.said(JobProgressReport)), 3)
        await group.passes(30)
        ends = [
            at
            for at, _, word in group.gates.heard
            if isinstance(word, JobProgressReport) and word.status is JobState.COMPLETED
        ]
        found = gaps(ends)
        assert all(1.0 <= gap <= 10.5 for gap in found)  # 1, 2, 4, 8 and then the interval
        assert found[:3] == sorted(found[:3])
        group.gates.acknowledges = True
        await group.passes(15)
        count = len(group.gates.heard)
        await group.passes(60)
        assert len(group.gates.heard) == count

    run(story)


def test_while_no_gate_answers_everything_stays_owed_and_then_is_told_as_it_stands() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        for number in (1, 2, 3):
            await tell(manager, from_gate(f"j-{number}"))
        group.gates.away = {"g-1:8480", "g-2:8480"}
        await group.rest()
        for _ in range(3):
            message = group.claim()
            if message.body.job_id != "j-3":
                group.answer(message)
        await group.passes(120)
        asked = [at for at, _ in group.gates.asked]
        assert {address for _, address in group.gates.asked} == {"g-1:8480", "g-2:8480"}
        assert len(asked) < 60  # with growing pauses, up to the interval
        assert max(gaps(asked)) <= 10.5
        group.gates.heard.clear()
        group.gates.away = {"g-1:8480"}  # the other one is enough
        await group.passes(11)
        states = {word.job_id: word.status for _, _, word in group.gates.heard}
        assert states == {"j-1": JobState.COMPLETED, "j-2": JobState.COMPLETED, "j-3": JobState.RUNNING}
        assert len(group.gates.heard) <= 4  # where each stands now, and not two minutes of history

    run(story)


def test_a_gate_that_hangs_holds_up_no_other_cluster() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        group.gates.hung = {"h-1:8480"}
        await tell(manager, from_gate("hung", gates=("h-1",)))
        await tell(manager, from_gate("other"))
        await group.passes(35)
        assert len(group.gates.times("other")) >= 3
        assert group.gates.times("hung") == []

    run(story)


def test_without_a_gate_the_fallback_ends_it_and_a_gate_that_comes_later_hears_of_it() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led(fallback_after=60.0)
        await tell(manager, from_gate(timeout_seconds=20.0))
        group.works(manager)
        group.gates.away = {"g-1:8480", "g-2:8480"}
        begun = group.clock.monotonic()
        view = await ask(manager, GetJob(job_id="j-1"))
        while not view.ended:
            await group.passes(1)
            view = await ask(manager, GetJob(job_id="j-1"))
            assert group.clock.monotonic() - begun < 120
        assert 79 <= group.clock.monotonic() - begun <= 83
        assert view.state is JobState.TIMED_OUT
        assert "the gate has not answered for 60 s" in (await ask(manager, AskWhy(job_id="j-1"))).text
        group.gates.away = set()
        await group.passes(12)
        last = group.gates.said(JobProgressReport)[-1]
        assert (last.status, last.ended_by_gate) == (JobState.TIMED_OUT, False)

    run(story)


def test_a_new_leader_introduces_itself_first_and_reports_again_with_its_own_token() -> None:
    async def story(group: GatedManagers) -> None:
        first = await group.led("m-1", fallback_after=100.0)
        await tell(first, from_gate(timeout_seconds=20.0))
        group.works(first)
        await group.until(lambda: group.gates.said(JobTimeoutReport), 30)
        reported_at = group.clock.monotonic()
        await group.kill("m-1")
        group.gates.heard.clear()
        second = await group.led("m-2", fallback_after=100.0)
        await group.passes(1)
        kinds = [type(word) for _, _, word in group.gates.heard]
        assert kinds[:2] == [JobLeaderTransfer, JobProgressReport] or kinds[:2] == [JobLeaderTransfer, JobTimeoutReport]
        transfer = group.gates.said(JobLeaderTransfer)[0]
        assert (transfer.new_manager_id, transfer.fence_token, transfer.new_manager_port) == ("m-2", 2, 8470)
        assert transfer.old_manager_id.startswith("m-1")
        await group.until(lambda: group.gates.said(JobTimeoutReport), 15)
        assert group.gates.said(JobTimeoutReport)[0].fence_token == 2
        assert len(group.gates.said(JobLeaderTransfer)) == 1  # once
        # The fallback counts from the first report, whoever made it.
        await group.until(lambda: second.ledger.book.jobs["j-1"].state.terminal, 120)
        assert 99 <= group.clock.monotonic() - reported_at <= 103

    run(story)


def test_a_leader_owes_what_its_predecessor_did_not_get_across() -> None:
    async def story(group: GatedManagers) -> None:
        first = await group.led("m-1")
        await tell(first, from_gate())
        group.gates.away = {"g-1:8480", "g-2:8480"}
        group.answer(await group.claimed())
        await group.until(lambda: first.ledger.book.jobs["j-1"].state.terminal, 10)
        await group.passes(3)
        await group.kill("m-1")
        group.gates.heard.clear()
        group.gates.away = set()
        await group.led("m-2")
        await group.until(lambda: group.gates.said(JobProgressReport), 10)
        assert group.gates.said(JobProgressReport)[0].status is JobState.COMPLETED
        assert group.gates.said(JobLeaderTransfer) == []  # nothing of it is led any more

    run(story)


def test_a_gate_of_a_higher_epoch_is_remembered_and_told_to_the_next() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate())
        group.gates.epoch = 7
        await group.passes(21)
        assert group.gates.said(JobProgressReport)[-1].gate_epoch == 7
        seq = manager.ledger.seq
        await group.passes(21)
        assert manager.ledger.seq == seq  # the same epoch again is no news

    run(story)


def test_jobs_without_a_gate_are_reported_to_nobody() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await ask(manager, Submit(submission=submission()))
        await ask(manager, Cancel(job_id="j-1"))
        await group.passes(2 * ANSWER_S + 20)
        assert group.gates.asked == []

    run(story)


def test_a_manager_reports_only_to_gates_that_it_was_told_of() -> None:
    """A submission names the gates to report to, and a manager shows them its own token."""

    async def story(group: GatedManagers) -> None:
        told_of = ConfiguredCaller(group.gates, ["g-2:8480"])
        manager = group.made("m-1", gates=told_of, setup={"datacenter": "a"})
        group.start("m-1", manager)
        await group.until(lambda: manager.leads)
        await tell(manager, from_gate(gates=("evil", "g-2")))
        await group.passes(25)
        assert {address for _, address in group.gates.asked} == {"g-2:8480"}

    run(story)

"""A leader tells its workers which deadlines are near, answers their requests, and charges evictions. Each rule is also broken, and a story must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, passing, report, run_group, runs, submission

from tenure.control.messages.jobs import GetJob, Submit
from tenure.control.messages.workers import ExtendDeadline, ExtensionReply
from tenure.health.extension import HealthcheckExtensionRequest
from tenure.jobs import JobBook, deadlines, extensions
from tenure.nodes.fleet.member import ReportedAttempts
from tenure.nodes.manager import earned_time, worker_reports


def request(counter: int, since: int = 0) -> ExtendDeadline:
    asked = HealthcheckExtensionRequest("w-1", "long_workflow", 0.5, 0.0, 1, progress_counter=counter)
    return ExtendDeadline(request=asked, job_id="j-1", since=since)


def story(play: Callable[[ManagerGroup, Any, Any], Any], **options: Any) -> None:
    async def main(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission(**options)))
        await play(group, manager, leadership)

    run_group(main)


async def reports(group: ManagerGroup, manager: Any, seconds: int, **rest: Any) -> Any:
    """Reports a step each second; returns the last directive."""
    directive = None
    for second in range(seconds):
        directive = await ask(manager, report(runs(steps=second + 1, **rest)))
        await passing(group, 1)
    return directive


def a_deadline_is_told_when_it_is_near_and_not_before() -> None:
    async def play(group: ManagerGroup, manager: Any, leadership: Any) -> None:
        assert (await reports(group, manager, 50)).near == ()
        (near,) = (await reports(group, manager, 2)).near
        assert (near.job_id, near.span_s) == ("j-1", 10.0)
        assert 8 <= near.left_s <= 10

    story(play, timeout_seconds=60.0)


def a_grant_moves_the_deadline_and_the_answer_tells_it() -> None:
    async def play(group: ManagerGroup, manager: Any, leadership: Any) -> None:
        await reports(group, manager, 52)
        reply = await ask(manager, request(3))
        assert isinstance(reply, ExtensionReply)
        assert (reply.response.granted, reply.response.extension_seconds) == (True, 30.0)
        assert reply.response.remaining_extensions == 4
        assert 36 <= reply.left_s <= 39
        assert (await ask(manager, report(runs(steps=99)))).near == ()
        view = await ask(manager, GetJob(job_id="j-1"))
        assert view.deadline - view.submitted_at == 90.0
        (grant,) = [one for one in view.grants if one.kind == "deadline"]
        assert grant.note == "30 s of it earned, 4 of 5 extensions left"

    story(play, timeout_seconds=60.0)


def a_used_up_series_is_told_no_more() -> None:
    async def play(group: ManagerGroup, manager: Any, leadership: Any) -> None:
        tracking = leadership.ledger.book.job("j-1").timeout_tracking
        await reports(group, manager, 52)
        tracking.extension_count = 5
        reply = await ask(manager, request(3))
        assert (reply.response.granted, reply.response.denial_reason) == (False, "Maximum extensions (5) exceeded")
        assert (await ask(manager, report(runs(steps=99)))).near == ()

    story(play, timeout_seconds=60.0)


def a_suspect_worker_is_denied() -> None:
    async def play(group: ManagerGroup, manager: Any, leadership: Any) -> None:
        await reports(group, manager, 52)
        leadership.leader.worker_reports.fleet.health.mark_suspect("w-1", "gossip says so")
        reply = await ask(manager, request(3))
        assert "already marked suspect" in reply.response.denial_reason

    story(play, timeout_seconds=60.0)


def an_evicted_worker_that_had_saved_new_work_costs_no_attempt() -> None:
    async def play(group: ManagerGroup, manager: Any, leadership: Any) -> None:
        await reports(group, manager, 3, mark=77)
        workflow = leadership.ledger.book.job("j-1").workflows["encode"]
        await group.until(lambda: workflow.attempt == 2, 60)
        assert (workflow.spent, workflow.mark) == (0, 77)

    story(play)


STORIES: tuple[Callable[[], None], ...] = (
    a_deadline_is_told_when_it_is_near_and_not_before,
    a_grant_moves_the_deadline_and_the_answer_tells_it,
    a_used_up_series_is_told_no_more,
    a_suspect_worker_is_denied,
    an_evicted_worker_that_had_saved_new_work_costs_no_attempt,
)


@pytest.mark.parametrize("told", STORIES, ids=lambda told: told.__name__)
def test_a_leader_keeps_the_time_of_jobs(told: Callable[[], None]) -> None:
    told()


Patch = pytest.MonkeyPatch


def never_near(patch: Patch) -> None:
    patch.setattr(worker_reports, "near_deadlines", lambda book, report, now: ())


def near_all_the_time(patch: Patch) -> None:
    patch.setattr(earned_time, "near_since", lambda info: 0.0)


def near_for_a_second(patch: Patch) -> None:
    patch.setattr(extensions, "near_s", lambda info: 1.0)


def telling_of_used_up_series(patch: Patch) -> None:
    patch.setitem(JobBook.folds, extensions.ExtensionDenied, lambda book, event: None)


def forgetting_suspicion(patch: Patch) -> None:
    sound = extensions.why_denied

    def lenient(info: Any, command: Any) -> Any:
        return sound(info, msgspec.structs.replace(command, suspect=""))

    patch.setattr(extensions, "why_denied", lenient)


def granting_ten_times_as_much(patch: Patch) -> None:
    patch.setattr(extensions, "next_grant", lambda info: 10 * deadlines.next_grant(info))


def losing_what_was_saved(patch: Patch) -> None:
    patch.setattr(ReportedAttempts, "saved_by", lambda self, start: {})


MUTANTS: dict[Callable[[Patch], None], Callable[[], None]] = {
    never_near: a_deadline_is_told_when_it_is_near_and_not_before,
    near_all_the_time: a_deadline_is_told_when_it_is_near_and_not_before,
    near_for_a_second: a_deadline_is_told_when_it_is_near_and_not_before,
    telling_of_used_up_series: a_used_up_series_is_told_no_more,
    forgetting_suspicion: a_suspect_worker_is_denied,
    granting_ten_times_as_much: a_grant_moves_the_deadline_and_the_answer_tells_it,
    losing_what_was_saved: an_evicted_worker_that_had_saved_new_work_costs_no_attempt,
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_leader_that_breaks_a_rule_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError, TypeError)):
        MUTANTS[mutant]()

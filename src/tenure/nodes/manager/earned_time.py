"""The time that work has here: near deadlines of jobs and what is granted past those (decision 0355), how long an attempt may be silent, its end.

The end is estimated by what its worker reports and by what the journal has learned (decision 0440).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec

from tenure import bounds as b
from tenure.control.messages.events import ProgressLine
from tenure.control.messages.workers import AttemptReport, ExtendDeadline, ExtensionReply, NearDeadline, WorkerReport
from tenure.health.extension import Denial, HealthcheckExtensionResponse
from tenure.jobs import JobBook
from tenure.jobs.deadlines import deadline, ends_at, near_s
from tenure.jobs.eta import Eta, EtaWindow, estimate
from tenure.jobs.extensions import ExtendJob, ExtensionGranted, near_since
from tenure.jobs.learned_rates import usual
from tenure.jobs.model import JobInfo, JobSubmission
from tenure.jobs.settings import MOST_EXTENSIONS
from tenure.jobs.submission import derived_stuck
from tenure.nodes.fleet.fleet import Fleet, asked_with
from tenure.nodes.fleet.member import ReportedAttempts
from tenure.nodes.manager.ledger import JobLedger


def near_deadlines(book: JobBook, report: WorkerReport, now: float) -> tuple[NearDeadline, ...]:
    """Returns the jobs of a report whose deadlines are near and can be earned past. One whose series is used up was told so before."""
    found = []
    for job_id in dict.fromkeys(one.job_id for one in report.attempts):
        info = book.jobs.get(job_id)
        if info is not None and now >= near_since(info) and info.timeout_tracking.denied != Denial.MAXIMUM:
            left_s = max(0.0, ends_at(info) - now)
            found.append(NearDeadline(job_id=job_id, left_s=left_s, span_s=near_s(info)))
    return tuple(found)


async def extend_job(ledger: JobLedger, fleet: Fleet, ask: ExtendDeadline, now: Callable[[], float]) -> ExtensionReply:
    """Commits the decision on time for a job, and returns it. Raises `UnknownWorkerError`."""
    request, member = ask.request, fleet.asking(ask.request.worker_id, ask.incarnation)
    command = ExtendJob(
        by="leader",
        job_id=ask.job_id,
        worker=member.name,
        start=member.incarnation,
        counter=request.progress_counter or 0,
        since=ask.since,
        progress=request.current_progress,
        reason=request.reason,
        suspect=fleet.health.suspicion(member.name) or "",
        evidence=asked_with(request),
    )
    decision = await ledger.commit(command)
    info = ledger.book.jobs.get(ask.job_id)
    until = min(deadline(info.timeout_tracking), b.MOST_UNIX_S) if info is not None else 0.0
    left = MOST_EXTENSIONS - info.timeout_tracking.extension_count if info is not None else 0
    seconds = sum(one.seconds for one in decision.events if isinstance(one, ExtensionGranted))
    response = HealthcheckExtensionResponse(
        granted=seconds > 0,
        extension_seconds=seconds,
        new_deadline=until,
        remaining_extensions=left,
        denial_reason=decision.reason or None,
        warning=f"{seconds:g} s past its deadline; {left} extensions are left" if seconds else None,
    )
    return ExtensionReply(response=response, epoch=ledger.epoch, left_s=max(0.0, until - now()))


def patience(info: JobInfo, one: AttemptReport, book: JobBook) -> float:
    """Returns the seconds that an attempt may be silent beyond its job's stuck threshold: stall < stuck, also where only the worker knows
    the stall.

    A threshold that the submission or an operator asked for stands as it is; one that we derived becomes twice the stall (DESIGN.md, the ladder).
    """
    if not one.stall_s or chosen_stuck_s(info, book) is not None:
        return 0.0
    return max(0.0, 2 * one.stall_s - info.timeout_tracking.stuck_threshold)


def as_asked(info: JobInfo, book: JobBook) -> JobSubmission:
    """Returns the submission of a job for another one like it: a stuck threshold that was derived is left out, to be derived again."""
    submission = info.job.submission
    if chosen_stuck_s(info, book) is not None:
        return submission
    return msgspec.structs.replace(submission, stuck_threshold=None)


def chosen_stuck_s(info: JobInfo, book: JobBook) -> float | None:
    """Returns the stuck threshold that the submission or an operator asked for; None for one that was derived."""
    threshold = info.timeout_tracking.stuck_threshold
    if info.timeout_tracking.stuck_chosen or book.settings.stuck_is_explicit:
        return threshold
    # An earlier release did not record it: there, one that differs from what we would derive was asked for.
    return None if threshold == derived_stuck(info.job.submission, book.settings) else threshold


class LiveProgress:
    """Keeps how the fraction of each running workflow rises, for people who look. Part of a leader; nothing is decided by it."""

    def __init__(self, ledger: JobLedger, reported: ReportedAttempts, now: Callable[[], float]) -> None:
        self._ledger, self._reported, self._now = ledger, reported, now
        self._windows: dict[tuple[str, str], EtaWindow] = {}
        """Maps (job, workflow) to the fraction of its newest attempt over time."""

    def note(self, one: AttemptReport, now: float) -> None:
        """Notes the fraction that a worker reports of an attempt."""
        if one.fraction is None:
            return
        key, attempt = (one.job_id, one.workflow), (one.attempt, one.delivery)
        window = self._windows.get(key)
        if window is None or window.attempt != attempt:
            window = self._windows[key] = EtaWindow(attempt)
        window.look(now, one.fraction)

    def forget(self, info: JobInfo) -> None:
        """Drops what is known of a job that has ended."""
        for name in info.workflows:
            self._windows.pop((info.id, name), None)

    def eta(self, job_id: str, workflow: str, fraction: float | None) -> Eta | None:
        """Returns when a running workflow will be done; None where nobody can say."""
        book, now, window = self._ledger.book, self._now(), self._windows.get((job_id, workflow))
        info = book.jobs.get(job_id)
        known = info.workflows.get(workflow) if info is not None else None
        if known is None:
            return None
        expected = usual(book.state.rates, known.spec, known.worker)
        return estimate(expected, window, now, lasted_s=max(0.0, now - known.started_at), fraction=fraction)

    def lines(self, job_ids: list[str] | None, most: int) -> list[ProgressLine]:
        """Returns the newest progress of what runs, of some jobs or of all; at most so many."""
        return [
            ProgressLine(
                job_id=one.job_id,
                workflow=one.workflow,
                attempt=one.attempt,
                at=heard.at,
                worker=heard.report.worker,
                steps=one.steps,
                fraction=one.fraction,
                note=one.note,
                silent_s=one.silent_s,
                eta=self.eta(one.job_id, one.workflow, one.fraction),
            )
            for heard, one in islice(self._reported.running_of(job_ids), most)
        ]

"""Decides which directives of a leader a worker obeys, and when it asks the leader for more time (document 000). Pure: callers pass the time.

The worker asks when its healthcheck deadline nears: its work advances too slowly to move the deadline by itself, or is silent as it may be. The
first request needs no proof. A later one without progress is denied; after a denial the worker does not ask again until its work has moved.

It also asks when the deadline of a job nears that it runs, and the job advances here. Each of these requests needs proof, the first one, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from tenure.control.messages.workers import AttemptReport, ExtendDeadline, ExtensionReply, NearDeadline, WorkerDirective
from tenure.health.extension import ExtensionReason, HealthcheckExtensionRequest
from tenure.health.overload import OverloadState
from tenure.health.signals import RoutingDecision
from tenure.nodes.slot_runner import SlotsView

INTAKE: Mapping[RoutingDecision, int | None] = {
    RoutingDecision.ROUTE: None,
    RoutingDecision.INVESTIGATE: 1,
    RoutingDecision.DRAIN: 0,
    RoutingDecision.EVICT: 0,
    RoutingDecision.UNKNOWN: None,
}
"""Maps each verdict to the number of slots that may take new work; None: all of them."""


class Obedience:
    """Accepts the directives of the newest epoch that the worker has seen, and refuses those of older ones.

    `epoch` only grows. A deposed leader that does not know it yet answers under a lower epoch, so its orders have no effect.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.refused = 0

    def heard(self, directive: WorkerDirective) -> bool:
        """Returns False for a directive of a deposed leader: its epoch is below one that the worker has seen."""
        if directive.epoch < self.epoch:
            self.refused += 1
            return False
        self.epoch = directive.epoch
        return True


NEAR_SHARE = 1 / 3
"""A deadline is near when at most this share of the longest span that was ever left is left."""
LAST_WORD_S = 2.0
"""A job that has not advanced is asked for when so much is left at the latest. Two reports fit into it: with the third of the shortest span, a second, the
request could come after the end, and people would read no denial."""
PAUSE_S = 1.0
"""A pause of the whole process that lasts this long becomes the reason of the request."""


class Earning:
    """The deadline of one incarnation as the leader told it, and the requests for more time."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self.span = 0.0
        """The most seconds that were ever left, which is what a report with progress gives; 0 before the leader told any."""
        self._asked_at: float | None = None
        self._asked_steps, self._denied = 0, False
        self._pause_s = 0.0
        self.pace = Pace()
        self.jobs = JobEarning()

    def left(self, seconds: float, now: float) -> None:
        """Notes the seconds that the leader says are left; 0 where no deadline runs."""
        self._deadline = now + seconds if seconds > 0 else None
        self.span = max(self.span, seconds)

    def look(self, view: SlotsView, now: float) -> None:
        """Notes where the work stands."""
        self.pace.look(view.attempts, now)
        self.jobs.look(view.attempts)

    def paused(self, seconds: float) -> None:
        """Notes that this process woke `seconds` later than it asked to."""
        self._pause_s = max(self._pause_s, seconds)

    def request(
        self, worker: str, view: SlotsView, now: float, wall: float, overload: OverloadState
    ) -> HealthcheckExtensionRequest | None:
        """Returns the request to send now; None where the worker should not ask."""
        remaining = self.pace.remaining(view.attempts, now)
        if not view.attempts or self._deadline is None or self._deadline - now > self.span * NEAR_SHARE:
            return None
        if not self._may_ask(view, now):
            return None
        pause, self._pause_s = self._pause_s, 0.0
        if pause >= PAUSE_S:
            reason = ExtensionReason.GC_PAUSE
        elif overload in (OverloadState.STRESSED, OverloadState.OVERLOADED):
            reason = ExtensionReason.RESOURCE_CONTENTION
        else:
            reason = ExtensionReason.LONG_WORKFLOW
        return _request(worker, reason, view.attempts, view.steps, remaining, wall)

    def answered(self, reply: ExtensionReply, steps: int, now: float) -> None:
        self._asked_at, self._asked_steps, self._denied = now, steps, not reply.response.granted
        self.left(reply.left_s, now)

    def _may_ask(self, view: SlotsView, now: float) -> bool:
        """Returns True for the first request. Each one is journaled with its answer, so a later one needs new steps or a rest; after a denial, both."""
        if self._asked_at is None:
            return True
        moved, rested = view.steps > self._asked_steps, now - self._asked_at >= self.span * NEAR_SHARE
        return moved and rested if self._denied else moved or rested


def _request(
    worker: str,
    reason: ExtensionReason,
    attempts: Sequence[AttemptReport],
    counter: int,
    remaining_s: float | None,
    wall: float,
) -> HealthcheckExtensionRequest:
    return HealthcheckExtensionRequest(
        worker_id=worker,
        reason=reason,
        current_progress=fmean(one.fraction or 0.0 for one in attempts),
        # Only evidence for people. 0 where an attempt does not tell its progress.
        estimated_completion=wall + remaining_s if remaining_s is not None else 0.0,
        active_workflow_count=len(attempts),
        progress_counter=counter,
    )


class Pace:
    """Estimates when attempts end, from the fractions that they report."""

    def __init__(self) -> None:
        self._first_seen: dict[tuple[str, str, int, int], tuple[float, float]] = {}

    def look(self, attempts: Sequence[AttemptReport], now: float) -> None:
        """Notes where each attempt stands. It forgets those that have ended."""
        self._first_seen = {one.name: self._first_seen.get(one.name, (now, one.fraction or 0.0)) for one in attempts}

    def remaining(self, attempts: Sequence[AttemptReport], now: float) -> float | None:
        """Returns the seconds until the slowest attempt ends, at its pace since it was first seen; None where one attempt shows no progress."""
        longest = 0.0
        for one in attempts:
            since, first = self._first_seen.get(one.name, (now, one.fraction or 0.0))
            gained = (one.fraction or 0.0) - first
            if one.fraction is None or gained <= 0:
                return None
            longest = max(longest, (1 - one.fraction) * (now - since) / gained)
        return longest


def advanced(before: AttemptReport, now: AttemptReport) -> bool:
    """Returns True when an attempt advanced between two looks: it showed something new, or, where it need not, it beat."""
    return now.news > before.news or (not now.counts and now.steps > before.steps)


class JobEarning:
    """The progress of the jobs that run here, and the requests for time past their deadlines. It belongs to one incarnation."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, int, int], AttemptReport] = {}
        self._ticks = 0
        """Grows with each step of any job. A job's counter is the tick of its last step, so it never falls when an attempt ends and the next begins."""
        self._counters: dict[str, int] = {}
        self._since: dict[str, int] = {}
        """The counter of each job when its deadline came near, or at the last answer."""
        self._asked: set[str] = set()
        """The jobs whose present lack of progress the leader has been told of."""

    def look(self, attempts: Sequence[AttemptReport]) -> None:
        """Counts the steps since the last look. The first sight of an attempt is none."""
        for one in attempts:
            before = self._seen.get(one.name)
            if before is not None and advanced(before, one):
                self._ticks += 1
                self._counters[one.job_id] = self._ticks
                self._asked.discard(one.job_id)
        self._seen = {one.name: one for one in attempts}

    def request(self, near: NearDeadline, worker: str, pace: Pace, now: float, wall: float) -> ExtendDeadline | None:
        """Returns the request for a job whose deadline is near; None where the worker should not ask now.

        It asks as soon as the job has advanced. Once, shortly before the end, it asks without that: then people read why there was no grant.
        """
        job_id = near.job_id
        attempts = [one for one in self._seen.values() if one.job_id == job_id]
        counter = self._counters.setdefault(job_id, self._ticks)
        since = self._since.setdefault(job_id, counter)
        soon = near.left_s <= max(near.span_s * NEAR_SHARE, LAST_WORD_S)
        if not attempts or (counter <= since and (job_id in self._asked or not soon)):
            return None
        remaining = pace.remaining(attempts, now)
        asked = _request(worker, ExtensionReason.LONG_WORKFLOW, attempts, counter, remaining, wall)
        return ExtendDeadline(request=asked, job_id=job_id, since=since)

    def answered(self, job_id: str, counter: int) -> None:
        """Notes an answer: the next request needs a step after `counter`."""
        self._since[job_id] = counter
        self._asked.add(job_id)

    def keep_only(self, near: Collection[str]) -> None:
        """Forgets the jobs that no longer run here, and the requests for those whose deadlines were moved: they come near anew."""
        self._asked.intersection_update(near)
        running = {one.job_id for one in self._seen.values()}
        for job_id in [one for one in self._counters if one not in running]:
            del self._counters[job_id]
            self._since.pop(job_id, None)

"""What a gate still has to say, read off its state: so a successor says what its predecessor did not.

A submission until the datacenter has said anything; a decision until the datacenter is terminal. Both may be said any
number of times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tenure.jobs.gate_tracker import GateJobTracker, GateJobTrackingInfo
from tenure.jobs.messages import JobGlobalCancel, JobGlobalTimeout, JobStatusQuery
from tenure.jobs.model import JobSubmission
from tenure.jobs.rules import RULES, Rules
from tenure.jobs.settings import GateSettings
from tenure.jobs.states import JobState
from tenure.jobs.timers import Timers

GateMessage = JobSubmission | JobGlobalTimeout | JobGlobalCancel | JobStatusQuery


class OwedKind(StrEnum):
    """What a datacenter has not answered."""

    SUBMISSION = "submission"
    QUERY = "query"
    TIMEOUT = "timeout"
    CANCEL = "cancel"


_KINDS: dict[type[GateMessage], OwedKind] = {
    JobSubmission: OwedKind.SUBMISSION,
    JobStatusQuery: OwedKind.QUERY,
    JobGlobalTimeout: OwedKind.TIMEOUT,
    JobGlobalCancel: OwedKind.CANCEL,
}


class Owed(NamedTuple):
    """One message that a datacenter has not answered yet."""

    job_id: str
    datacenter: str
    message: GateMessage


def owed(tracker: GateJobTracker, info: GateJobTrackingInfo, rules: Rules = RULES) -> list[Owed]:
    """All that is still to be said about one job."""
    if info.state.terminal:
        return []
    if info.decided is not None:
        return [Owed(info.job_id, dc, decision_for(tracker, info, dc, rules)) for dc in info.running]
    return [Owed(info.job_id, dc, opening_for(tracker, info)) for dc in info.running if not info.dc_heard[dc]]


def decision_for(
    tracker: GateJobTracker, info: GateJobTrackingInfo, dc: str, rules: Rules = RULES
) -> JobGlobalTimeout | JobGlobalCancel:
    """The decision as that datacenter has to hear it: with the highest token seen from it, or none."""
    if info.decided is JobState.CANCELLED:
        return JobGlobalCancel(
            job_id=info.job_id,
            reason=info.decided_reason,
            cancelled_at=info.decided_at,
            gate_epoch=tracker.epoch,
        )
    token = rules.echoed_token(info.decided_from_reports, info.dc_fence_tokens[dc], info.timeout_fence_token)
    return JobGlobalTimeout(
        job_id=info.job_id,
        reason=info.decided_reason,
        timed_out_at=info.decided_at,
        fence_token=token,
        gate_epoch=tracker.epoch,
    )


def opening_for(tracker: GateJobTracker, info: GateJobTrackingInfo) -> JobSubmission | JobStatusQuery:
    if info.submission is None:  # rebuilt from another datacenter's report: we can only ask
        return JobStatusQuery(job_id=info.job_id, gate_epoch=tracker.epoch)
    return msgspec.structs.replace(
        info.submission,
        gate_epoch=tracker.epoch,
        target_datacenters=tuple(info.target_datacenters),
        global_submitted_at=info.submitted_at,
    )


class Resends:
    """When to say what again: at once when it is new, then after 1, 2, 4, … 30 s. A gate's own memory, not state."""

    def __init__(self, settings: GateSettings, rules: Rules = RULES) -> None:
        self.settings = settings
        self.rules = rules
        self._timers: Timers[tuple[str, str]] = Timers()
        self._last: dict[tuple[str, str], tuple[GateMessage, float]] = {}
        self._owed: defaultdict[tuple[str, type[GateMessage]], int] = defaultdict(int)
        self._passed_on: Counter[str] = Counter()

    def refresh(self, tracker: GateJobTracker, job_id: str, now: float) -> None:
        """The job has changed: what is owed, and to whom, may have changed with it."""
        info = tracker.jobs.get(job_id)
        wanted = {item.datacenter: item.message for item in owed(tracker, info, self.rules)} if info else {}
        for dc in info.target_datacenters if info else [key[1] for key in self._last if key[0] == job_id]:
            key = (job_id, dc)
            message = wanted.get(dc)
            known = self._last.get(key)
            if known is not None:
                if known[0] == message:
                    continue
                self._owed[dc, type(known[0])] -= 1
                if type(known[0]) is JobSubmission:
                    self._passed_on[dc] += 1
            if message is None:
                self._last.pop(key, None)
                self._timers.cancel(key)
            else:
                self._owed[dc, type(message)] += 1
                self._last[key] = (message, self.settings.resend_first)
                self._timers.set(key, now)

    @property
    def counts(self) -> Counter[tuple[str, OwedKind]]:
        """How much each datacenter has not answered yet. It costs the same however much that is."""
        return Counter({(dc, _KINDS[kind]): count for (dc, kind), count in self._owed.items()})

    def take_passed_on(self) -> Counter[str]:
        """How many submissions each datacenter answered, or were withdrawn, since this was asked last."""
        taken, self._passed_on = self._passed_on, Counter()
        return taken

    def hurry(self, datacenter: str, now: float) -> None:
        """A datacenter is back: what it did not answer is said again at once, and then as if it were new."""
        for key, (message, _) in self._last.items():
            if key[1] == datacenter:
                self._last[key] = (message, self.settings.resend_first)
                self._timers.set(key, now)

    def next_due(self) -> float:
        return self._timers.next_due()

    def due(self, now: float) -> list[Owed]:
        """What to send now; each comes again later, unless `refresh` finds that it is no longer owed."""
        found = []
        for key in self._timers.pop_due(now):
            message, rest = self._last[key]
            found.append(Owed(key[0], key[1], message))
            self._last[key] = (message, min(self.settings.resend_most, rest * 2))
            self._timers.set(key, now + rest)
        return found

"""Derives the messages that a gate still has to send from its state, so that a successor sends what its predecessor did not.

The gate sends a submission until the datacenter has answered, and a decision until the datacenter is terminal. It is safe to
send either any number of times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tenure.backoff import delay_after
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.messages import JobGlobalCancel, JobGlobalTimeout, JobStatusQuery
from tenure.jobs.model import GateJobTrackingInfo, JobSubmission
from tenure.jobs.rules import RULES, Rules
from tenure.jobs.settings import GateSettings
from tenure.jobs.states import JobState
from tenure.jobs.timers import Timers

GateMessage = JobSubmission | JobGlobalTimeout | JobGlobalCancel | JobStatusQuery


class OwedKind(StrEnum):
    """The kind of a message that a datacenter has not answered."""

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
    """Returns the messages that the gate still has to send about one job."""
    if info.state.terminal:
        return []
    if info.decided is not None:
        return [Owed(info.job_id, dc, decision_for(tracker, info, dc, rules)) for dc in info.running]
    return [Owed(info.job_id, dc, opening_for(tracker, info)) for dc in info.running if not info.dc_heard[dc]]


def decision_for(
    tracker: GateJobTracker, info: GateJobTrackingInfo, dc: str, rules: Rules = RULES
) -> JobGlobalTimeout | JobGlobalCancel:
    """Returns the decision as the gate sends it to that datacenter: with the highest token seen from it, or none."""
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
    if info.submission is None:  # rebuilt from another datacenter's report: the gate can only ask
        return JobStatusQuery(job_id=info.job_id, gate_epoch=tracker.epoch)
    return msgspec.structs.replace(
        info.submission,
        gate_epoch=tracker.epoch,
        target_datacenters=tuple(info.target_datacenters),
        global_submitted_at=info.submitted_at,
    )


class Resends:
    """Decides when to send each owed message: at once when it is new, then after 1, 2, 4, … 30 s. It is the gate's own memory, not state."""

    def __init__(self, settings: GateSettings, rules: Rules = RULES) -> None:
        self.settings = settings
        self.rules = rules
        self._timers: Timers[tuple[str, str]] = Timers()
        self._last: dict[tuple[str, str], tuple[GateMessage, int]] = {}
        """Maps job and datacenter to the message that is owed, and how often it was sent since the pauses last began."""
        self._owed: defaultdict[tuple[str, type[GateMessage]], int] = defaultdict(int)
        self._passed_on: Counter[str] = Counter()

    def refresh(self, tracker: GateJobTracker, job_id: str, now: float) -> None:
        """Recomputes the messages that are owed for a job that has changed. A new or changed message is due at once."""
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
                self._last[key] = (message, 0)
                self._timers.set(key, now)

    @property
    def counts(self) -> Counter[tuple[str, OwedKind]]:
        """Counts the messages that each datacenter has not answered yet. Its cost does not depend on their number."""
        return Counter({(dc, _KINDS[kind]): count for (dc, kind), count in self._owed.items()})

    def take_passed_on(self) -> Counter[str]:
        """Returns the number of submissions that each datacenter answered, or that were withdrawn, since the last call."""
        taken, self._passed_on = self._passed_on, Counter()
        return taken

    def hurry(self, datacenter: str, now: float) -> None:
        """Makes every message that a datacenter has not answered due at once, because it is back. The pauses start again at the shortest."""
        for key, (message, _) in self._last.items():
            if key[1] == datacenter:
                self._last[key] = (message, 0)
                self._timers.set(key, now)

    def next_due(self) -> float:
        return self._timers.next_due()

    def due(self, now: float) -> list[Owed]:
        """Returns the messages to send now. Each comes again later, unless `refresh` finds that it is no longer owed."""
        found = []
        for key in self._timers.pop_due(now):
            message, sent = self._last[key]
            found.append(Owed(key[0], key[1], message))
            self._last[key] = (message, sent + 1)
            rest = delay_after(sent + 1, first_s=self.settings.resend_first, most_s=self.settings.resend_most)
            self._timers.set(key, now + rest)
        return found

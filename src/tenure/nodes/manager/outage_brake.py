"""The shell around the rules of outages: hears what attempts wait for, commits what is decided, and says what each worker has to hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tenure.control.messages.nodes import HoldName, ReleaseName
from tenure.control.messages.wire import Handlers, Reply
from tenure.control.messages.workers import AttemptReport, HeldName, WorkerReport
from tenure.health.outage import AttemptKey, DependencyWatch, OutageSettings, WaitingAttempt
from tenure.jobs import Decision
from tenure.jobs.attempt_results import AttemptFailed
from tenure.jobs.decisions import Command, Event
from tenure.jobs.outages import (
    EndOutage,
    HoldDependency,
    OutageDeclared,
    OutageEnded,
    OutageMoved,
    hold_of,
    outage_commands,
)
from tenure.nodes.manager.ledger import JobLedger

OUTAGE_EVENTS: frozenset[type[Event]] = frozenset({AttemptFailed, OutageDeclared, OutageMoved, OutageEnded})
"""The events that `OutageBrake.followed` heeds."""


class OutageBrake:
    """Part of a leader, and gone with its term: what is held is in the book, and one report of each worker says the rest."""

    def __init__(self, ledger: JobLedger, settings: OutageSettings | None = None) -> None:
        self._ledger, self.settings = ledger, settings or OutageSettings()
        self._watch = DependencyWatch(self.settings)
        self._held_at: dict[AttemptKey, float] = {}
        """When each attempt was last heard to wait for something that is down. Its clocks start anew there."""

    def heard(self, report: WorkerReport, now: float) -> None:
        """Takes a report."""
        self._held_at |= {one.name[:3]: now for one in report.attempts if self.is_held(one.waits_on)}
        self._watch.heard(
            report.worker,
            [
                WaitingAttempt(
                    key=one.name[:3],
                    name=one.waits_on,
                    steps=one.steps,
                    failures=one.failures,
                    waited_s=one.waited_s,
                    allowed_s=one.allowed_silence_s,
                    held=one.held,
                )
                for one in report.attempts
            ],
            now,
        )

    def forget(self, worker: str) -> None:
        self._watch.forget(worker)

    def followed(self, decision: Decision) -> bool:
        """Takes a decision that is durable. Returns True when what is held has changed, so that every worker has to hear of it now."""
        changed = False
        for event in decision.events:
            if isinstance(event, AttemptFailed) and event.waits_on:
                key = (event.job_id, event.workflow, event.attempt)
                self._watch.failed(event.waits_on, event.worker, key, event.at)
            elif isinstance(event, OutageDeclared | OutageMoved | OutageEnded):
                self._watch.begin(event.name, event.at)
                changed = True
        return changed

    def is_held(self, name: str) -> bool:
        return bool(name) and name in self._ledger.book.state.outages

    def silent_s(self, one: AttemptReport, now: float) -> float:
        """Returns how long an attempt has been silent for the stuck clock: since the hold, where it was held and has not beaten since.

        Without that, a job that comes out of a long hold would be stuck at once, before its attempt has had its stall threshold.
        """
        held_at = self._held_at.get(one.name[:3])
        return one.silent_s if held_at is None else min(one.silent_s, now - held_at)

    def holds(self, worker: str, now: float) -> tuple[HeldName, ...]:
        """Returns the word to one worker about everything that is down."""
        found = []
        for name, record in self._ledger.book.state.outages.items():
            canaries, released = hold_of(record, worker, now)
            found.append(HeldName(name=name, canaries=canaries, released=released))
        return tuple(found)

    async def look(self, now: float) -> None:
        """Declares what is down, and takes each outage one step further."""
        # After so long a time the silence is beyond every stall threshold, or the attempt has beaten or ended.
        self._held_at = {key: at for key, at in self._held_at.items() if now - at < self.settings.most_s}
        for command in outage_commands(self._ledger.book.state.outages, self._watch, now):
            await self._ledger.commit(command)


class OutageHandlers:
    """Part of a manager: an operator says that something is down, or back."""

    def __init__(self, write: Callable[[Command], Awaitable[Reply]]) -> None:
        self._write = write
        self.handlers: Handlers = {HoldName: self._hold, ReleaseName: self._release}

    async def _hold(self, request: HoldName) -> Reply:
        reason, by = request.reason or "an operator says so", request.by or "operator"
        given = HoldDependency(name=request.name, most_s=request.most_s, rate=request.rate, reason=reason, by=by)
        return await self._write(given)

    async def _release(self, request: ReleaseName) -> Reply:
        reason = request.reason or "an operator says that it is back"
        return await self._write(EndOutage(name=request.name, reason=reason, by=request.by))

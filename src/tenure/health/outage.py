"""Decides whether what many attempts wait for is down (decision 0366). Pure: it is given reports and failures, and told the time.

An attempt names what it waits for. One that waits for too long, or whose calls fail, may hang by itself. When most of those that wait for one
name are in trouble at once, on several workers, it is that name which is down: the fault is not theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from tenure import bounds as b
from tenure.errors import LimitError


class OutageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The floor of evidence for an outage, and how it is probed and ended."""

    enabled: bool = True
    least_waiters: int = 3
    least_workers: int = 2
    share: float = 0.5
    """More than this part of those that wait must be in trouble."""
    window_s: b.PositiveSeconds = 60.0
    """A failure counts for so long."""
    late_share: float = 0.5
    """A silent waiter is in trouble when it has used up this part of the silence that it is allowed."""
    probe_after_s: b.PositiveSeconds = 10.0
    """From the hold to the first canaries: one attempt of each worker that may try."""
    rate: float = 5.0
    """The most attempts a second, over all workers, that are released once a canary succeeded."""
    most_s: b.PositiveSeconds = 6 * 3_600.0
    """The longest hold. After it the clocks run again, whatever is down."""

    def __post_init__(self) -> None:
        if self.least_waiters < 2 or self.least_workers < 1:
            raise LimitError(
                "least_waiters, least_workers", (self.least_waiters, self.least_workers), "2 and 1, or more"
            )
        if not (0 <= self.share < 1 and 0 < self.late_share <= 1 and self.rate > 0):
            raise LimitError("share, late_share, rate", (self.share, self.late_share, self.rate), "parts of 1; above 0")


AttemptKey = tuple[str, str, int]
"""(job, workflow, attempt)."""


class WaitingAttempt(NamedTuple):
    """One attempt that waits for something, as its worker reports it."""

    key: AttemptKey
    name: str
    steps: int
    failures: int
    """Calls in a row that failed."""
    waited_s: float
    """The seconds since its last beat."""
    allowed_s: float
    """The seconds for which it may yet be silent."""
    held: bool = False
    """It may not try now."""


class OutageEvidence(NamedTuple):
    """The evidence that something is down."""

    waiters: int
    in_trouble: int
    workers: int

    def evidence(self) -> dict[str, Any]:
        return self._asdict()


class Met:
    """Counts what calls to one name met since the last decision about it."""

    def __init__(self) -> None:
        self.successes = self.failures = 0
        self.streak = 0
        """Successes since the last failure."""

    def note(self, *, success: bool) -> None:
        self.successes += success
        self.failures += not success
        self.streak = self.streak + 1 if success else 0


class DependencyWatch:
    """Follows everything that attempts wait for, by name. It is the memory of one leader; one report of each worker fills it again."""

    def __init__(self, settings: OutageSettings | None = None) -> None:
        self.settings = settings or OutageSettings()
        self._waiting: dict[str, dict[AttemptKey, WaitingAttempt]] = {}
        """The waiters of each worker."""
        self._failed: deque[tuple[float, str, str, AttemptKey]] = deque()
        self._failed_at: dict[str, dict[AttemptKey, float]] = {}
        """When the count of failures of each waiter last rose, by worker."""
        self._met: dict[str, Met] = {}
        self._since: dict[str, float] = {}
        """When the last decision about each name was made. Waiting before that says nothing more."""
        self.workers: set[str] = set()
        """Everybody that reports."""

    def heard(self, worker: str, attempts: Iterable[WaitingAttempt], now: float) -> None:
        """Takes all attempts of one worker, and compares them with those of its last report. One that waits for nothing has no name."""
        self.workers.add(worker)
        told = {one.key: one for one in attempts}
        before, failed_at = self._waiting.get(worker, {}), self._failed_at.get(worker, {})
        for key, new in told.items():
            old = before.get(key)
            if new.name and new.failures > (old.failures if old is not None else 0):
                self.met(new.name).note(success=False)
                failed_at[key] = now
            elif old is not None and new.failures == 0 and new.steps > old.steps:
                self.met(old.name).note(success=True)  # its call came through
        # An attempt that is not told of any more has ended: `failed` tells of a failure.
        self._keep(self._waiting, worker, {key: one for key, one in told.items() if one.name})
        self._keep(self._failed_at, worker, {key: at for key, at in failed_at.items() if key in told})

    @staticmethod
    def _keep(all_of: dict[str, dict[AttemptKey, Any]], worker: str, some: dict[AttemptKey, Any]) -> None:
        if some:
            all_of[worker] = some
        else:
            all_of.pop(worker, None)

    def met(self, name: str) -> Met:
        return self._met.setdefault(name, Met())

    def failed(self, name: str, worker: str, key: AttemptKey, now: float) -> None:
        """Notes an attempt that ended because a call to `name` failed."""
        self._failed.append((now, name, worker, key))
        self.met(name).note(success=False)

    def forget(self, worker: str) -> None:
        self.workers.discard(worker)
        self._waiting.pop(worker, None)
        self._failed_at.pop(worker, None)

    def begin(self, name: str, now: float) -> None:
        """Counts anew what those that wait for `name` meet: what they met before led to a decision that was just made."""
        self._met[name], self._since[name] = Met(), now
        self._failed = deque(one for one in self._failed if one[1] != name)
        for worker, waiting in self._waiting.items():
            for key, one in waiting.items():
                if one.name == name:
                    self._failed_at.get(worker, {}).pop(key, None)

    def waiters(self, name: str) -> dict[str, list[WaitingAttempt]]:
        """Returns those that wait for `name`, by worker."""
        found = {
            worker: [one for one in waiting.values() if one.name == name] for worker, waiting in self._waiting.items()
        }
        return {worker: some for worker, some in found.items() if some}

    def down(self, now: float) -> dict[str, OutageEvidence]:
        """Returns each name for which most of those that wait for it are in trouble, on enough workers."""
        while self._failed and self._failed[0][0] < now - self.settings.window_s:
            self._failed.popleft()
        if not self.settings.enabled:
            return {}
        every: dict[str, dict[AttemptKey, tuple[str, bool]]] = {}
        for _, name, worker, key in self._failed:
            every.setdefault(name, {})[key] = (worker, True)
        for worker, waiting in self._waiting.items():
            for one in waiting.values():
                every.setdefault(one.name, {})[one.key] = (worker, self._in_trouble(worker, one, now))
        return {name: trouble for name, all_of in every.items() if (trouble := self._judge(all_of)) is not None}

    def _in_trouble(self, worker: str, one: WaitingAttempt, now: float) -> bool:
        failed_at = self._failed_at.get(worker, {}).get(one.key)
        waited = min(one.waited_s, now - self._since.get(one.name, 0.0))
        allowed = waited + one.allowed_s
        late = allowed > 0 and waited >= self.settings.late_share * allowed
        return late or (failed_at is not None and now - failed_at < self.settings.window_s)

    def _judge(self, waiting: dict[AttemptKey, tuple[str, bool]]) -> OutageEvidence | None:
        in_trouble = [worker for worker, troubled in waiting.values() if troubled]
        found = OutageEvidence(len(waiting), len(in_trouble), len(set(in_trouble)))
        enough = found.in_trouble >= self.settings.least_waiters and found.workers >= self.settings.least_workers
        return found if enough and found.in_trouble > self.settings.share * found.waiters else None

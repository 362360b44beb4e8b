"""Messages between workers and the leader.

A worker's report is the answer to a standing probe: the whole state, so that a lost one is made good by the next. The leader's directive is
the whole desired state, never a change, and carries the epoch: a lower one than was heard before is refused.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tenure import bounds as b
from tenure.control.messages.wire import Reply, Request
from tenure.health.extension import HealthcheckExtensionRequest, HealthcheckExtensionResponse
from tenure.health.signals import RoutingDecision


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that a worker runs, as its board shows it."""

    job_id: b.JobId
    workflow: b.AnyName
    attempt: b.Count
    delivery: b.Count
    steps: b.StepCount
    fraction: b.Fraction | None = None
    silent_s: b.ElapsedSeconds = 0.0
    """Since its last beat; 0 during a silence that it declared."""
    stall_s: b.ElapsedSeconds = 0.0
    """The silence after which its own worker ends it."""
    note: b.Note = ""
    lease_s: b.ElapsedSeconds = 0.0
    """Seconds left of its lease by the worker's own clock; 0 where they are not known."""

    @property
    def name(self) -> tuple[str, str, int, int]:
        return self.job_id, self.workflow, self.attempt, self.delivery


class WorkerReport(Request, frozen=True, kw_only=True, tag="report"):
    """Everything that a worker runs for managers, and how it is. Leader only.

    With `wait_s`, the answer is held back until the directive changes: so a cancel or a verdict reaches a worker at once.
    """

    worker: b.WorkerName
    """Its name, which outlives a restart: exclude lists and people use it. The incarnation where it has no other."""
    incarnation: b.IncarnationId = ""
    """Each start of a worker, and each return after an eviction, has its own; the name where it is empty."""
    attempts: Annotated[tuple[AttemptReport, ...], b.items(0, 10_000)] = ()
    slots: b.Count = 0
    free: b.Count = 0
    """Slots that could take work now."""
    accepting: bool = True
    """False while it drains, or cannot serve its modules."""
    lanes: Annotated[tuple[b.MailboxName, ...], b.items(0, 1_000)] = ()
    """The mailboxes that it serves: `queue.pN`."""
    completed: b.Count = 0
    """Attempts that this incarnation settled with a result: it only grows."""
    failed: b.Count = 0
    steps: b.StepCount = 0
    """The sum of all its attempts' counters since this incarnation began: it never falls."""
    overload: b.ShortWord = ""
    """Its own `HybridOverloadDetector`'s state; empty where it has none."""
    version: b.VersionName = ""
    wall: b.UnixTime = 0.0
    """Its wall clock, so that the skew can be shown; nothing is decided by it."""
    number: b.Count = 0
    """Grows with each report of an incarnation: one that was overtaken on its way says nothing new."""
    verdict: RoutingDecision | None = None
    """The directive that the worker acts under; None before it got any. The leader answers a held report at once where another one is wanted."""
    leaving: bool = False
    """Its last word: it was told to stop, and runs nothing any more."""
    wait_s: b.WaitSeconds = 0.0

    @property
    def start(self) -> str:
        return self.incarnation or self.worker


class ExtendDeadline(Request, frozen=True, kw_only=True, tag="extend"):
    """A worker asks for time beyond its healthcheck deadline (document 000). Leader only."""

    request: HealthcheckExtensionRequest
    incarnation: b.IncarnationId = ""


class ExtensionReply(Reply, frozen=True, kw_only=True, tag="extension"):
    """Granted or denied; `response.new_deadline` is Unix time, `left_s` the same without a clock."""

    response: HealthcheckExtensionResponse
    epoch: int
    left_s: float


class Unwanted(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that is to be stopped, and why."""

    job_id: str
    workflow: str
    attempt: int
    reason: str


class WorkerDirective(Reply, frozen=True, kw_only=True, tag="directive"):
    """The whole state that the leader wants of a worker."""

    epoch: int
    cancels: tuple[Unwanted, ...] = ()
    verdict: RoutingDecision = RoutingDecision.ROUTE
    """`route`: take work; `investigate`: one slot at a time; `drain`: none; `evict`: stop everything, and come back as a new incarnation."""
    reason: str = ""
    left_s: float = 0.0
    """Seconds until its healthcheck deadline, unless it shows progress or earns more; 0 where none runs."""
    incarnation: str = ""
    """Whom it is for: one that is not for the present incarnation is only about attempts."""
    peers: int = 0
    """Other workers that are able to do what this one does: while there are none, it declines nothing."""

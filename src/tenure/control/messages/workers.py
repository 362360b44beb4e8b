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
from tenure.jobs.catalogue import Served


class Unwanted(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that is to be stopped, and why."""

    job_id: str
    workflow: str
    attempt: int
    reason: str
    generation: int = 0
    """With `delivery`, the fence of the delivery that was reported: one that the worker has claimed since is not meant. 0 from a leader of an earlier release."""
    delivery: int = 0


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
    quiet_s: b.ElapsedSeconds | None = None
    """For how long it may yet be silent: the rest of a silence that it declared and of its stall threshold. A worker of the release before sends none."""
    note: b.Note = ""
    exposed: b.Exposed = ""
    """The values that it shows (`ctx.expose`), as JSON."""
    lease_s: b.ElapsedSeconds = 0.0
    """Seconds left of its lease by the worker's own clock; 0 where they are not known."""
    news: b.StepCount = 0
    """The new things that it has shown (decision 0316)."""
    counts: bool = False
    """True while only new things are progress for its job's deadline: its work counts, and has more to show. Else its beats are."""
    mark: b.StepCount = 0
    """Names the checkpoint that it has saved; 0 for none."""
    waits_on: b.AnyNameOrNone = ""
    """The name of what it waits for, where it said so."""
    waited_s: b.ElapsedSeconds = 0.0
    """While it waits for something that it named: since its last beat, also during a silence that it declared."""
    failures: b.Count = 0
    """Calls in a row that failed, of those that it named."""
    held: bool = False
    """True when it may not try now, because it waits for something that is down."""
    generation: b.Count = 0
    """The generation of its message; 0 from a worker of an earlier release. A report about one that was suspended meanwhile does not count."""
    unproven: bool = False
    """It has shown nothing but beats, and its author did not declare that beats are its proof."""

    @property
    def name(self) -> tuple[str, str, int, int]:
        return self.job_id, self.workflow, self.attempt, self.delivery

    def unwanted(self, reason: str) -> Unwanted:
        """Returns the wish that this very delivery be stopped."""
        return Unwanted(
            job_id=self.job_id,
            workflow=self.workflow,
            attempt=self.attempt,
            reason=reason,
            generation=self.generation,
            delivery=self.delivery,
        )

    @property
    def allowed_silence_s(self) -> float:
        """The seconds for which it may yet be silent. Silence keeps its lease and its worker, and proves nothing (decision 0306)."""
        return self.quiet_s if self.quiet_s is not None else max(0.0, self.stall_s - self.silent_s)


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
    serves: b.ShortWord | None = None
    """The digest of what it serves (`jobs.catalogue.offer_digest`); empty while its slots are starting. A worker of the first release sends none."""
    workflows: Served = ()
    """The workflows that it serves. It may leave them out once a directive has named the digest."""

    @property
    def start(self) -> str:
        return self.incarnation or self.worker


class ExtendDeadline(Request, frozen=True, kw_only=True, tag="extend"):
    """A worker asks for time beyond its healthcheck deadline (document 000), or beyond the deadline of a job that it runs. Leader only."""

    request: HealthcheckExtensionRequest
    incarnation: b.IncarnationId = ""
    job_id: b.JobIdOrNone = ""
    """The job whose deadline is near: then the request has the progress of this job alone. Empty: it is about the worker's own deadline."""
    since: b.StepCount = 0
    """The job's progress counter when its deadline came near, or at the last answer."""


class ExtensionReply(Reply, frozen=True, kw_only=True, tag="extension"):
    """Granted or denied; `response.new_deadline` is Unix time, `left_s` the same without a clock. Both are the job's where it was about a job."""

    response: HealthcheckExtensionResponse
    epoch: int
    left_s: float


class HeldName(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is down. The clocks of attempts that wait for it stand still; of those, some may try."""

    name: str
    canaries: int = 0
    """The number of attempts that may try at a time."""
    released: int = 0
    """The number of attempts that were released, in all since the release began."""


class NearDeadline(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose deadline is near and can be earned past."""

    job_id: str
    left_s: float
    span_s: float
    """The seconds for which a deadline is near before it ends."""


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
    serves: str | None = None
    """The digest of what this incarnation has registered."""
    near: tuple[NearDeadline, ...] = ()
    """The jobs that run there and whose deadlines are near: the worker asks for more time where they advance."""
    holds: tuple[HeldName, ...] = ()
    """Everything that is down, as far as the leader knows."""
    peers: int = 0
    """Other workers that are able to do what this one does: while there are none, it declines nothing."""

"""Work on its way: the messages between senders and slots, one delivery as a slot sees it, and the reasons to end an attempt.

Attempts and their contexts use `WorkDelivery` and nothing else of an engine. In a slot process it is a `ChannelDelivery`
(`work.slots.slot_channel`), which asks the supervisor; where the work runs beside its engine, it is an `EngineDelivery`.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tenure import bounds as b
from tenure.attempt_data import AttemptSilence, HandedResult, Signal, WaitsFor
from tenure.backoff import Retry
from tenure.beat.attempt_history import BeatHistory
from tenure.beat.record import BeatReading, Occupant
from tenure.clock import Clock
from tenure.engines.contracts import Fence, Message, Ticket

if TYPE_CHECKING:
    from tenure.work.job_submission import JobCourier
    from tenure.work.settler import Settler


T = TypeVar("T")


class WorkItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a message: one workflow of one job, to be run once."""

    workflow: str
    args: dict[str, Any] = {}
    version: str | None = None
    job_id: str = ""
    workflow_id: str = ""
    attempt: int = 0
    """The leader's attempt number; 0 where no leader counts, and the delivery count is the attempt."""
    timeout_s: float | None = None
    """Overrides the workflow's own timeout for one attempt."""
    stall_s: float | None = None
    """Overrides the workflow's own stall: the longest silence between its beats."""
    learned_s: float | None = None
    """A learned threshold, which holds where it is shorter than the stall that is set."""
    stuck_s: float | None = None
    """The seconds that it may beat without anything new; None: derived from its stall."""
    excluded: tuple[str, ...] = ()
    """Workers on which an earlier attempt failed. They leave the work to others while there are any."""
    trace: str = ""
    """The W3C traceparent of its submission; empty without tracing."""
    tries: int = 0
    """The attempts that the leader still allows for this message. 0 leaves the limit to the workflow."""
    managed: bool = False
    """True when a leader decides on retries: then a failure is a reply, not a nack."""
    results: dict[str, HandedResult] = {}
    """The outcomes of the workflows that it comes after, by their names."""
    woken: str = ""
    """Names the wait whose time is over, for work that was suspended."""
    woken_before: bool = False
    """True when it was suspended before: its steps are also in the store."""
    signals: tuple[Signal, ...] = ()
    """The signals that its job has got so far."""
    undo_of: str = ""
    """The ended job whose compensations this work runs, in place of the workflow's function; empty for all other work."""
    args_at: str = ""  # the key of its large arguments in the store; in `args` a mark stands for each of them

    def stall_under(self, set_s: float) -> tuple[float, bool]:
        """Returns the stall threshold that holds, and True where it is a learned one. That holds only where it is shorter than the set one."""
        stall_s = self.stall_s or set_s
        return (self.learned_s, True) if self.learned_s is not None and self.learned_s < stall_s else (stall_s, False)


class WorkHead(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `WorkItem` that its supervisor reads. The rest, the arguments above all, it passes on as it came."""

    workflow: str
    version: str | None = None
    job_id: str = ""
    workflow_id: str = ""
    attempt: int = 0
    excluded: tuple[str, ...] = ()
    managed: bool = False
    undo_of: str = ""

    @property
    def compensated_job(self) -> str:
        """The job whose compensations this work registers, or runs."""
        return self.undo_of or self.job_id


class Cause(StrEnum):
    """Why an attempt did not end with a result."""

    EXCEPTION = "exception"
    UNKNOWN_WORKFLOW = "unknown_workflow"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_RESULT = "bad_result"
    STALL = "stall"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    DRAINED = "drained"
    EXITED = "exited"
    KILLED = "killed"
    MEMORY = "memory"
    UNSETTLED = "unsettled"  # it ended, and its outcome could not be handed over
    WORKER_DIED = "worker_died"  # its whole worker died while it ran
    BAD_MESSAGE = "bad_message"  # the message is nothing that a slot can take
    INTERNAL = "internal"  # Tenure failed on it


RETRY_IS_USELESS = frozenset(
    {Cause.UNKNOWN_WORKFLOW, Cause.BAD_ARGUMENTS, Cause.BAD_RESULT, Cause.BAD_MESSAGE, Cause.CANCELLED}
)
"""Causes after which another attempt would end in the same way."""


MARK_BITS = 32
MAX_REASON_CHARS = 4_000
MAX_EVIDENCE_CHARS = 20_000
"""The most characters of one piece of evidence."""


class WorkFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of an attempt: a cause, a sentence, and the evidence that was taken.

    Both hold text that user code wrote. It is cut, and made writable, so that every failure can be handed over.
    """

    cause: Cause
    reason: str
    evidence: dict[str, str] = {}
    waits_on: b.AnyNameOrNone = ""
    """The name of what it failed on, where the work named it."""
    final: bool = False
    """True when the work, or its function's rules, said that another attempt cannot help."""
    rest_s: b.Seconds | None = None
    """The rest that the work asked for before the next attempt; None leaves it to the retry policy."""
    decision: b.Note = ""
    """A sentence on who decided that."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "reason", _writable(self.reason, MAX_REASON_CHARS))
        if self.evidence:
            kept = {name: _writable(text, MAX_EVIDENCE_CHARS) for name, text in self.evidence.items()}
            msgspec.structs.force_setattr(self, "evidence", kept)

    @property
    def retryable(self) -> bool:
        return self.cause not in RETRY_IS_USELESS and not self.final

    def after_beats(self, history: BeatHistory, occupant: Occupant, reading: BeatReading, clock: Clock) -> WorkFailure:
        """Returns the failure with what the attempt showed before: how its beats came, how long ago the last one was, and its last note."""
        if self.cause in (Cause.CANCELLED, Cause.DRAINED):
            return self  # somebody else ended it: nothing about its beats explains that
        age_s = clock.boottime() - occupant.started_at if occupant.started_at else 0.0
        shown = {
            "beats": msgspec.json.encode(history.end(age_s, reading.steps)).decode(),
            "silent_s": f"{max(0.0, clock.monotonic() - reading.beat_at):.1f}",
        }
        if occupant.note:
            shown["note"] = occupant.note
        return msgspec.structs.replace(self, evidence={**shown, **self.evidence})


def _writable(text: str, most: int) -> str:
    """Returns the text without what JSON cannot hold, and at most so long."""
    if len(text) > most:
        note = f" ... ({len(text):,} characters)"
        text = text[: most - len(note)] + note
    return text if text.isascii() else text.encode(errors="replace").decode()


class WorkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The reply: what became of one attempt."""

    job_id: b.JobId
    workflow_id: b.AnyName
    workflow: b.AnyName
    attempt: b.Count
    fence: tuple[b.Count, b.Count]
    worker: b.AnyNameOrNone
    result: msgspec.Raw = msgspec.Raw(b"null")
    failure: WorkFailure | None = None
    beats: b.StepCount = 0
    seconds: b.ElapsedSeconds = 0.0
    redelivered: b.Count = 0
    """The earlier starts of this message that ended without an outcome: they count as attempts."""
    mark: b.StepCount | None = None
    """Names the checkpoint that is saved now: another one is new saved work, which earns retries. None: not known."""
    stored: bool = False
    """True when the result is in the engine's store, under the key of its attempt (`values.result_key`), and not here."""

    suspended: WaitsFor | None = None
    """Set when the attempt ended because its work waits."""
    version: b.AnyNameOrNone = ""
    """The version of the workflow that ran, where it is suspended."""
    exposed: b.Exposed = ""
    """The values that it showed (`ctx.expose`), as JSON."""
    silence: AttemptSilence | None = None
    """The silences between its proofs; None where it ran for less than a second, or nobody measured it."""
    undoes: bool | None = None
    """True when it registered a compensation, or found one; None where the attempt could not say: it was killed."""
    digest: b.AnyName | msgspec.UnsetType = msgspec.UNSET
    """Names the bytes of a result that is in the store, where results are signed."""
    signer: b.AnyName | msgspec.UnsetType = msgspec.UNSET
    """The worker that signed it, where it is not `worker`: that one died, and this one cleared up after it."""
    signature: b.AnyName | msgspec.UnsetType = msgspec.UNSET
    """The last field, always: it stands for all bytes before it (`result_signatures.py`)."""

    @property
    def ok(self) -> bool:
        return self.failure is None and self.suspended is None

    @property
    def value(self) -> Any:
        """The result as plain JSON types; None for a failure."""
        return msgspec.json.decode(self.result)


def mark_of(saved: bytes | None, steps: int = 0) -> int:
    """Returns the number that names saved work; 0 for none. Its lower 32 bits name the checkpoint, those above count the recorded steps."""
    return steps << MARK_BITS | (zlib.crc32(saved) or 1 if saved is not None else 0)


WorkMessage = Message[WorkItem, WorkResult]


class WorkDelivery(ABC):
    """A claimed delivery. Its methods may be called from several threads; they fail once the lease is lost."""

    def __init__(self, item: WorkItem, queue: str, ticket: Ticket, saved: bytes | None, lane: str = "") -> None:
        self.item, self.queue, self.ticket = item, queue, ticket
        self.lane = lane or queue
        """The mailbox of all workflows of its queue and priority; `queue` may be that of its workflow alone."""
        self.saved = saved
        """The checkpoint of the delivery before this one."""
        self.lease_until = ticket.lease_until
        """The boot time at which the claim's lease is lost. The supervisor's extensions are on the board, not here."""

    @property
    def fence(self) -> Fence:
        return Fence(self.ticket.generation, self.ticket.delivery_count)

    @property
    def attempt(self) -> int:
        """Returns which try this is, as limits count them: deliveries that were handed over are no tries."""
        return self.ticket.delivery_count - self.ticket.forgiven

    @abstractmethod
    def checkpoint(self, data: bytes | None) -> None:
        """Starts the delivery, so that the engine counts it, and saves the data, if any. It is durable when this returns."""

    @abstractmethod
    def append_step(self, record: bytes) -> None:
        """Records a finished step, in one operation that also checks the lease. It is durable when this returns."""

    @abstractmethod
    def steps(self) -> list[bytes]:
        """Returns the records of the steps that earlier attempts finished."""

    @abstractmethod
    def stored_result(self, name: str) -> bytes | None:
        """Returns the stored result of a workflow that this one comes after; None where the store has it no more."""

    @abstractmethod
    def stored_arguments(self) -> bytes | None:
        """Returns the arguments that were too large for the message; None where the store has them no more."""

    @abstractmethod
    def put_output(self, chunk: bytes) -> None:
        """Writes a chunk of the output, under the fence. It is durable when this returns."""

    @abstractmethod
    def last_output(self) -> bytes:
        """Returns the last chunk of the output; nothing where there is none."""

    @abstractmethod
    def put_compensations(self, data: bytes) -> None:
        """Writes the list of the work's compensations, under the fence. When this returns, the end of the job will find it."""

    @abstractmethod
    def compensations(self) -> bytes:
        """Returns the list, and which of it was run (`KeptCompensations.read`)."""

    @abstractmethod
    def compensated(self, place: int) -> None:
        """Marks one of the list as run. That is durable when this returns."""

    @abstractmethod
    def courier(self) -> JobCourier:
        """Returns the way to the managers, which submits further jobs and looks after them."""


class EngineDelivery(WorkDelivery):
    """A delivery in a process that has an engine of its own."""

    def __init__(
        self,
        message: WorkMessage,
        queue: str,
        settler: Settler,
        clock: Clock,
        courier: Callable[[], JobCourier] | None = None,
        lane: str = "",
    ) -> None:
        super().__init__(message.body, queue, message.ticket, message.checkpoint, lane)
        self._message, self._settler, self._clock, self._courier = message, settler, clock, courier

    def extend(self, seconds: float) -> float:
        """Extends the lease and returns the boot time until which it is ours."""
        return extend_message(self._message, seconds, self._clock)

    def checkpoint(self, data: bytes | None) -> None:
        # 0 s: the expiry is the supervisor's to move.
        self._message.extend_visibility(0, data)

    def append_step(self, record: bytes) -> None:
        self._message.append_step(record)  # the expiry is the supervisor's to move

    def steps(self) -> list[bytes]:
        return self._settler.kept_steps.read(self._message, self.item.job_id, self.item.workflow_id)

    def stored_result(self, name: str) -> bytes | None:
        return self._settler.results.get(self.item.results[name].key)

    def stored_arguments(self) -> bytes | None:
        return self._settler.arguments.get(self.item.args_at)

    def put_output(self, chunk: bytes) -> None:
        from tenure.work.output_stream import put_chunk  # most workflows emit nothing

        put_chunk(self._settler.output, self._message, self.item.job_id, self.item.workflow_id, chunk)

    def last_output(self) -> bytes:
        from tenure.work.output_stream import last_chunk

        return last_chunk(self._settler.output, self.item.job_id, self.item.workflow_id)

    def put_compensations(self, data: bytes) -> None:
        self._settler.compensations.put(self._message, self.item.job_id, self.item.workflow_id, data)

    def compensations(self) -> bytes:
        return self._settler.compensations.read(self.item.undo_of or self.item.job_id, self.item.workflow_id)

    def compensated(self, place: int) -> None:
        self._settler.compensations.done(self._message, self.item.undo_of, self.item.workflow_id, place)

    def settle(self, result: WorkResult, retry: Retry) -> str:
        """Tries once to settle the outcome, by the policy of the item and of its function. Returns a word on how that ended."""
        return self._settler.settle(self._message, result, managed=self.item.managed, retry=retry)

    def release(self) -> None:
        """Gives the work back through no fault of its own. This delivery does not count."""
        self._message.release()

    def courier(self) -> JobCourier:
        from tenure.work.job_submission import (
            no_courier,  # most workflows submit nothing, and a slot shall start quickly
        )

        return (self._courier or no_courier)()


def extend_message(message: Message[Any, Any], seconds: float, clock: Clock) -> float:
    """Extends a lease, and returns the boot time until which it holds.

    The time is counted from before the call: the engine began to count later, so we never believe in a lease that is over.
    """
    asked = clock.boottime()
    message.extend_visibility(seconds)
    return asked + seconds


class CancelCode(IntEnum):
    """The reason for which the supervisor, or the slot itself, ends an attempt. The board stores the number."""

    NONE = 0
    CANCEL = 1
    STALL = 2
    TIMEOUT = 3
    LEASE_LOST = 4
    DRAIN = 5
    UNSETTLED = 6


CANCEL_REASONS = {
    CancelCode.CANCEL: "cancelled by request",
    CancelCode.STALL: "no beat within the stall threshold, or nothing new within the stuck threshold",
    CancelCode.TIMEOUT: "past the deadline of this attempt",
    CancelCode.LEASE_LOST: "the lease was lost; another delivery may be running",
    CancelCode.DRAIN: "the worker is shutting down",
    CancelCode.UNSETTLED: "its outcome could not be handed over",
}

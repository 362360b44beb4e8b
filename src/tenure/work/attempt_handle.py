"""One attempt as the code around it holds it: its record on the board, its delivery, what it saved, and the request to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from tenure.beat.attempt_history import BeatHistory
from tenure.beat.proof import NoveltyMark
from tenure.beat.record import BeatRecord, Occupant
from tenure.bounds import EXPOSED_BYTES
from tenure.clock import Clock
from tenure.codec import Codec, opened_bytes, sealed_bytes
from tenure.errors import LimitError, ReceiptHandleExpiredError, SerializationError
from tenure.work.compensations import Compensations
from tenure.work.delivery import CancelCode, WorkDelivery, mark_of
from tenure.work.job_events import JobEvents
from tenure.work.output_stream import OutputStream
from tenure.work.schemas import SignalTypes
from tenure.work.step_log import MOST_RESULT_BYTES, StepId, StepLog, StepRecord

T = TypeVar("T")
_NO_SIGNALS: SignalTypes = {}
_making = threading.Lock()
"""Several threads of one attempt may ask for a part of its handle at once: all get the same one. It is held for moments, so one serves all handles."""


class AttemptHandle:
    """Holds the record on the board, the delivery and the clock of one attempt. The context and the runner use it from several threads."""

    def __init__(
        self,
        record: BeatRecord,
        delivery: WorkDelivery,
        occupant: Occupant,
        clock: Clock,
    ) -> None:
        self.record, self.delivery, self.occupant, self.clock = record, delivery, occupant, clock
        self.trace = ""
        """The id of the trace that this attempt belongs to, for its logs."""
        self.cancel_code = CancelCode.NONE
        """Set once, under `changed`: the first reason stays."""
        self.cancel_reason = ""
        """The supervisor's sentence for it, where it wrote one."""
        self.history = BeatHistory()
        """How the beats came. `look` notes it, which the slot and the beats themselves call."""
        self.exposed: dict[str, Any] = {}
        self.failed_on: tuple[str, BaseException] | None = None
        """The last named call that failed, and its error."""
        self.mark = NoveltyMark()
        """The high-water mark of what this attempt has shown."""
        self.codec: Codec | None = None
        self.signal_types: SignalTypes = _NO_SIGNALS
        self.log_place = f"{record.index}-{record.serial}"
        """Names the place of its log. Another attempt in the same record has another."""
        self.resumed_from: bytes | None = delivery.saved
        self.saved: bytes | None = delivery.saved
        record.set_saved(mark_of(delivery.saved))
        self.home: Callable[..., Any] | None = None
        """The workflow's function. Its compensations are found beside it."""
        self.on_cancel: list[Callable[[], object]] = []
        # The parts that most attempts never use are made when they are first asked for: they were a sixth of what a no-op costs its slot.
        self._step_log: StepLog | None = None
        self._reading_steps = threading.Lock()
        self._events: JobEvents | None = None
        self._output: OutputStream | None = None
        self._compensations: Compensations | None = None
        self._changed: threading.Condition | None = None

    @property
    def events(self) -> JobEvents:
        """Returns the signals of its job."""
        if self._events is None:
            with _making:
                self._events = self._events or JobEvents(self)
        return self._events

    @property
    def output(self) -> OutputStream:
        if self._output is None:
            with _making:
                self._output = self._output or OutputStream(self)
        return self._output

    @property
    def compensations(self) -> Compensations:
        if self._compensations is None:
            with _making:
                self._compensations = self._compensations or Compensations(self)
        return self._compensations

    @property
    def has_compensations(self) -> bool:
        """Returns True when this attempt knows of a compensation."""
        return self._compensations is not None and self._compensations.registered

    @property
    def changed(self) -> threading.Condition:
        """Notified by `cancel`, so that a sleeping workflow wakes at once."""
        if self._changed is None:
            with _making:
                self._changed = self._changed or threading.Condition()
        return self._changed

    def cancel(self, code: CancelCode, reason: str = "") -> None:
        """Asks the attempt to end. A second call changes nothing: the first reason stays."""
        with self.changed:
            if self.cancel_code is not CancelCode.NONE:
                return
            self.cancel_code, self.cancel_reason = code, reason
            self.changed.notify_all()
        for call in self.on_cancel:
            call()

    def look(self) -> None:
        """Cancels the attempt if the board says so, or if its lease is over. A stopped supervisor writes no cancel, hence the second."""
        now = self.clock.boottime()
        if self.occupant.started_at:
            self.history.look(now - self.occupant.started_at, self.record.steps)
        asked = self.record.cancel_requested
        if asked:
            self.cancel(CancelCode(asked), self.record.cancel_reason)
        elif now >= self.record.lease_until:
            self.cancel(CancelCode.LEASE_LOST)

    def confirm_start(self) -> None:
        """Makes sure that the engine counts this delivery before its fence is used outside.

        The supervisor's first extension does so too; a lease that has moved shows that it did.
        """
        if self.record.lease_until <= self.occupant.ticket.lease_until:
            self.keep(None)

    def show(self, *, binds: bool) -> None:
        """Shows that the attempt has something that it did not have before; `binds`: more has to follow."""
        self.mark.show(binds=binds)
        self.record.set_mark(self.mark.word)

    def show_output(self) -> None:
        self.mark.output()
        self.record.set_mark(self.mark.word)

    def end_count(self) -> None:
        self.mark.end_count()
        self.record.set_mark(self.mark.word)

    def expose(self, name: str, value: Any) -> None:
        """Shows a value on the board, from which it is reported. A result carries it, too."""
        shown = dict(self.exposed)
        shown[name] = value
        if value is None:
            del shown[name]
        try:
            text = msgspec.json.encode(shown).decode() if shown else ""
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SerializationError(
                f"the exposed {name!r}, of type {type(value).__name__}, cannot be written as JSON: {error}",
                remedy="Expose plain JSON types, a dataclass or a msgspec.Struct",
            ) from error
        if len(text.encode()) > EXPOSED_BYTES:
            raise LimitError(
                f"the exposed values with {name!r}",
                f"{len(text.encode()):,} bytes",
                f"at most {EXPOSED_BYTES:,} bytes in all",
                remedy="Expose a short status; emit or return what is long",
            )
        self.exposed = shown
        self.occupant = msgspec.structs.replace(self.occupant, exposed=text)
        self.record.describe(self.occupant)

    def use(self, codec: Codec | None) -> None:
        """Encodes checkpoints with this codec, and decodes the one that was saved before. Raises `CodecError`."""
        self.codec = codec
        if self.delivery.saved is not None:
            self.resumed_from = self.saved = opened_bytes(codec, self.delivery.saved, self._about_checkpoint)

    @property
    def step_log(self) -> StepLog:
        """Returns the steps of this work. The first call reads them from the engine."""
        with self._reading_steps:
            if self._step_log is None:
                self._step_log = StepLog(self.ask_engine(self.delivery.steps) if self.may_have_steps else ())
                self.record.set_saved(self.saved_mark)
            return self._step_log

    @property
    def has_read_steps(self) -> bool:
        return self._step_log is not None

    @property
    def may_have_steps(self) -> bool:
        """Returns False for the first delivery of the first generation that a leader sends: nothing was recorded before it."""
        ticket = self.delivery.ticket
        return not (self.delivery.item.managed and ticket.generation == 1 and ticket.delivery_count == 1)

    @property
    def saved_mark(self) -> int:
        """Names what is saved: the checkpoint and, where they were read, the steps."""
        return mark_of(self.saved, self._step_log.count if self._step_log is not None else 0)

    def record_step(self, step: StepId, result: bytes) -> None:
        """Records the result of a step. It is durable when this returns."""
        sealed = sealed_bytes(self.codec, result, self.about_step(step)) or b""
        if len(sealed) > MOST_RESULT_BYTES:
            raise LimitError(
                f"the result of {step}",
                f"{len(sealed):,} bytes",
                f"at most {MOST_RESULT_BYTES:,} bytes",
                remedy="Put large results into a store of your own and return their address, or let a child job return them",
            )
        self._append(step, sealed)

    def _append(self, step: StepId, sealed: bytes) -> None:
        data = self.step_log.recorded(step, sealed, self.output.place)
        self.ask_engine(partial(self.delivery.append_step, data))
        self.step_log.finished(data)
        self.show(binds=True)
        self.record.set_saved(self.saved_mark)

    def begin_step(self, step: StepId) -> StepRecord | None:
        """Returns the record of a finished step or wait, or None for one that runs now."""
        found = self.step_log.begin(step)
        if found is not None:
            self.output.went_past(found.emitted)
        return found

    def keep_checkpoint_as_step(self) -> None:
        """Records the checkpoint among the steps, unless it is there already."""
        if self.saved is None:
            return
        sealed = sealed_bytes(self.codec, self.saved, self._about_checkpoint) or b""
        step = StepId("checkpoint", "saved", f"{mark_of(self.saved)}")
        if not any(one.key == step.key for one in self.step_log.of(step.kind, step.name)[-1:]):
            self._append(step, sealed)

    def take_up_checkpoint(self) -> None:
        """Takes the checkpoint of suspended work from its steps, where the engine has forgotten it."""
        if self.delivery.saved is None and self.delivery.item.woken_before:
            for record in self.step_log.of("checkpoint", "saved")[-1:]:
                self.resumed_from = self.saved = opened_bytes(self.codec, record.result, self._about_checkpoint)

    def result_of(self, record: StepRecord) -> bytes:
        """Returns the JSON of a recorded result."""
        return opened_bytes(self.codec, record.result, self.about_step(record.id, record.made_by)) or b"null"

    def about_step(self, step: StepId, made_by: str = "") -> str:
        return f"step {made_by or self.occupant.job}/{self.occupant.workflow_id}/{step.kind}/{step.name}/{step.key}"

    def ask_engine(self, call: Callable[[], T]) -> T:
        """Makes a call to the engine. A lost lease ends the attempt."""
        try:
            return call()
        except ReceiptHandleExpiredError:
            self.cancel(CancelCode.LEASE_LOST)
            raise

    @property
    def _about_checkpoint(self) -> str:
        return f"checkpoint {self.occupant.job}/{self.occupant.workflow_id}"

    def keep(self, checkpoint: bytes | None) -> None:
        data = sealed_bytes(self.codec, checkpoint, self._about_checkpoint)
        if checkpoint is not None:
            self.output.mark(mark_of(checkpoint))
        self.ask_engine(partial(self.delivery.checkpoint, data))
        if checkpoint is not None:
            if checkpoint != self.saved:
                self.show(binds=True)
            self.saved = checkpoint
            self.record.set_saved(self.saved_mark)

"""A slot's way to its supervisor: requests with answers, and the deliveries and the courier that are made of them.

A slot has no engine. The supervisor executes the requests of one item in the order in which they were sent, and its outcome after them; what
was asked for is durable when the answer is there. Errors come back as the errors that the engine or the managers raised.
"""

from __future__ import annotations

import itertools
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

import tenure.errors
from tenure.attempt_data import Signal
from tenure.errors import TenureError
from tenure.work.delivery import WorkDelivery, WorkItem, WorkResult
from tenure.work.slots.frames import FrameChannel, HandOver, SlotAnswer, SlotRequest, WorkDeclined, WorkFinished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.backoff import Retry
    from tenure.jobs.model import JobSubmission
    from tenure.work.job_submission import ChildView, JobCourier
    from tenure.work.registry import Workflow

KEEP = "keep"
"""The request to start a delivery, so that the engine counts it, and to save a checkpoint, if there is one."""
STEP, STEPS = "step", "steps"
"""The requests to record a finished step, and to read those that are recorded."""
PUT_OUTPUT, LAST_OUTPUT = "put_output", "last_output"
"""The requests to write a chunk of the output, and to read the last one."""
STORED = "stored"
"""The request for the stored result of a workflow that the item comes after. Its data is that workflow's name, so no slot can ask for other keys."""
OWN_ARGUMENTS = b""
"""The data of such a request that asks for the item's own large arguments: no workflow has an empty name."""
NOTHING_STORED = b""
"""The answer where the store has it no more. No result is empty: the shortest JSON has a byte."""
COMPENSATE, COMPENSATIONS, COMPENSATED = "compensate", "compensations", "compensated"
"""The requests to write the list of compensations, to read it, and to mark one of it as run."""
OF_DELIVERY = frozenset({KEEP, STEP, STEPS, STORED, PUT_OUTPUT, LAST_OUTPUT, COMPENSATE, COMPENSATIONS, COMPENSATED})
"""Requests about the delivery itself. All others are for the managers."""
_decode_item = msgspec.json.Decoder(WorkItem).decode
_encode_result = msgspec.json.Encoder().encode


class SlotChannel:
    """The slot's end of the channel. Several threads may ask at once; one thread hears the answers."""

    def __init__(self, channel: FrameChannel) -> None:
        self.frames = channel
        self._refs = itertools.count(1)
        self._waiting: dict[int, SimpleQueue[SlotAnswer]] = {}
        self._lock = threading.Lock()

    def ask(self, number: int, kind: str, data: bytes | None) -> bytes:
        """Asks the supervisor, waits, and returns the answer. Raises the error that the supervisor met."""
        answers: SimpleQueue[SlotAnswer] = SimpleQueue()
        with self._lock:
            ref = next(self._refs)
            self._waiting[ref] = answers
        self.frames.send(SlotRequest(ref, number, kind, data))
        answer = answers.get()
        if answer.error:
            raise error_of(answer)
        return answer.data

    def finish(self, number: int, result: WorkResult, seconds: float, log: str, retry: Retry | None) -> bool:
        """Hands an outcome to the supervisor, which settles it. Returns False when the channel is gone."""
        return self.frames.send(WorkFinished(number, seconds, result.ok, _encode_result(result), log, retry))

    def heard(self, answer: SlotAnswer) -> None:
        with self._lock:
            waiting = self._waiting.pop(answer.ref, None)
        if waiting is not None:
            waiting.put(answer)


def answer_of(ref: int, error: TenureError) -> SlotAnswer:
    return SlotAnswer(ref, b"", type(error).__name__, error.fact, error.remedy)


def error_of(answer: SlotAnswer) -> TenureError:
    """Returns the error of an answer, as the class that it had. Its other attributes stayed behind."""
    found = getattr(tenure.errors, answer.error, TenureError)
    kind: type[TenureError] = found if isinstance(found, type) and issubclass(found, TenureError) else TenureError
    error = kind.__new__(kind)
    TenureError.__init__(error, answer.fact, remedy=answer.remedy)
    return error


class ChannelDelivery(WorkDelivery):
    """A delivery in a slot process. Making it decodes the body, which may raise: the body is nothing that a slot can take then."""

    def __init__(self, work: HandOver, channel: SlotChannel) -> None:
        super().__init__(_decode_item(work.body), work.queue, work.ticket, work.saved, work.lane)
        self.number, self._channel = work.number, channel

    def checkpoint(self, data: bytes | None) -> None:
        self._channel.ask(self.number, KEEP, data)

    def append_step(self, record: bytes) -> None:
        self._channel.ask(self.number, STEP, record)

    def steps(self) -> list[bytes]:
        return msgspec.msgpack.decode(self._channel.ask(self.number, STEPS, None), type=list[bytes])

    def stored_result(self, name: str) -> bytes | None:
        return self._channel.ask(self.number, STORED, name.encode()) or None

    def stored_arguments(self) -> bytes | None:
        return self._channel.ask(self.number, STORED, OWN_ARGUMENTS) or None

    def put_output(self, chunk: bytes) -> None:
        self._channel.ask(self.number, PUT_OUTPUT, chunk)

    def last_output(self) -> bytes:
        return self._channel.ask(self.number, LAST_OUTPUT, None)

    def put_compensations(self, data: bytes) -> None:
        self._channel.ask(self.number, COMPENSATE, data)

    def compensations(self) -> bytes:
        return self._channel.ask(self.number, COMPENSATIONS, None)

    def compensated(self, place: int) -> None:
        self._channel.ask(self.number, COMPENSATED, str(place).encode())

    def courier(self) -> JobCourier:
        return ChannelCourier(self._channel, self.number)


def decline(work: HandOver, channel: SlotChannel) -> None:
    """Tells the supervisor that this slot does not start the item."""
    channel.frames.send(WorkDeclined(work.number))


class ChannelCourier:
    """A `JobCourier` whose calls the supervisor makes."""

    poll_s = 1.0

    def __init__(self, channel: SlotChannel, number: int) -> None:
        self._channel, self._number = channel, number

    def submit(self, submission: JobSubmission, workflow: Workflow[..., Any] | None) -> str:
        return str(self._ask("submit", submission))

    def look(self, job_id: str, wait_s: float) -> ChildView:
        from tenure.work.job_submission import ChildView

        return msgspec.convert(self._ask("look", (job_id, wait_s)), ChildView)

    def cancel(self, job_id: str, reason: str) -> None:
        self._ask("cancel", (job_id, reason))

    def why(self, job_id: str) -> str:
        return str(self._ask("why", job_id))

    def signals(self, job_id: str, after: int) -> Sequence[Signal]:
        return msgspec.convert(self._ask("signals", (job_id, after)), list[Signal])

    def _ask(self, kind: str, data: object) -> Any:
        return msgspec.msgpack.decode(self._channel.ask(self._number, kind, msgspec.msgpack.encode(data)))


def call_courier(courier: JobCourier, kind: str, data: bytes) -> bytes:
    """Makes one call that a `ChannelCourier` asked for. Runs in the supervisor."""
    from tenure.jobs.model import JobSubmission

    answer: object = None
    if kind == "submit":
        answer = courier.submit(msgspec.msgpack.decode(data, type=JobSubmission), None)
    elif kind == "look":
        job_id, wait_s = msgspec.msgpack.decode(data, type=tuple[str, float])
        answer = courier.look(job_id, wait_s)
    elif kind == "cancel":
        courier.cancel(*msgspec.msgpack.decode(data, type=tuple[str, str]))
    elif kind == "signals":
        answer = courier.signals(*msgspec.msgpack.decode(data, type=tuple[str, int]))
    else:
        answer = courier.why(msgspec.msgpack.decode(data, type=str))
    return msgspec.msgpack.encode(answer)

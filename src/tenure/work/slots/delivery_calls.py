"""The supervisor's calls to the engine and the managers for single items: checkpoints, failures, logs, child jobs.

Each call runs in another thread, so that a slow engine delays no decision. The calls of one item run one after the other, in the order in
which its slot asked for them, and its outcome is settled after them (RULINGS 10).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import msgspec

from tenure.attempt_data import HandedResult
from tenure.backoff import Retry
from tenure.clock import Clock
from tenure.engines.contracts import Engine, Fence, Message
from tenure.errors import EngineWentBackError, TenureError
from tenure.logs import NodeLog
from tenure.work.attempt_failures import unstarted_result
from tenure.work.attempt_steps import run_steps
from tenure.work.delivery import Cause, WorkFailure, WorkHead, WorkResult
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.log_lines import FileLines, keep_log, log_key
from tenure.work.output_stream import last_chunk, put_chunk
from tenure.work.result_signatures import ClaimedAttempt, ResultSigner
from tenure.work.settler import ONCE, Settler
from tenure.work.slots.frames import FrameChannel, SlotAnswer, SlotRequest
from tenure.work.slots.slot_channel import (
    COMPENSATE,
    COMPENSATED,
    COMPENSATIONS,
    LAST_OUTPUT,
    NOTHING_STORED,
    OWN_ARGUMENTS,
    PUT_OUTPUT,
    STEP,
    STEPS,
    answer_of,
    call_courier,
)

if TYPE_CHECKING:
    from tenure.work.job_submission import JobCourier

RawMessage = Message[msgspec.Raw, msgspec.Raw]
"""A delivery whose body and reply the supervisor passes on as they are."""


class FollowedWork(msgspec.Struct, frozen=True):
    """The part of a `WorkItem` that names the results which its slot may read."""

    results: dict[str, HandedResult] = {}
    args_at: str = ""


class HeldWork:
    """Keeps of one claim the delivery, what it is, and the calls that are still to be made for it."""

    __slots__ = ("calls", "entry", "head", "lane", "message")

    def __init__(self, message: RawMessage, head: WorkHead, lane: str, entry: int) -> None:
        self.message, self.head, self.lane, self.entry = message, head, lane, entry
        self.calls: deque[Callable[[], None]] | None = None
        """None while no call is under way."""


class DeliveryCalls:
    """Makes the calls. Its methods return at once, but for those that are documented as a call."""

    def __init__(
        self,
        engine: Engine,
        worker: str,
        lines: FileLines,
        threads: Executor,
        courier_threads: Executor,
        courier: Callable[[], JobCourier],
        *,
        clock: Clock,
        random: Random,
        log: NodeLog,
        errors: IsolatedErrors,
        on_engine_lost: Callable[[EngineWentBackError], None],
        signer: ResultSigner | None = None,
    ) -> None:
        self._worker, self._lines, self._threads, self._courier_threads = worker, lines, threads, courier_threads
        self._courier, self._clock, self._log, self._errors = courier, clock, log, errors
        self._on_engine_lost = on_engine_lost
        self._signer = signer
        self._settler = Settler(engine, clock=clock, random=random, log=log, signer=signer)
        self._logs = engine.store("logs")
        self._lock = threading.Lock()
        self.dropping = False
        """True when nothing may be settled any more: the engine lost the deliveries, or gave them to others."""

    def submit(self, what: str, call: Callable[[], None]) -> None:
        """Makes a call in another thread. `what` names the one thing that it is about."""
        self._threads.submit(self._guarded, what, call)

    def in_order(self, held: HeldWork, what: str, call: Callable[[], None]) -> None:
        """Makes a call for an item, after the calls that were asked for before."""
        guarded = partial(self._guarded, what, call)
        with self._lock:
            if held.calls is not None:
                held.calls.append(guarded)
                return
            held.calls = deque()
        self._threads.submit(self._make_calls, held, guarded)

    def _make_calls(self, held: HeldWork, call: Callable[[], None]) -> None:
        while True:
            call()
            with self._lock:
                if not held.calls:
                    held.calls = None
                    return
                call = held.calls.popleft()

    def _guarded(self, what: str, call: Callable[[], None]) -> None:
        with self._errors.isolate(what):
            try:
                call()
            except EngineWentBackError as error:
                self._on_engine_lost(error)

    def give_back(self, held: HeldWork) -> None:
        """Gives work back that has not started."""
        self.submit(f"giving {held.head.workflow} back", partial(self._release, held))

    def _release(self, held: HeldWork) -> None:
        try:
            held.message.release()
        except EngineWentBackError:
            raise
        except TenureError as error:
            self._log.warning(f"could not give {held.head.workflow} back: {error}")

    def keep(self, channel: FrameChannel, held: HeldWork, request: SlotRequest) -> None:
        """Starts a delivery, so that the engine counts it, and saves its checkpoint or its step, if there is one; then answers."""

        def call() -> bytes:
            # The expiry is moved for beats only.
            if request.kind == STEPS:
                return msgspec.msgpack.encode(
                    self._settler.kept_steps.read(held.message, held.head.job_id, held.head.workflow_id)
                )
            names = held.head.job_id, held.head.workflow_id
            if request.kind == LAST_OUTPUT:
                return last_chunk(self._settler.output, *names)
            if request.kind == COMPENSATIONS:
                return self._settler.compensations.read(held.head.compensated_job, names[1])
            if request.kind == COMPENSATE:
                self._settler.compensations.put(held.message, *names, request.data or b"")
            elif request.kind == COMPENSATED:
                place = int(request.data or b"0")
                self._settler.compensations.done(held.message, held.head.compensated_job, names[1], place)
            elif request.kind == PUT_OUTPUT:
                put_chunk(self._settler.output, held.message, *names, request.data or b"")
            elif request.kind == STEP:
                held.message.append_step(request.data or b"")
            else:
                held.message.extend_visibility(0, request.data)
            return b""

        self.in_order(
            held, f"{request.kind} of {held.head.workflow}", partial(self._answer, channel, request.ref, call)
        )

    def fetch_result(self, channel: FrameChannel, held: HeldWork, request: SlotRequest) -> None:
        """Reads the stored result of a workflow that the item comes after, or the item's own large arguments, then answers."""

        def call() -> bytes:
            name = (request.data or OWN_ARGUMENTS).decode(errors="replace")
            work = msgspec.json.decode(held.message.body, type=FollowedWork)
            if not name:
                return self._settler.arguments.get(work.args_at) or NOTHING_STORED
            handed = work.results.get(name)
            return (handed and handed.key and self._settler.results.get(handed.key)) or NOTHING_STORED

        self.submit(f"a result for {held.head.workflow}", partial(self._answer, channel, request.ref, call))

    def ask_managers(self, channel: FrameChannel, request: SlotRequest) -> None:
        """Makes a call to the managers for a workflow, then answers. Some of them wait, so they have threads of their own."""

        def call() -> bytes:
            return call_courier(self._courier(), request.kind, request.data or b"")

        answer = partial(self._answer, channel, request.ref, call)
        self._courier_threads.submit(self._guarded, f"{request.kind} for a workflow", answer)

    def _answer(self, channel: FrameChannel, ref: int, call: Callable[[], bytes]) -> None:
        try:
            answer = SlotAnswer(ref, call())
        except TenureError as error:
            channel.send(answer_of(ref, error))
            if isinstance(error, EngineWentBackError):
                raise
        except Exception as error:
            channel.send(SlotAnswer(ref, b"", "TenureError", f"{type(error).__name__}: {error}"))
            raise
        else:
            channel.send(answer)

    def signed(self, held: HeldWork, reply: bytes) -> bytes:
        """Returns an encoded reply of a slot with the signature of this worker, where results are signed. It names the attempt that was claimed."""
        if self._signer is None or not held.head.managed:
            return reply
        return self._signer.sign(reply, ClaimedAttempt.of(held.head, held.message.fence))

    # Calls to make with `submit` or `in_order`.

    def settle_alone(self, held: HeldWork, result: WorkResult, retry: Retry = ONCE) -> None:
        """Settles an outcome by the policy of its item and its workflow, for as long as the lease holds: a failure, or a large result. This is a call."""
        message, head = held.message, held.head
        claim = ClaimedAttempt.of(head, message.fence)
        settle = partial(self._settler.settle, message, managed=head.managed, retry=retry, claim=claim)  # type: ignore[arg-type]
        if self.dropping:
            return
        try:
            run_steps(self._settler.until_settled(settle, result, lambda: message.lease_until), self._clock)
        except EngineWentBackError:
            raise
        except TenureError as error:
            self._log.error(f"the outcome of {head.workflow[:200]} could not be settled: {error}")

    def settle_cancelled(self, held: HeldWork, reason: str) -> None:
        """Settles an item that was cancelled before it started. This is a call."""
        failure = WorkFailure(cause=Cause.CANCELLED, reason=reason)
        self.settle_alone(held, unstarted_result(held.head, held.message.ticket, self._worker, failure))

    def settle_refused(self, held: HeldWork, reply: bytes, error: TenureError) -> None:
        """Settles an item whose result the engine does not take, with a failure that says so. This is a call."""
        result = msgspec.json.decode(reply, type=WorkResult)
        failure = WorkFailure(cause=Cause.BAD_RESULT, reason=f"its outcome could not be handed over: {error}")
        self.settle_alone(held, msgspec.structs.replace(result, result=msgspec.Raw(b"null"), failure=failure))

    def reject(self, message: RawMessage, error: Exception) -> None:
        """Makes a dead letter of a message whose body is no work. This is a call."""
        try:
            message.dead_letter(f"{Cause.BAD_MESSAGE}: {error}"[:2_000])
        except EngineWentBackError:
            raise
        except TenureError as why:
            self._log.warning(f"message {message.id} is no work, and could not be given up: {why}")

    def keep_log(self, held: HeldWork, place: str) -> None:
        """Moves the log of an attempt into the store. This is a call."""
        message, head = held.message, held.head
        job, attempt = head.job_id or message.id, head.attempt or message.attempt
        try:
            # The log is stored under the fence, so the engine has to count the delivery first: else the next one gets the same fence (RULINGS 7).
            message.extend_visibility(0)
            key, fence = log_key(job, head.workflow_id or head.workflow, attempt), message.fence
            keep_log(self._logs, self._lines, place, key, Fence(*fence))
        except EngineWentBackError:
            raise
        except TenureError as error:
            self._log.error(f"the log of {head.workflow} was not kept: {error}")
            self._lines.clear(place)

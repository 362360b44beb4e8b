"""Runs one attempt inside a slot: finds the workflow, checks the arguments, runs it, and returns its result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator
from collections.abc import Coroutine as CoroutineABC
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from tenure import tracing
from tenure.attempt_data import MAX_MESSAGE_RESULT_BYTES, MAX_VALUE_BYTES, WaitsFor
from tenure.beat.attempt_history import silence_of
from tenure.beat.record import BeatRecord, Occupant, Phase
from tenure.clock import Clock
from tenure.codec import opened_value, sealed
from tenure.errors import (
    ArgumentsError,
    Cancelled,
    CodecError,
    EngineError,
    LimitError,
    ReceiptHandleExpiredError,
    StepConflictError,
    TenureError,
    UnknownWorkflowError,
)
from tenure.work.attempt_failures import CAUSES, LeftError, describe_error, failure_of_exception
from tenure.work.attempt_handle import AttemptHandle
from tenure.work.compensations import run_compensations, run_compensations_async
from tenure.work.context import AsyncContext, Context, await_with_context, run_with_context
from tenure.work.delivery import (
    CANCEL_REASONS,
    CancelCode,
    Cause,
    WorkDelivery,
    WorkFailure,
    WorkResult,
)
from tenure.work.registry import Registry, Workflow
from tenure.work.stack_text import exception_evidence
from tenure.work.step_plan import misfit
from tenure.work.wait_calls import WorkSuspended, awaited, suspension_in

_SHOW_WHERE = (CancelCode.STALL, CancelCode.TIMEOUT)
"""The reasons to end an attempt for which the place where it was matters: it took too long there."""


class Attempt:
    """One delivery in one record, from claim to outcome. It does not settle the outcome with the engine: `Settler` does."""

    def __init__(
        self,
        delivery: WorkDelivery,
        record: BeatRecord,
        *,
        registry: Registry,
        clock: Clock,
        stall_s: float,
        worker: str,
    ) -> None:
        self.delivery, self.record, self.item = delivery, record, delivery.item
        self._registry, self._clock, self._worker = registry, clock, worker
        self.arguments: dict[str, Any] = {}
        self.begun = clock.monotonic()
        self.workflow: Workflow[..., Any] | None = None
        self._unknown = ""
        try:
            self.workflow = registry.find(self.item.workflow, self.item.version)
        except UnknownWorkflowError as error:
            self._unknown = str(error)
        self.occupant = self._occupant(self.workflow, stall_s)
        record.occupy(Phase.CLAIMED, self.occupant, self.begun)
        self.handle = AttemptHandle(record, delivery, self.occupant, clock)
        self.handle.trace = tracing.trace_id(self.item.trace)

    def _occupant(self, found: Workflow[..., Any] | None, stall_s: float) -> Occupant:
        """Returns what the board says of this attempt. It is written once, and its thresholds hold once the phase is RUNNING."""
        item, delivery = self.item, self.delivery
        learned, known = False, dict[str, Any]()
        if found is not None:
            now = self._clock.boottime()
            stall_s, learned = item.stall_under(found.stall or stall_s)
            timeout = item.timeout_s if item.timeout_s is not None else found.timeout
            deadline = None if timeout is None else now + timeout
            known = {"version": found.version, "proof": found.proof or "", "retry": found.retry}
            known |= {"started_at": now, "deadline": deadline, "stuck_s": item.stuck_s}
        return Occupant(
            ticket=delivery.ticket,
            job=item.job_id or delivery.ticket.id,
            workflow=item.workflow,
            attempt=item.attempt or delivery.attempt,
            queue=delivery.queue,
            stall_s=stall_s,
            learned=learned,
            managed=item.managed,
            workflow_id=item.workflow_id,
            **known,
        )

    def prepare(self) -> WorkFailure | None:
        """Checks that the function is here, and its arguments. Returns a failure of this attempt, or None.

        The record's phase is RUNNING before code of the user's types sees the arguments. So a crash in there counts as an attempt.
        """
        found = self.workflow
        if found is None:
            return WorkFailure(cause=Cause.UNKNOWN_WORKFLOW, reason=self._unknown)
        self.handle.home, self.handle.signal_types = found.function, found.signals
        if failure := self._used_up(self.item.tries or found.retry.max_attempts):
            return failure
        self.record.set_phase(Phase.RUNNING)
        try:
            self._open_arguments(found)
        except (ArgumentsError, CodecError) as error:
            return WorkFailure(cause=Cause.BAD_ARGUMENTS, reason=str(error))
        except EngineError as error:  # of the store that has the large ones: another attempt may reach it
            return WorkFailure(cause=Cause.EXCEPTION, reason=describe_error(error))
        except Exception as error:  # of a type of the user's
            return WorkFailure(
                cause=Cause.BAD_ARGUMENTS, reason=describe_error(error), evidence=exception_evidence(error)
            )
        return None

    def _open_arguments(self, found: Workflow[..., Any]) -> None:
        self.handle.use(self._registry.codec)
        if not self.item.undo_of:  # compensations have arguments of their own
            given = opened_value(self._registry.codec, self._given(), f"arguments {self.item.workflow}")
            self.arguments = found.check_arguments(given)

    def _given(self) -> dict[str, Any]:
        """Returns the arguments as they were submitted. Raises `ArgumentsError` where the store has the large ones no more."""
        if not self.item.args_at:
            return self.item.args
        stored = self.delivery.stored_arguments()
        if stored is None:
            raise ArgumentsError(
                "the store has its large arguments no more", remedy="Submit the job anew, with its arguments"
            )
        return {**self.item.args, **msgspec.json.decode(stored)}

    def _used_up(self, limit: int) -> WorkFailure | None:
        """Returns a failure when the deliveries exceed the limit. Work that kills its worker each time never reaches an outcome.

        An attempt that fails is settled at its limit. So a delivery beyond it means that earlier ones ended without any outcome.
        """
        tries = self.delivery.attempt
        if tries <= limit:
            return None
        with contextlib.suppress(TenureError):
            self.handle.step_log  # noqa: B018  # the outcome tells of the steps that earlier deliveries recorded
        times = f"{tries - 1} times" if tries > 2 else "once"
        return WorkFailure(
            cause=Cause.WORKER_DIED,
            reason=f"its worker died {times} while it ran, or lost its lease, and {limit} attempts are allowed: not started again",
            evidence={
                "deliveries": str(self.delivery.ticket.delivery_count),
                "of which uncounted": str(self.delivery.ticket.forgiven),
                "attempts allowed": str(limit),
            },
        )

    def step(self) -> Callable[[], WorkResult] | Coroutine[Any, Any, WorkResult]:
        """Returns the work of a prepared attempt as one step: a call for a sync workflow, a coroutine for an async one."""
        return self.run_async() if self._prepared().is_async else self.run_sync

    def run_sync(self) -> WorkResult:
        """Runs a sync workflow in this thread."""
        workflow = self._prepared()
        context = Context(self.handle)

        def function(given: dict[str, Any]) -> Any:
            if self.item.undo_of:
                return run_compensations(context)
            return workflow.function(context, **self.arguments, **given)

        def call() -> Any:
            context.beat()
            self._check_fit()
            surroundings = self._registry.surroundings
            if not surroundings.surrounds(workflow.resources):
                return function({})
            return surroundings.run(context, workflow.resources, function)

        if tracing.tracer() is None:
            return self._conclude(lambda: run_with_context(context, call))
        with self._traced() as attempt, tracing.span(f"workflow {workflow.name}", {}) as span:
            result = self._conclude(lambda: run_with_context(context, call))
            _tell(result, attempt, span)
        return result

    async def run_async(self) -> WorkResult:
        """Runs an async workflow as a task, which a cancellation cancels."""
        workflow = self._prepared()
        context = AsyncContext(self.handle)
        loop = asyncio.get_running_loop()

        async def function(given: dict[str, Any]) -> Any:
            if self.item.undo_of:
                return await run_compensations_async(context)
            return await workflow.function(context, **self.arguments, **given)

        async def call() -> Any:
            context.beat()
            if self._goes_on_with is not None:
                await awaited(context, self._check_fit)
            surroundings = self._registry.surroundings
            try:
                if not surroundings.surrounds(workflow.resources):
                    return await function({})
                return await surroundings.run_async(context, workflow.resources, function)
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio lets these two errors end the whole event loop, with every other attempt of this slot.
                raise LeftError(error) from error

        with self._traced() as attempt, tracing.span(f"workflow {workflow.name}", {}) as span:
            marked = MarkedCoroutine(await_with_context(context, call), self.record)
            task: asyncio.Task[Any] = loop.create_task(marked)
            self.handle.on_cancel.append(lambda: loop.call_soon_threadsafe(task.cancel))
            if self.handle.cancel_code is not CancelCode.NONE:
                task.cancel()
            await asyncio.wait([task])
            result = self._conclude(lambda: _outcome(task))
            _tell(result, attempt, span)
        return result

    @property
    def _goes_on_with(self) -> str | None:
        """Returns the version that recorded the steps of this work, where another one goes on with it."""
        item = self.item
        return item.version if item.woken_before and item.version not in (None, self._prepared().version) else None

    def _check_fit(self) -> None:
        """Suspends work of an earlier version whose steps do not fit this one, before anything of it runs."""
        earlier, workflow = self._goes_on_with, self._prepared()
        if earlier is None:
            return
        words = misfit(workflow.function, [one.name for one in self.handle.step_log.sequence])
        if words:
            said = f"in version {workflow.version!r}, {words}"[:1_000]
            raise WorkSuspended(WaitsFor(step=self.item.woken or "version", version=earlier, misfit=said))

    def _traced(self) -> AbstractContextManager[tracing.Spanned]:
        """Returns the span of this delivery, a child of its submission's span."""
        occupant = self.occupant
        attributes = {
            "tenure.job": occupant.job,
            "tenure.attempt": occupant.attempt,
            "tenure.delivery": self.delivery.ticket.delivery_count,
            "tenure.worker": self._worker,
        }
        name = f"attempt {occupant.attempt} of {occupant.workflow}"
        return tracing.span(name, attributes, kind="CONSUMER", parent=self.item.trace)

    def _prepared(self) -> Workflow[..., Any]:
        assert self.workflow is not None, "prepare() comes first"
        return self.workflow

    def _conclude(self, call: Callable[[], Any]) -> WorkResult:
        workflow = self._prepared()
        try:
            value = call()
            encoded = self._encoded(value)
        except (Cancelled, asyncio.CancelledError) as error:
            return self.result(self._cancel_failure(error))
        except ReceiptHandleExpiredError as error:
            return self.result(WorkFailure(cause=Cause.LEASE_LOST, reason=str(error)))
        except (ArgumentsError, LimitError, StepConflictError) as error:
            # A workflow's own use of ctx.beat(progress=2) and a result that is no JSON are both its code's fault.
            return self.result(
                WorkFailure(cause=Cause.BAD_RESULT, reason=str(error), evidence=exception_evidence(error))
            )
        except BaseException as error:
            if (waits := suspension_in(error)) is not None:
                return self.suspended(waits)
            raised = error.left if isinstance(error, LeftError) else error
            verdict = workflow.retry_rules.verdict(raised)
            failure = msgspec.structs.replace(
                failure_of_exception(raised),
                waits_on=self._failed_on(error),
                final=verdict.final,
                rest_s=verdict.rest_s,
                decision=verdict.said[:1_000],
            )
            return self.result(failure)
        return self.result(value=encoded)

    def _encoded(self, value: Any) -> bytes:
        """Returns the result as it travels. Raises `LimitError` for one that is too large, also once it is sealed."""
        workflow, about = self._prepared(), f"result {self.item.job_id}/{self.item.workflow_id}"
        if self.item.undo_of:
            # Compensations have no result, and the type of the function's result says nothing about them.
            return sealed(self._registry.codec, b"null", about)
        most = MAX_VALUE_BYTES if self.item.managed else MAX_MESSAGE_RESULT_BYTES
        encoded = sealed(self._registry.codec, workflow.encode_result(value, most), about)
        if len(encoded) > MAX_VALUE_BYTES:
            size, allowed = f"{len(encoded):,} bytes", f"at most {MAX_VALUE_BYTES:,} bytes"
            raise LimitError(f"the sealed result of {workflow.name}", size, allowed)
        return encoded

    def _failed_on(self, error: BaseException) -> str:
        """Returns the name of the call whose failure this error is, or comes from; empty when there is none."""
        name, failure = self.handle.failed_on or ("", None)
        seen: BaseException | None = error
        for _ in range(20):  # a chain of causes may be a ring
            if seen is None or seen is failure:
                break
            seen = seen.__cause__ or seen.__context__
        return name if failure is not None and seen is failure else ""

    def _cancel_failure(self, error: BaseException) -> WorkFailure:
        code = self.handle.cancel_code
        if code is CancelCode.NONE:
            return WorkFailure(cause=Cause.CANCELLED, reason="the workflow cancelled itself")
        if code not in _SHOW_WHERE:
            return WorkFailure(cause=CAUSES[code], reason=CANCEL_REASONS[code])
        # The supervisor's sentence has its measurements: how long it was silent, how long it ran, or where it spun.
        reason = self.handle.cancel_reason or CANCEL_REASONS[code]
        return WorkFailure(cause=CAUSES[code], reason=reason, evidence=exception_evidence(error))

    def suspended(self, waits: WaitsFor) -> WorkResult:
        """Returns the outcome of an attempt whose work waits. Its checkpoint is kept with its steps: an engine forgets a key after a day."""
        try:
            self.handle.keep_checkpoint_as_step()
        except (TenureError, Cancelled) as error:
            return self.result(WorkFailure(cause=Cause.LEASE_LOST, reason=str(error)))
        result = self.result()
        return msgspec.structs.replace(result, suspended=waits, version=waits.version or self._prepared().version)

    def result(self, failure: WorkFailure | None = None, *, value: bytes = b"null") -> WorkResult:
        handle = self.handle
        if failure is not None:
            shown = self.record.read(cold=False)
            failure = failure.after_beats(handle.history, handle.occupant, shown, self._clock)
        return WorkResult(
            job_id=self.item.job_id,
            workflow_id=self.item.workflow_id,
            workflow=self.item.workflow,
            attempt=self.occupant.attempt,
            fence=self.delivery.fence,
            worker=self._worker,
            result=msgspec.Raw(value),
            failure=failure,
            beats=self.record.steps,
            seconds=self._clock.monotonic() - self.begun,
            redelivered=self.delivery.attempt - 1 if self.item.managed else 0,
            mark=self.handle.saved_mark,
            exposed=handle.occupant.exposed,
            silence=silence_of(handle.occupant, self.record, self._clock),
            undoes=handle.has_compensations and not self.item.undo_of,
        )


class MarkedCoroutine(CoroutineABC[Any, Any, Any]):
    """Wraps a coroutine and marks its record while it runs, so that the supervisor knows which attempt blocks an event loop."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], record: BeatRecord) -> None:
        self._coroutine, self._record = coroutine, record

    def send(self, value: Any) -> Any:
        self._record.set_active(True)
        try:
            return self._coroutine.send(value)
        finally:
            self._record.set_active(False)

    def throw(self, *error: Any) -> Any:
        self._record.set_active(True)
        try:
            return self._coroutine.throw(*error)
        finally:
            self._record.set_active(False)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._coroutine.__await__())


def _tell(result: WorkResult, *spans: tracing.Spanned) -> None:
    if result.failure is not None:
        for span in spans:
            span.fail(f"{result.failure.cause}: {result.failure.reason}", result.failure.evidence.get("traceback", ""))


def _outcome(task: asyncio.Task[Any]) -> Any:
    return task.result()

"""Runs attempts without slot processes: async workflows on the event loop, sync ones in threads. For tests, notebooks and tiny set-ups.

Attempts, watches and settlements are those of slot processes, so a stall is noticed here, too. Only the end differs: a thread cannot be
killed. An attempt that does not stop when it is asked to is abandoned: its result is ignored, and its seat gets a new record to beat on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, Protocol

from tenure.beat.board import BeatBoard, BeatRecord, Phase
from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Mailbox, Message
from tenure.errors import ReceiptHandleExpiredError, TenureError
from tenure.ids import IdSource, new_id
from tenure.nodes.loop_keeper import LoopKeeper, ProductFailures
from tenure.nodes.slot_runner import SlotsView
from tenure.nodes.worker.board_report import attempt_report
from tenure.work.attempt_handle import CancelCode
from tenure.work.children import JobCourier
from tenure.work.envelope import WorkFailure, WorkItem, WorkResult
from tenure.work.registry import Registry
from tenure.work.slots.attempt import CAUSES, Attempt, failure_of_tenure, unstarted_result
from tenure.work.slots.attempt_logs import MemoryLogHandler, log_key
from tenure.work.slots.attempt_watch import Act, AttemptWatch
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.settler import ONCE, Settler

REST_S = 1.0
WORKFLOW_LOGGER = "tenure.workflow"
_NOT_CAUSED_BY_WORK = (CancelCode.NONE, CancelCode.DRAIN)


class Threads(Protocol):
    """Starts the threads of sync workflows. A test kit brings its own, which knows when they stand still."""

    def start(self, work: Callable[[], None]) -> None: ...


class DaemonThreads:
    """Starts a daemon thread for each attempt, so that an abandoned one keeps no program from ending."""

    def start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="tenure-workflow", daemon=True).start()


class Seated:
    """One attempt that runs here."""

    def __init__(self, attempt: Attempt, watch: AttemptWatch, ended: asyncio.Future[WorkResult]) -> None:
        self.attempt, self.watch, self.ended = attempt, watch, ended


class InlineSlots:
    """A `SlotRunner`. Call `run` on the event loop that shall do the work; cancelling it hands over the running attempts."""

    def __init__(
        self,
        engine: Engine,
        calls: Calls,
        registry: Registry,
        settings: SlotSettings,
        *,
        worker: str,
        clock: Clock,
        random: Random,
        ids: IdSource = new_id,
        threads: Threads | None = None,
        courier: Callable[[], JobCourier] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._engine, self._calls, self.registry, self.settings = engine, calls, registry, settings
        self._worker = worker
        """The worker's name, under which the leader knows it and excludes it. The incarnation changes with an eviction; the name stays."""
        self._clock, self._ids, self._say = clock, ids, say
        self._threads = threads or DaemonThreads()
        self._courier = courier
        self._mailbox: Mailbox[WorkItem, WorkResult] = engine.mailbox(settings.queue, WorkItem, WorkResult)
        self._logs, self._held = engine.store("logs"), MemoryLogHandler()
        self._settler = Settler(engine, clock=clock, random=random, say=say)
        self._incarnation = ids()
        self._seated: dict[int, Seated] = {}
        self._most: int | None = None
        self._bell: Callable[[], None] = lambda: None
        self._completed = self._failed = self._steps = self._mishaps = 0
        self._draining = self._crashed = False
        self._keeper = LoopKeeper(clock, random, ProductFailures(clock, say), say=say)

    # Called by the worker node (`SlotRunner`)

    @property
    def incarnation(self) -> str:
        return self._incarnation

    def view(self) -> SlotsView:
        now, boottime = self._clock.monotonic(), self._clock.boottime()
        read = [(one.attempt.record, one.attempt.record.read()) for one in self._seated.values()]
        reports = [attempt_report(reading, now, record.lease_of(reading.serial) - boottime) for record, reading in read]
        attempts = tuple(one for one in reports if one is not None)
        return SlotsView(
            attempts=attempts,
            slots=self.settings.slots,
            free=self.settings.slots - len(self._seated),
            accepting=not self._draining,
            lanes=(self.settings.queue,),
            completed=self._completed,
            failed=self._failed,
            steps=self._steps + sum(reading.steps for _, reading in read),
            mishaps=self._mishaps,
        )

    def listen(self, bell: Callable[[], None]) -> None:
        self._bell = bell

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        self._most = most

    def cancel(self, job: str, *, workflow_id: str = "", attempt: int = 0, reason: str = "") -> bool:
        found = [
            one
            for one in self._seated.values()
            if (occupant := one.attempt.occupant).job == job
            and workflow_id in ("", occupant.workflow_id)
            and attempt in (0, occupant.attempt)
        ]
        for one in found:
            self._stop(one, CancelCode.CANCEL, reason or "cancelled by request")
        return bool(found)

    def evict(self, reason: str) -> None:
        for one in self._seated.values():
            self._stop(one, CancelCode.DRAIN, reason)
        self._incarnation = self._ids()
        self._completed = self._failed = self._steps = 0
        self._bell()

    # Running the seats

    def crash(self) -> None:
        """For tests: cancelling `run` after this leaves behind what a killed worker would. It hands nothing over."""
        self._crashed = True

    async def run(self) -> None:
        """Claims and runs work until it is cancelled."""
        logging.getLogger().addHandler(self._held)
        if not logging.getLogger(WORKFLOW_LOGGER).level:
            logging.getLogger(WORKFLOW_LOGGER).setLevel(logging.INFO)
        seats = [asyncio.create_task(self._keep(seat)) for seat in range(self.settings.slots)]
        try:
            # Not `gather`: when this call is cancelled, it would cancel the seats, too, before they could hand over.
            done, _ = await asyncio.wait(seats, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            await self._hand_over(seats)
            logging.getLogger().removeHandler(self._held)
        for seat in done:
            seat.result()

    async def _hand_over(self, seats: list[asyncio.Task[None]]) -> None:
        """Asks the running attempts to stop. An attempt that stops in time is released, and goes on at another worker from its checkpoint."""
        self._draining = True
        for one in list(self._seated.values()):
            if self._crashed:
                one.attempt.handle.cancel(CancelCode.LEASE_LOST)
            else:
                self._stop(one, CancelCode.DRAIN, "the worker is shutting down")
        busy = {f"seat-{index}" for index in self._seated} if not self._crashed else set()
        for seat in seats:
            if seat.get_name() not in busy:
                seat.cancel()
        await asyncio.gather(*seats, return_exceptions=True)

    async def _keep(self, seat: int) -> None:
        """Keeps one seat serving. When handling a message raises, the message is left to its lease, and the seat takes the next one."""
        task = asyncio.current_task()
        assert task is not None
        task.set_name(f"seat-{seat}")
        await self._keeper.keep(f"seat {seat}", partial(self._serve, seat))

    async def _serve(self, seat: int) -> None:
        record = self._new_record()
        while not self._draining:
            message = await self._claim(seat)
            if message is None:
                continue
            try:
                ended = await self._run(seat, message, record)
            except Exception as error:
                await self._fail_alone(message, error)
                ended = False
            if not ended:
                record = self._new_record()  # an abandoned attempt may still beat on the old record

    def _new_record(self) -> BeatRecord:
        # Never closed: an abandoned attempt may still write to it. Python frees it when the last reference is gone.
        return BeatBoard.private(1).records[0]

    async def _claim(self, seat: int) -> Message[WorkItem, WorkResult] | None:
        if self._most is not None and seat >= self._most:
            await self._clock.async_sleep(REST_S)
            return None
        try:
            found = await self._calls.run(
                self._mailbox.receive, 1, self.settings.claim_s, self.settings.wait_s, provisional=True
            )
        except TenureError as error:
            if not error.retryable:
                raise
            self._say(f"cannot claim work: {error}")
            await self._clock.async_sleep(REST_S)
            return None
        return found[0] if found else None

    async def _run(self, seat: int, message: Message[WorkItem, WorkResult], record: BeatRecord) -> bool:
        """Runs one attempt from claim to settlement. Returns False when it was abandoned."""
        attempt = Attempt(
            message,
            record,
            registry=self.registry,
            clock=self._clock,
            queue=self.settings.queue,
            stall_s=self.settings.stall_s,
            worker=self._worker,
            courier=self._courier,
        )
        failure = attempt.prepare()
        if failure is not None:
            await self._settle(attempt, attempt.result(failure))
            return True
        watch = AttemptWatch(
            attempt.occupant,
            self.settings.extend_every_s,
            self.settings.grace_s,
            message.lease_until,
            self.settings.settle_within_s,
        )
        one = self._seated[seat] = Seated(attempt, watch, self._begin(attempt))
        self._bell()
        try:
            abandoned = await self._watch(one)
        finally:
            del self._seated[seat]
            self._steps += record.read().steps
        result = abandoned or one.ended.result()
        await self._settle(attempt, result)
        self._bell()
        return abandoned is None

    async def _fail_alone(self, message: Message[WorkItem, WorkResult], error: Exception) -> None:
        """Settles a message on which Tenure's own code failed. That ends the attempt of this message, and nothing else."""
        self._mishaps += 1
        self._failed += 1
        failure, item = failure_of_tenure(error), message.body
        self._say(f"failed on {item.workflow[:200]!r}: {failure.reason}\n{failure.evidence.get('traceback', '')}")
        known = self.registry.knows(item.workflow, item.version)
        workflow = self.registry.find(item.workflow, item.version) if known else None
        try:
            await self._calls.run(
                self._settler.settle,
                message,
                unstarted_result(message, self._worker, failure),
                managed=item.managed,
                retry=workflow.retry if workflow else ONCE,
            )
        except Exception as again:  # then the lease runs out, and the engine delivers the message again
            self._say(f"and could not settle it: {again!r}")

    def _begin(self, attempt: Attempt) -> asyncio.Future[WorkResult]:
        assert attempt.workflow is not None
        if attempt.workflow.is_async:
            return asyncio.create_task(_guard(attempt.run_async()))
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[WorkResult] = loop.create_future()

        def work() -> None:
            result = attempt.run_sync()
            try:
                loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(result))
            except RuntimeError:
                return  # the attempt was abandoned, and the loop has ended since

        self._threads.start(work)
        return ended

    async def _watch(self, one: Seated) -> WorkResult | None:
        """Watches an attempt until it ends. Returns None to settle its own result, or the result to settle in its place."""
        record, watch = one.attempt.record, one.watch
        while not one.ended.done():
            verdict = watch.step(record.read(), self._clock.monotonic(), self._clock.boottime())
            if verdict.act is Act.EXTEND:
                await self._extend(one)
            elif verdict.act is Act.CANCEL:
                self._stop(one, verdict.code, verdict.reason)
            elif verdict.act is Act.KILL:
                self._say(f"{watch.occupant.workflow} ({watch.occupant.job}) does not stop, and is abandoned")
                one.ended.cancel()
                return one.attempt.result(self._blame(watch, "; it did not stop, and was abandoned"))
            nap = asyncio.ensure_future(self._clock.async_sleep(self.settings.tick_s))
            try:
                both: tuple[asyncio.Future[Any], ...] = (one.ended, nap)
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                nap.cancel()
        result = one.ended.result()
        if result.failure is not None and watch.code not in _NOT_CAUSED_BY_WORK:
            return one.attempt.result(self._blame(watch, ""))  # the watch's reason says more than "cancelled"
        return None

    def _blame(self, watch: AttemptWatch, more: str) -> WorkFailure:
        return WorkFailure(cause=CAUSES[watch.code], reason=f"{watch.reason}{more}")

    def _stop(self, one: Seated, code: CancelCode, reason: str) -> None:
        if one.watch.code is CancelCode.NONE:
            one.watch.cancel(code, reason, self._clock.monotonic())
        occupant = one.watch.occupant
        self._say(f"{occupant.workflow} ({occupant.job}), attempt {occupant.attempt}: {one.watch.reason}")
        one.attempt.record.request_cancel(code, one.attempt.record.serial)
        one.attempt.handle.look()

    async def _extend(self, one: Seated) -> None:
        watch, record = one.watch, one.attempt.record
        watch.extending(record.read(), self._clock.monotonic())
        # Counted from before the call: the engine's lease begins later, so this worker never believes in a lease that is over.
        asked = self._clock.boottime()
        try:
            await self._calls.run(one.attempt.message.extend_visibility, self.settings.lease_s)
        except ReceiptHandleExpiredError as error:
            self._stop(one, CancelCode.LEASE_LOST, str(error))
        except TenureError as error:
            self._say(f"cannot extend the lease of {watch.occupant.workflow} yet: {error}")
            watch.extension_failed(self._clock.monotonic(), retry_in_s=min(1.0, self.settings.lease_s / 20))
        else:
            watch.extended(asked + self.settings.lease_s)
            record.set_lease_until(watch.lease_until, record.serial)

    async def _settle(self, attempt: Attempt, result: WorkResult) -> None:
        attempt.record.set_phase(Phase.SETTLING)
        attempt.message.lease_until = max(attempt.message.lease_until, attempt.record.lease_until)
        workflow, occupant = attempt.workflow, attempt.occupant
        key = log_key(occupant.job, occupant.workflow_id or occupant.workflow, occupant.attempt)
        try:
            await self._calls.run(self._held.keep, self._logs, attempt.handle, key=key, fence=attempt.message.fence)
            await self._calls.run(
                self._settler.settle,
                attempt.message,
                result,
                managed=attempt.occupant.managed,
                retry=workflow.retry if workflow else ONCE,
            )
        except TenureError as error:
            self._say(f"the outcome of {attempt.item.workflow} could not be settled: {error}")
        finally:
            attempt.record.clear()
        if result.failure is None:
            self._completed += 1
        else:
            self._failed += 1


async def _guard(running: Coroutine[Any, Any, WorkResult]) -> WorkResult:
    return await running

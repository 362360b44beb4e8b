"""Runs attempts without slot processes: async workflows on the event loop, sync ones in threads. For tests, notebooks and tiny set-ups.

Attempts, watches and settlements are those of slot processes (`work.runner`), so a stall is noticed here, too. Only the end differs: a
thread cannot be killed. An attempt that does not stop when it is asked to is abandoned: its result is ignored, and its seat gets a new
record to beat on.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from tenure.backoff import Backoff
from tenure.beat.board import BeatBoard
from tenure.beat.lease import ExtensionOutcome
from tenure.beat.record import BeatReading, BeatRecord
from tenure.engines.contracts import Fence
from tenure.errors import TenureError
from tenure.nodes.loop_keeper import LoopKeeper, ProductFailures
from tenure.nodes.process import Environment
from tenure.nodes.slot_runner import SlotsView, attempt_report
from tenure.work.attempt import Attempt
from tenure.work.attempt_failures import CAUSES, describe_error
from tenure.work.attempt_logs import AttemptLogHandler
from tenure.work.attempt_steps import Steps, await_steps
from tenure.work.attempt_watch import Act
from tenure.work.delivery import CancelCode, EngineDelivery, WorkFailure, WorkMessage, WorkResult
from tenure.work.job_submission import JobCourier
from tenure.work.log_lines import MemoryLines
from tenure.work.registry import Registry
from tenure.work.runner import AttemptRunner
from tenure.work.slots.claims import ClaimFilter, RankedClaims
from tenure.work.slots.settings import SlotSettings
from tenure.work.wait_brake import WaitBrake
from tenure.work.watched_attempt import WatchedAttempt

T = TypeVar("T")
WORKFLOW_LOGGER = "tenure.workflow"
_NOT_CAUSED_BY_WORK = (CancelCode.NONE, CancelCode.DRAIN)


def start_daemon_thread(work: Callable[[], None]) -> None:
    """Starts the thread of a sync workflow. A daemon, so that an abandoned one keeps no program from ending."""
    threading.Thread(target=work, name="tenure-workflow", daemon=True).start()


class SeatedAttempt:
    """One attempt that runs here."""

    def __init__(self, attempt: Attempt, watched: WatchedAttempt) -> None:
        self.attempt, self.watched = attempt, watched
        self.outcome: asyncio.Future[WorkResult] = asyncio.get_running_loop().create_future()
        """The result to settle: the attempt's own, or one that says that it was abandoned."""
        self.task: asyncio.Task[WorkResult] | None = None
        self.abandoned = False

    def end(self, result: WorkResult) -> None:
        """Sets the outcome, unless there is one: the result of an abandoned attempt comes too late."""
        if not self.outcome.done():
            self.outcome.set_result(result)


class InlineSlots:
    """A `SlotRunner`. Call `run` on the event loop that shall do the work; cancelling it hands over the running attempts."""

    def __init__(
        self,
        environment: Environment,
        registry: Registry,
        settings: SlotSettings,
        *,
        worker: str,
        start_thread: Callable[[Callable[[], None]], None] = start_daemon_thread,
        courier: Callable[[], JobCourier] | None = None,
    ) -> None:
        self._calls, self.registry, self.settings = environment.calls, registry, settings
        self._clock, self._random, self._log = environment.clock, environment.random, environment.log
        self._ids = environment.ids
        self._start_thread, self._courier = start_thread, courier
        engine, clock, random, log = environment.engine, self._clock, self._random, self._log
        self._mailboxes = RankedClaims(engine, settings.lanes, registry)
        self._attempt_log = AttemptLogHandler(MemoryLines(), clock)
        self._runner = AttemptRunner(
            engine, registry, settings, self._attempt_log, worker=worker, clock=clock, random=random, log=log
        )
        self._claim_filter = ClaimFilter(worker, knows=registry.knows)
        self._away = Backoff(random, first_s=0.2, most_s=2.0)  # while the engine does not answer
        self._incarnation, self._records = environment.ids(), itertools.count()
        self._tasks, self._background = dict[int, asyncio.Task[None]](), set[asyncio.Task[Any]]()
        self._seated: dict[int, SeatedAttempt] = {}  # by seat as the tasks are, until their outcome is settled
        self._brake = WaitBrake()
        self.hold = self._brake.tell
        self._most: int | None = None
        self._peers: int | None = None  # other workers that could do the same work; None until a leader has said so
        self._room, self._busy = asyncio.Event(), asyncio.Event()
        self._bell: Callable[[], None] = lambda: None
        self._completed = self._failed = self._steps = self._mishaps = 0
        self._draining = self._crashed = False
        self._keeper = LoopKeeper(clock, random, ProductFailures(clock, log))

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
            lanes=self.settings.lanes,
            completed=self._completed,
            failed=self._failed,
            steps=self._steps + sum(reading.steps for _, reading in read),
            serves=self._mailboxes.cover(),
            mishaps=self._mishaps,
        )

    def listen(self, bell: Callable[[], None]) -> None:
        self._bell = bell

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        self._most, self._peers = most, peers
        self._make_room()

    def cancel(
        self, job: str, *, workflow_id: str = "", attempt: int = 0, fence: Fence | None = None, reason: str = ""
    ) -> bool:
        seated = self._seated.values()
        found = [one for one in seated if one.attempt.occupant.is_of(job, workflow_id, attempt, fence)]
        for one in found:
            if one.watched.watch.code is CancelCode.NONE:
                self._ask_to_end(one, CancelCode.CANCEL, reason or "cancelled by request")
        return bool(found)

    def evict(self, reason: str) -> None:
        for one in self._seated.values():
            self._ask_to_end(one, CancelCode.DRAIN, reason)
        self._incarnation = self._ids()
        self._completed = self._failed = self._steps = 0
        self._bell()

    # Running the seats

    def crash(self) -> None:
        """Simulates a killed worker, for tests: cancelling `run` after this leaves behind what a killed worker would. It hands nothing over."""
        self._crashed = True

    async def run(self) -> None:
        """Claims and runs work until it is cancelled."""
        logging.getLogger().addHandler(self._attempt_log)
        (logger := logging.getLogger(WORKFLOW_LOGGER)).setLevel(logger.level or logging.INFO)
        self.registry.surroundings.begin()
        watching = asyncio.create_task(self._keeper.keep("watch over the attempts", self._watch))
        self._seat_all()
        try:
            # Not `gather`: when this call is cancelled, it would cancel the seats, too, before they could hand over.
            done, _ = await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
        finally:
            await self._hand_over()
            watching.cancel()
            await self.registry.surroundings.end()
            logging.getLogger().removeHandler(self._attempt_log)
        for seat in done:
            seat.result()

    def _seat_all(self) -> None:
        self._tasks = {seat: asyncio.create_task(self.keep_seat(seat)) for seat in range(self.settings.slots)}

    async def _hand_over(self) -> None:
        """Asks the running attempts to stop. An attempt that stops in time is released, and goes on at another worker from its checkpoint."""
        self._draining = True
        for one in list(self._seated.values()):
            if self._crashed:
                one.attempt.handle.cancel(CancelCode.LEASE_LOST)
            else:
                self._ask_to_end(one, CancelCode.DRAIN, "the worker is shutting down")
        for seat, task in self._tasks.items():
            if self._crashed or seat not in self._seated:
                task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def keep_seat(self, seat: int) -> None:
        """Keeps one seat serving. When handling a message raises, the message is left to its lease, and the seat takes the next one."""
        await self._keeper.keep(f"seat {seat}", partial(self._serve, seat))

    async def _serve(self, seat: int) -> None:
        record = self._new_record()
        while not self._draining:
            claim = await self._claim()
            if claim is None:
                continue
            delivery = self._delivery_of(claim)
            try:
                ended = await self._run(seat, delivery, record)
            except Exception as error:
                await self.fail_alone(delivery, error)
                ended = False
            if not ended:
                record = self._new_record()  # an abandoned attempt may still beat on the old record

    async def fail_alone(self, delivery: EngineDelivery, error: Exception) -> None:
        self._mishaps += 1
        self._failed += 1
        await self._take(self._runner.fail_alone(delivery, error))

    def _new_record(self) -> BeatRecord:
        # Never closed: an abandoned attempt may still write to it. Python frees it when the last reference is gone.
        record = BeatBoard.private(1).records[0]
        record.index = next(self._records)  # the log of the attempt is kept by it
        return record

    def _delivery_of(self, message: WorkMessage) -> EngineDelivery:
        lane = self._mailboxes.lane_of(message.mailbox)
        return EngineDelivery(message, message.mailbox, self._runner.settler, self._clock, self._courier, lane)

    async def _take(self, steps: Steps[T]) -> T:
        return await await_steps(steps, self._calls, self._clock)

    # Claiming

    def _has_room(self) -> bool:
        return self._most is None or len(self._seated) < self._most

    def _make_room(self) -> None:
        if self._has_room():
            self._room.set()

    async def _claim(self) -> WorkMessage | None:
        """Returns at most one message, under a short lease, that this worker may run now."""
        while not self._has_room():
            self._room.clear()
            await self._room.wait()
        try:
            claim = await self._mailboxes.claim(self._calls, self.settings.claim_s, self.settings.wait_s)
        except TenureError as error:
            if not error.retryable:
                raise
            self._log.warning(f"cannot claim work: {error}")
            await self._clock.async_sleep(self._away.next())
            return None
        self._away.reset()
        if claim is None:
            return None
        if self._claim_filter.declines(claim.body, self._peers, self._clock.monotonic()):
            await self._take(self._runner.give_back(self._delivery_of(claim)))
            await self._clock.async_sleep(self._claim_filter.next_pause_s(self._random.random()))
            return None
        if self._draining or not self._has_room():
            await self._take(self._runner.give_back(self._delivery_of(claim)))
            return None
        return claim

    # Running an attempt

    async def _run(self, seat: int, delivery: EngineDelivery, record: BeatRecord) -> bool:
        """Runs one attempt from claim to settlement. Returns False when it was abandoned."""
        attempt = self._runner.begin(delivery, record)
        try:
            failure = attempt.prepare()
            if failure is not None:
                await self._conclude(attempt, attempt.result(failure))
                return True
            watched = WatchedAttempt.of(record, attempt.occupant, record.serial, self.settings)
            one = self._seated[seat] = self._seat(attempt, watched)
            self._start(one)
            self._busy.set()
            self._bell()
            try:
                await self._conclude(attempt, self.blamed(one, await one.outcome))
            finally:
                self._leave(seat, one)
        finally:
            record.clear()
        return not one.abandoned

    def _seat(self, attempt: Attempt, watched: WatchedAttempt) -> SeatedAttempt:
        return SeatedAttempt(attempt, watched)

    def _leave(self, seat: int, one: SeatedAttempt) -> None:
        if self._seated.get(seat) is one:
            del self._seated[seat]
            self._steps += one.attempt.record.read().steps
        self._make_room()
        self._bell()

    async def _conclude(self, attempt: Attempt, result: WorkResult) -> None:
        await self._take(self._runner.conclude(attempt, result))
        self._completed += result.failure is None
        self._failed += result.failure is not None

    def _start(self, one: SeatedAttempt) -> None:
        attempt, loop = one.attempt, asyncio.get_running_loop()
        assert attempt.workflow is not None
        if attempt.workflow.is_async:
            one.task = asyncio.create_task(attempt.run_async())
            one.task.add_done_callback(partial(_pass_on, one))
            return

        def work() -> None:
            result = attempt.run_sync()
            with contextlib.suppress(RuntimeError):  # the attempt was abandoned, and the loop has ended since
                loop.call_soon_threadsafe(one.end, result)

        self._start_thread(work)

    def blamed(self, one: SeatedAttempt, result: WorkResult) -> WorkResult:
        """Returns the result to settle. Where the watch ended the attempt, its reason says more than "cancelled"."""
        watch = one.watched.watch
        if one.abandoned or result.failure is None or watch.code in _NOT_CAUSED_BY_WORK:
            return result
        return one.attempt.result(WorkFailure(cause=CAUSES[watch.code], reason=watch.reason))

    # Watching the attempts, as the supervisor of slot processes does

    async def _watch(self) -> None:
        while True:
            await self._busy.wait()
            while self._seated:
                await self._clock.async_sleep(self.settings.tick_s)
                for one in list(self._seated.values()):
                    self.look_at(one)
            self._busy.clear()

    def look_at(self, one: SeatedAttempt) -> None:
        watched, reading = one.watched, one.attempt.record.read()
        watched.watch.occupant = reading.occupant or watched.watch.occupant
        self._brake.look(watched, reading, self._clock.monotonic())
        verdict = watched.watch.step(reading, self._clock.monotonic(), self._clock.boottime())
        watched.record.set_longest_gap(watched.watch.gaps.longest_s, watched.serial)
        if verdict.act is Act.EXTEND and not watched.extending:
            self._in_background(partial(self.extend_lease, one, reading))
        elif verdict.act is Act.CANCEL:
            self._ask_to_end(one, verdict.code, verdict.reason)
        elif verdict.act is Act.KILL:
            self._abandon(one)

    async def extend_lease(self, one: SeatedAttempt, reading: BeatReading) -> ExtensionOutcome:
        lease_s = self.settings.lease_s
        delivery = one.attempt.delivery
        assert isinstance(delivery, EngineDelivery), "attempts here are made from one"
        call = partial(delivery.extend, lease_s)
        extension = await self._take(one.watched.extend(call, reading, lease_s, self._clock, self._log))
        lost = extension is ExtensionOutcome.EXPIRED and one.watched.watch.code is CancelCode.NONE
        if lost and not one.outcome.done():
            self._ask_to_end(one, CancelCode.LEASE_LOST, one.watched.lost_because)
        return extension

    def _in_background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Begins `work` in a task of its own. It is a function, because a task that is cancelled before it begins would leave a coroutine behind."""
        task = asyncio.create_task(self._alone(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _alone(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Does work that nobody waits for. What it raises is said, because nobody else would hear of it; the next tick tries again."""
        try:
            await work()
        except Exception as error:
            self._mishaps += 1
            self._log.error(f"failed beside the attempts: {describe_error(error)}")

    def _ask_to_end(self, one: SeatedAttempt, code: CancelCode, reason: str) -> None:
        one.watched.judge(code, reason, self._clock, self._log)
        one.watched.ask_to_end(code)
        one.attempt.handle.look()

    def _abandon(self, one: SeatedAttempt) -> None:
        """Gives up an attempt that does not end in its grace. A thread cannot be killed, so it may go on; nobody hears of it."""
        if one.outcome.done():
            return  # it has ended, and its outcome is being settled
        watch = one.watched.watch
        self._log.warning(f"{watch.occupant.workflow} ({watch.occupant.job}) does not stop, and is abandoned")
        one.abandoned = True
        if one.task is not None:
            one.task.cancel()
        reason = f"{watch.reason}; it did not stop, and was abandoned"
        one.end(one.attempt.result(WorkFailure(cause=CAUSES[watch.code], reason=reason)))


def _pass_on(one: SeatedAttempt, task: asyncio.Task[WorkResult]) -> None:
    if task.cancelled() or one.outcome.done():
        return
    error = task.exception()
    if error is None:
        one.end(task.result())
    else:
        one.outcome.set_exception(error)

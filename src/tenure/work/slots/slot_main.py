"""The slot process: it runs the work that its supervisor hands over, one attempt at a time, or several async workflows on one event loop.

    python -c 'from tenure.work.slots.slot_main import main; main()' FD

It has no engine and no credentials: work comes, and outcomes go, over its channel. It writes its state to the beat board, from which the
supervisor extends its leases. While work runs, a second thread listens to the supervisor, so that a cancellation does not wait for a beat, and
counts the leases down itself in case the supervisor is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, NoReturn, TypeVar

import msgspec

from tenure import tracing
from tenure.beat.board import BeatBoard
from tenure.beat.record import Phase
from tenure.work.attempt import Attempt
from tenure.work.attempt_failures import failure_of_tenure, unstarted_result
from tenure.work.attempt_handle import AttemptHandle
from tenure.work.attempt_steps import Steps, await_steps, run_steps
from tenure.work.delivery import CancelCode, Cause, WorkFailure, WorkHead, WorkResult
from tenure.work.log_lines import FileLines
from tenure.work.registry import Registry
from tenure.work.slots.claim_page import ClaimPage
from tenure.work.slots.frames import (
    UNREADABLE,
    CancelAttempt,
    DrainSlot,
    FrameChannel,
    HandOver,
    ServeRecords,
    SlotAnswer,
    SlotBroken,
    SlotFrame,
    SlotReady,
    SlotTrouble,
    StartSlot,
    WorkFinished,
)
from tenure.work.slots.processes import StartedProcesses, adopt_orphans, die_with_parent, has_children, kill_tree
from tenure.work.slots.reading_turns import ReadingTurns
from tenure.work.slots.slot_channel import ChannelDelivery, SlotChannel, decline
from tenure.work.slots.slot_ground import SlotGround, prepare

T = TypeVar("T")
BROKEN_EXIT = 3
LOOK_EVERY_S = 0.25
END_TREE_S = 1.0
"""Processes that an attempt left behind have at most this long to end after SIGTERM, or the grace where that is shorter."""
UNATTENDED_S = 3.0
"""The slot starts nothing when its supervisor has not looked at the board for this long. A supervisor looks ten times a second."""


class Slot:
    """The parts of a slot process, and its main loop."""

    def __init__(self, start: StartSlot, channel: FrameChannel, ground: SlotGround, registry: Registry) -> None:
        self.clock, self._log_handler, self.registry = ground.clock, ground.log_handler, registry
        self.channel = SlotChannel(channel)
        self.settings = start.slot_settings()
        self.worker = start.worker or start.incarnation
        self.board, self.claims = BeatBoard.open(Path(start.board)), ClaimPage.open(Path(start.claims))
        self.records: list[int] = []
        self.draining = threading.Event()
        self.going = threading.Event()
        self.handles: dict[int, AttemptHandle] = {}
        self.processes = StartedProcesses(self.clock, grace_s=min(END_TREE_S, self.settings.grace_s))
        self._inbox: SimpleQueue[HandOver | None] = SimpleQueue()
        """The work at hand; None after the last of it."""
        self._take: Callable[[list[HandOver | None]], object] = self._fill_inbox
        self._turns = ReadingTurns(channel.socket, self._read)
        self._cancelled_at: dict[int, float] = {}
        self._taken = self._over = 0
        """Items that came, which only the thread counts that has the turn to read, and those that are over, which only the thread counts that runs them."""
        self._pid = os.getpid()

    def trouble(self, text: str) -> None:
        self.channel.frames.send(SlotTrouble(text))

    def _fill_inbox(self, works: list[HandOver | None]) -> None:
        for work in works:
            self._inbox.put(work)

    def serve(self) -> None:
        """Runs what comes until the slot drains, one attempt at a time."""
        with asyncio.Runner() as runner:
            while (work := self._next_work()) is not None:
                run_steps(self.attempt_steps(work, self.records[0]), self.clock, runner.run)
            runner.run(self.registry.surroundings.end())

    def _next_work(self) -> HandOver | None:
        """Returns the next item; None after the last. While there is none, this thread reads the channel itself: work begins a thread's wake-up sooner."""
        if self._inbox.empty():
            self._turns.read_while(self._inbox.empty)
        return self._inbox.get()

    async def serve_async(self) -> None:
        """Runs several attempts at a time, each in a record of its own: async workflows on this event loop, sync ones in threads.

        The supervisor sees a blocked loop, and which attempt blocks it: every coroutine marks its record while it runs.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        free, running, waiting = list(self.records), set[asyncio.Task[None]](), list[HandOver]()
        with ThreadPoolExecutor(self.settings.concurrency + 2, thread_name_prefix="tenure-slot") as pool:
            calls = PoolCalls(pool)

            def fill() -> None:
                while waiting and free:
                    work, index = waiting.pop(0), free.pop()
                    task = asyncio.create_task(await_steps(self.attempt_steps(work, index), calls, self.clock))
                    running.add(task)
                    task.add_done_callback(partial(vacate, index))

            def vacate(index: int, task: asyncio.Task[None]) -> None:
                running.discard(task)
                free.append(index)
                fill()

            def take(works: list[HandOver | None]) -> None:
                waiting.extend(work for work in works if work is not None)
                fill()
                if None in works:
                    ended.set()

            # One call into the loop for all that arrived together. What arrived before is in the inbox.
            self._take = lambda works: loop.call_soon_threadsafe(take, works)
            while not self._inbox.empty():
                take([self._inbox.get()])
            await ended.wait()
            while running:
                await asyncio.wait(running)
            await self.registry.surroundings.end()

    def attempt_steps(self, work: HandOver, index: int) -> Steps[None]:
        """Runs one attempt in a record, from its hand-over to its outcome. What goes wrong on it ends it alone."""
        try:
            if (attempt := self._begun(work, index)) is None:
                return
            try:
                failure = attempt.prepare()
                result = attempt.result(failure) if failure is not None else (yield attempt.step())
            except Exception as error:
                result = attempt.result(failure_of_tenure(error))
            try:
                if os.getpid() != self._pid:
                    # A process that the workflow forked returned to here; only its parent may hand the outcome over.
                    os._exit(0)
                attempt.record.set_phase(Phase.SETTLING)
                # Before the outcome is handed over: the next attempt must not meet the processes of this one.
                if has_children():
                    yield partial(self.end_processes, attempt)
                self.processes.over(index)
                self._finish(attempt, work.number, result)
            finally:
                self.end(attempt)
        finally:
            self._over += 1

    def _begun(self, work: HandOver, index: int) -> Attempt | None:
        """Returns the attempt for a work that was handed over; None where it must not start, or never becomes one."""
        if not self._may_start(work):
            decline(work, self.channel)
            return None
        record, settings = self.board.records[index], self.settings
        try:
            delivery = ChannelDelivery(work, self.channel)
            attempt = Attempt(
                delivery, record, registry=self.registry, clock=self.clock, stall_s=settings.stall_s, worker=self.worker
            )
        except Exception as error:  # a message that no slot can take
            self._fail_unstarted(work, error)
            record.count_end(ok=False)
            return None
        self._log_handler.begin(attempt.handle)
        self.handles[index] = attempt.handle
        self.processes.begin(index)
        return attempt

    def _finish(self, attempt: Attempt, number: int, result: WorkResult) -> None:
        """Hands the outcome to the supervisor, which settles it."""
        seconds = self.clock.monotonic() - attempt.begun
        log = attempt.handle.log_place if self._log_handler.end(attempt.handle) else ""
        retry = attempt.workflow.retry if attempt.workflow and not result.ok else None
        if not self.channel.finish(number, result, seconds, log, retry):
            # The workflow closed the channel. The record says so until the supervisor, which sees it too, ends this slot.
            threading.Event().wait()
        attempt.record.count_end(ok=result.failure is None)

    def _may_start(self, work: HandOver) -> bool:
        """Returns False for an item that must not start here: it was withdrawn, its lease may be over, or nobody would extend it."""
        if self.draining.is_set() or self.unattended or self.clock.boottime() >= work.ticket.lease_until:
            return False
        return work.entry < 0 or self.claims.start(work.entry, work.number)

    @property
    def unattended(self) -> bool:
        """Returns True when the supervisor is stopped: it would extend no lease of ours, and other workers would wait for our claim to lapse."""
        return self.clock.monotonic() - self.board.ticked_at > UNATTENDED_S

    def _fail_unstarted(self, work: HandOver, error: Exception) -> None:
        """Fails one item that never became an attempt. Call it while handling the error."""
        bad = isinstance(error, UNREADABLE)
        failure = WorkFailure(cause=Cause.BAD_MESSAGE, reason=str(error)) if bad else failure_of_tenure(error)
        head = msgspec.json.decode(work.body, type=WorkHead)
        self.trouble(f"failed on {head.workflow[:200]!r}: {failure.reason}")
        known = self.registry.knows(head.workflow, head.version)
        retry = self.registry.find(head.workflow, head.version).retry if known else None
        result = unstarted_result(head, work.ticket, self.worker, failure)
        self.channel.frames.send(
            WorkFinished(work.number, 0.0, ok=False, result=msgspec.json.encode(result), retry=retry)
        )

    def end_processes(self, attempt: Attempt) -> None:
        occupant = attempt.occupant
        try:
            ended = self.processes.end(attempt.record.index)
        except OSError as error:  # of /proc: a workflow may have used up all file descriptors
            self.trouble(f"the processes of {occupant.workflow} could not be looked at: {error}")
            return
        if ended:
            self.trouble(f"{occupant.workflow} ({occupant.job}) left {ended} processes behind: ended")

    def end(self, attempt: Attempt) -> None:
        if self.processes.runs(attempt.record.index):  # it did not get as far as an outcome
            self.end_processes(attempt)
        attempt.record.clear()
        self.handles.pop(attempt.record.index, None)
        self._cancelled_at.pop(attempt.record.index, None)

    def listen(self) -> None:
        """Runs in the second thread: obeys the supervisor, ends the slot when the supervisor dies, and counts the leases down.

        A workflow that closes all file descriptors ends this thread. The supervisor sees the closed channel and kills this slot.
        """
        # While nothing is here there is no lease to count down, and a slot without work costs nothing.
        with contextlib.suppress(OSError, ValueError):
            for _ in self._turns.listen(lambda: None if self._taken == self._over else LOOK_EVERY_S):
                self._look()

    def _read(self) -> None:
        """Reads the channel, and obeys. Called by the thread whose turn it is."""
        frames = self.channel.frames
        self._obey(frames.read())
        if not frames.open:
            kill_tree(os.getpid())  # the supervisor is gone: end this process and all that it started

    def _obey(self, frames: list[SlotFrame]) -> None:
        works: list[HandOver | None] = []
        for frame in frames:
            if isinstance(frame, HandOver):
                works.append(frame)
                self._taken += 1
            elif isinstance(frame, SlotAnswer):
                self.channel.heard(frame)
            elif isinstance(frame, ServeRecords):
                self.records = list(frame.records)
                self.going.set()
            elif isinstance(frame, CancelAttempt):
                handle = self.handles.get(frame.record)
                if handle is not None:
                    handle.look()
            elif isinstance(frame, DrainSlot):
                self.draining.set()
                self.going.set()
                works.append(None)
        if works:
            self._take(works)

    def _look(self) -> None:
        """Ends this slot when a lease and its grace are over. The supervisor does so normally; one that is stopped kills nothing."""
        now = self.clock.monotonic()
        for index, handle in list(self.handles.items()):
            handle.look()
            if handle.cancel_code is CancelCode.LEASE_LOST:
                since = self._cancelled_at.setdefault(index, now)
                if now - since > self.settings.grace_s + 1.0:
                    kill_tree(os.getpid())


class PoolCalls:
    """Makes the calls of an async slot in a few threads."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    async def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args, **options))


def keep_import_folder() -> None:
    """Names the folder from which modules are imported first: an empty name is the current one, and follows a module that changes that."""
    if sys.path[:1] == [""]:
        sys.path[0] = str(Path.cwd())


def open_dump(folder: Path) -> IO[str]:
    """Opens the file for the stacks of this process. A fatal signal writes them, and SIGUSR1."""
    dump = (folder / f"stacks-{os.getpid()}.txt").open("w")
    faulthandler.enable(file=dump)
    faulthandler.register(signal.SIGUSR1, file=dump, all_threads=True)
    return dump


def read_start(channel: FrameChannel) -> StartSlot:
    """Waits for the first frame. Ends this process when the supervisor is gone."""
    frames: list[SlotFrame] = []
    while not frames and channel.open:
        frames += channel.read()
    if not frames or not isinstance(frames[0], StartSlot):
        os._exit(BROKEN_EXIT)
    return frames[0]


def run_slot(start: StartSlot, channel: FrameChannel, dump: IO[str], ground: SlotGround) -> NoReturn:
    """Serves until the slot drains, then ends the process."""
    try:
        if ground.registry is None:
            channel.send(ground.broken or SlotBroken("nothing was imported", ""))
            os._exit(BROKEN_EXIT)
        ground.log_handler.lines = FileLines(Path(start.folder))
        slot = Slot(start, channel, ground, ground.registry)
    except BaseException as error:
        channel.send(SlotBroken(f"{type(error).__name__}: {error}", traceback.format_exc()[-20_000:]))
        os._exit(BROKEN_EXIT)
    tracing.set_up("tenure-worker")
    channel.send(SlotReady(list(slot.registry.served)))
    threading.Thread(target=slot.listen, name="tenure-control", daemon=True).start()
    slot.going.wait()
    slot.processes.keep_present()
    if slot.records:  # not a spare one, which drains without having served
        slot.registry.surroundings.begin()
    if slot.settings.concurrency > 1:
        asyncio.run(slot.serve_async())
    else:
        slot.serve()
    tracing.flush()
    dump.close()
    os._exit(0)  # daemon threads of user code must not keep a drained slot alive


def main() -> None:
    """Takes the socket that the supervisor left open, reads the first frame, and starts the slot."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to handle
    keep_import_folder()
    channel = FrameChannel(socket.socket(fileno=int(sys.argv[1])))
    start = read_start(channel)
    die_with_parent(start.supervisor)
    adopt_orphans()
    dump = open_dump(Path(start.folder))
    run_slot(start, channel, dump, prepare(start.modules, start.slot_settings().memory_limit_mb))

"""The slot process: it claims work and does it, one attempt at a time.

    python -m tenure.work.slots.slot_main FD

It claims over its own engine connection and writes its state to the beat board. The supervisor extends its leases.
A second thread listens to the supervisor, so that a cancellation does not wait for a beat, and counts the lease down itself in case the
supervisor is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import resource
import selectors
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tenure import tracing
from tenure.backoff import Backoff
from tenure.beat.board import BeatBoard, Phase
from tenure.clock import Clock, SystemClock
from tenure.engines.contracts import Engine
from tenure.errors import MailboxClosedError, TenureError
from tenure.randomness import fresh_random
from tenure.work.attempt import Attempt
from tenure.work.attempt_logs import AttemptLogHandler, FileLines, LoggedStream
from tenure.work.delivery import AttemptHandle, CancelCode, EngineDelivery, WorkDelivery, WorkMessage
from tenure.work.envelope import WorkResult
from tenure.work.registry import Registry, load_module
from tenure.work.runner import AttemptRunner, run_steps
from tenure.work.slots.async_slot import serve_async
from tenure.work.slots.claims import ClaimedMessage, ClaimFilter, PriorityMailboxes
from tenure.work.slots.control_channel import (
    CancelAttempt,
    ControlChannel,
    DrainSlot,
    ServeRecords,
    SlotBroken,
    SlotIntake,
    SlotReady,
    SlotTrouble,
    StartSlot,
)
from tenure.work.slots.processes import StartedProcesses, adopt_orphans, die_with_parent, kill_tree

if TYPE_CHECKING:
    from tenure.work.children import JobCourier

BROKEN_EXIT = 3
LOOK_EVERY_S = 0.25
END_TREE_S = 1.0
"""Processes that an attempt left behind have at most this long to end after SIGTERM, or the grace where that is shorter."""
UNATTENDED_S = 3.0
"""The slot claims nothing when its supervisor has not looked at the board for this long. A supervisor looks ten times a second."""


class Slot:
    """The parts of a slot process, and its main loop."""

    def __init__(self, start: StartSlot, channel: ControlChannel, clock: Clock, log_handler: AttemptLogHandler) -> None:
        """Imports the modules and opens the engine. `run_slot` reports any error to the supervisor."""
        self.start, self.channel, self.clock = start, channel, clock
        self.settings = start.slot_settings()
        self.worker = start.worker or start.incarnation
        self.board = BeatBoard.open(Path(start.board))
        self.records = list(start.records)
        self.draining = threading.Event()
        self.admitted = threading.Event()
        """Set while this slot may claim. A drain sets it too, so that no thread waits for it for ever."""
        self.admitted.set()
        self.peers: int | None = (
            None if start.worker else 0
        )  # the leader sends the number to a worker of a datacenter, once it knows the worker
        self.going = threading.Event()
        self.handles: dict[int, AttemptHandle] = {}
        self.random = fresh_random()
        self.processes = StartedProcesses(clock, grace_s=min(END_TREE_S, self.settings.grace_s))
        self.broken = False
        """Set when this slot cannot claim any more; it ends when its attempts have ended."""
        self._cancelled_at: dict[int, float] = {}
        self._away = Backoff(self.random, first_s=0.1, most_s=5.0)
        """The pauses while the engine does not answer."""
        self._courier: JobCourier | None = None
        self._making_courier = threading.Lock()
        self._pid = os.getpid()
        self.registry = Registry.from_modules([load_module(name) for name in start.modules])
        self.claim_filter = ClaimFilter(self.worker, knows=self.registry.knows)
        self.engine = self._open_engine()
        self.mailboxes = PriorityMailboxes.of(self.engine, self.settings.lanes)
        self.runner = AttemptRunner(
            self.engine,
            self.registry,
            self.settings,
            log_handler,
            worker=self.worker,
            clock=clock,
            random=self.random,
            say=self.trouble,
        )

    def _open_engine(self) -> Engine:
        """Opens the engine; waits for one that is away or busy, and raises the error of one that refuses us."""
        while True:
            try:
                return Engine.open(self.start.engine_url, clock=self.clock)
            except TenureError as error:
                if not error.retryable:
                    raise
                self.trouble(f"cannot open the engine yet: {error}")
                self.clock.sleep(self._away.next())

    def trouble(self, text: str) -> None:
        self.channel.send(SlotTrouble(text))

    def serve(self) -> None:
        """Claims, runs and settles until the slot drains."""
        with asyncio.Runner() as runner:
            while not self.draining.is_set():
                claim = self.claim()
                if claim is not None:
                    self.run_one(claim, runner)

    def claim(self) -> ClaimedMessage | None:
        """Returns at most one message, under a short lease. While the engine is away it waits, with growing pauses."""
        self.admitted.wait()
        if self.draining.is_set():
            return None
        if self.unattended:
            self.draining.wait(LOOK_EVERY_S)
            return None
        try:
            claim = self.mailboxes.claim(self.settings.claim_s, self.settings.wait_s)
        except MailboxClosedError:
            self.draining.set()
            return None
        except TenureError as error:
            self.trouble(f"cannot claim work: {error}")
            if not error.retryable:
                # A successor opens the engine anew. What runs here goes on to its end.
                self.broken = True
                self.draining.set()
                return None
            self.draining.wait(self._away.next())
            return None
        self._away.reset()
        return claim if claim is not None and self.takes(claim.message) else None

    def takes(self, message: WorkMessage) -> bool:
        """Returns False after giving back a message that another worker should have."""
        if self.claim_filter.declines(message.body, self.peers, self.clock.monotonic()):
            self.give_back(self.delivery_of(ClaimedMessage(self.settings.queue, message)))
            self.draining.wait(self.claim_filter.pause_s * (0.5 + self.random.random()))
            return False
        return True

    def delivery_of(self, claim: ClaimedMessage) -> EngineDelivery:
        return EngineDelivery(claim.message, claim.queue, self.runner.settler, self.clock, self.courier)

    def run_one(self, claim: ClaimedMessage, runner: asyncio.Runner) -> None:
        delivery = self.delivery_of(claim)
        attempt = self.begin(delivery, self.records[0])
        if attempt is None:
            return
        try:
            if self.closed or attempt.handle.lease_is_over:
                self.give_back(delivery)
                return
            failure = attempt.prepare()
            if failure is not None:
                result = attempt.result(failure)
            elif attempt.workflow is not None and attempt.workflow.is_async:
                result = runner.run(attempt.run_async())
            else:
                result = attempt.run_sync()
            self.conclude(attempt, result)
        except Exception as error:
            self.fail_alone(delivery, error)
        finally:
            self.end(attempt)

    @property
    def closed(self) -> bool:
        """Returns True when this slot must give back what it has just claimed: a drain or a closed intake may have come meanwhile."""
        return self.draining.is_set() or not self.admitted.is_set() or self.unattended

    @property
    def unattended(self) -> bool:
        """Returns True when the supervisor is stopped: it would extend no lease of ours, and other workers would wait for our claim to lapse."""
        return self.clock.monotonic() - self.board.ticked_at > UNATTENDED_S

    def give_back(self, delivery: WorkDelivery) -> None:
        """Releases a claim that came while the drain began or the intake closed, or that another worker should have."""
        run_steps(self.runner.give_back(delivery), self.clock)

    def fail_alone(self, delivery: WorkDelivery, error: Exception) -> None:
        run_steps(self.runner.fail_alone(delivery, error), self.clock)

    def begin(self, delivery: WorkDelivery, index: int) -> Attempt | None:
        """Occupies a record for a claim. Returns None for a message that no slot can take, after settling it as failed."""
        try:
            attempt = self.runner.begin(delivery, self.board.records[index])
        except Exception as error:
            self.fail_alone(delivery, error)
            self.board.records[index].count_end(ok=False)
            return None
        self.handles[index] = attempt.handle
        self.processes.begin(index)
        return attempt

    def conclude(self, attempt: Attempt, result: WorkResult) -> None:
        """Ends the processes that the attempt started, and settles its outcome: the next attempt must not meet them."""
        if os.getpid() != self._pid:
            os._exit(0)  # a process that the workflow forked returned to here; only its parent may settle the outcome
        attempt.record.set_phase(Phase.SETTLING)
        self.end_processes(attempt)
        run_steps(self.runner.conclude(attempt, result), self.clock)

    def end_processes(self, attempt: Attempt) -> None:
        occupant = attempt.occupant
        try:
            ended = self.processes.end(attempt.record.index)
        except OSError as error:  # of /proc: a workflow may have used up all file descriptors
            self.trouble(f"the processes of {occupant.workflow} could not be looked at: {error}")
            return
        if ended:
            self.trouble(f"{occupant.workflow} ({occupant.job}) left {ended} processes behind: ended")

    def courier(self) -> JobCourier:
        """Returns the connection to the managers; made when a workflow first submits a job."""
        from tenure.work.children import courier_from

        with self._making_courier:
            if self._courier is None:
                settings = self.settings
                self._courier = courier_from(settings.courier, self.start.engine_url, settings.token)
            return self._courier

    def end(self, attempt: Attempt) -> None:
        self.end_processes(attempt)  # of one that did not get as far as an outcome
        attempt.record.clear()
        self.handles.pop(attempt.record.index, None)
        self._cancelled_at.pop(attempt.record.index, None)

    def listen(self) -> None:
        """Runs in the second thread: obeys the supervisor, ends the slot when the supervisor dies, and counts the leases down.

        A workflow that closes all file descriptors ends this thread. The supervisor sees the closed line and kills this slot.
        """
        with contextlib.suppress(OSError, ValueError):
            self._listen()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel.socket, selectors.EVENT_READ)
            while True:
                if selector.select(LOOK_EVERY_S):
                    for line in self.channel.read():
                        self._obey(line)
                    if not self.channel.open:
                        kill_tree(os.getpid())  # the supervisor is gone: end this process and all that it started
                self._look()

    def _obey(self, line: object) -> None:
        if isinstance(line, ServeRecords):
            self.records = list(line.records)
            self.going.set()
        elif isinstance(line, CancelAttempt):
            handle = self.handles.get(line.record)
            if handle is not None:
                handle.look()
        elif isinstance(line, DrainSlot):
            self.draining.set()
            self.admitted.set()
            self.going.set()
            self.mailboxes.wake()
        elif isinstance(line, SlotIntake):
            self.peers = line.peers if line.peers is not None else self.peers
            if line.open:
                self.admitted.set()
            elif self.admitted.is_set() and not self.draining.is_set():
                self.admitted.clear()
                self.mailboxes.wake()

    def _look(self) -> None:
        """Ends this slot when a lease and its grace are over. The supervisor does so normally; one that is stopped kills nothing."""
        now = self.clock.monotonic()
        for index, handle in list(self.handles.items()):
            handle.look()
            if handle.cancel_code is CancelCode.LEASE_LOST:
                since = self._cancelled_at.setdefault(index, now)
                if now - since > self.settings.grace_s + 1.0:
                    kill_tree(os.getpid())


def main() -> None:
    """Takes the socket that the supervisor left open, reads the first line, and starts the slot."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to handle
    end = socket.socket(fileno=int(sys.argv[1]))
    channel = ControlChannel(end)
    lines: list[object] = []
    while not lines and channel.open:
        lines += channel.read()
    if not lines or not isinstance(lines[0], StartSlot):
        os._exit(BROKEN_EXIT)
    start = lines[0]
    die_with_parent(start.supervisor)
    adopt_orphans()
    dump = (Path(start.folder) / f"stacks-{os.getpid()}.txt").open("w")
    faulthandler.enable(file=dump)
    faulthandler.register(signal.SIGUSR1, file=dump, all_threads=True)
    run_slot(start, channel, dump)


def run_slot(start: StartSlot, channel: ControlChannel, dump: IO[str]) -> None:
    clock, settings = SystemClock(), start.slot_settings()
    if settings.memory_limit_mb is not None:
        limit = settings.memory_limit_mb << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    log_handler = AttemptLogHandler(FileLines(Path(start.folder)), clock)
    logging.getLogger().addHandler(log_handler)
    sys.stdout = LoggedStream(sys.stdout, "stdout", log_handler)
    sys.stderr = LoggedStream(sys.stderr, "stderr", log_handler)
    logging.getLogger("tenure.workflow").setLevel(logging.INFO)
    try:
        slot = Slot(start, channel, clock, log_handler)
    except BaseException as error:
        channel.send(SlotBroken(f"{type(error).__name__}: {error}", traceback.format_exc()[-20_000:]))
        os._exit(BROKEN_EXIT)
    tracing.set_up("tenure-worker")
    channel.send(SlotReady([found.name for found in slot.registry]))
    threading.Thread(target=slot.listen, name="tenure-control", daemon=True).start()
    slot.going.wait()
    slot.processes.keep_present()
    if slot.settings.concurrency > 1:
        serve_async(slot)
    else:
        slot.serve()
    slot.engine.close()
    tracing.flush()
    dump.close()
    os._exit(BROKEN_EXIT if slot.broken else 0)  # daemon threads of user code must not keep a drained slot alive


if __name__ == "__main__":
    main()

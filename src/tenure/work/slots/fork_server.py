"""The process from which slots are forked: it has imported the user's modules once, and does nothing else.

    python -c 'from tenure.work.slots.fork_server import main; main()' FD

It is executed anew, so it has nothing of the supervisor's: no URL, no token, no engine. Each slot is forked twice: the process in between ends at
once, and the kernel gives the slot to the supervisor, which is a subreaper. So the supervisor waits for its slots and kills them
as if it had started them itself, and the end of this process ends no slot.

Where a fork would be unsafe (`fork_safety`), this process says why and becomes the slot that it was asked for. What it imported is not lost.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

import msgspec

from tenure import machine
from tenure.randomness import reseed_after_fork
from tenure.work.slots.fork_messages import (
    MOST_MESSAGE_BYTES,
    SERVER_NAME,
    SLOT_NAME,
    ForkFailed,
    ForkRefused,
    PrepareModules,
    ServerAnswer,
    ServerReady,
    SlotForked,
)
from tenure.work.slots.fork_safety import reason_after_import, reason_not_to_fork
from tenure.work.slots.frames import FrameChannel
from tenure.work.slots.processes import adopt_orphans, die_with_parent
from tenure.work.slots.slot_ground import SlotGround, prepare
from tenure.work.slots.slot_main import keep_import_folder, open_dump, read_start, run_slot

WAIT_S = 0.0005


class ImportedModules:
    """Notes what the import of each module left behind, so that the log can name the module."""

    def __init__(self, ours: Collection[int]) -> None:
        self._ours = ours
        self.reason = ""

    def loaded(self, name: str) -> None:
        if not self.reason and (found := reason_after_import(self._ours)):
            self.reason = f"{name}, or a module that it imports, {found}"


class ForkServer:
    """Answers the requests of one supervisor, one after the other."""

    def __init__(self, control: socket.socket, order: PrepareModules) -> None:
        self._control, self._order = control, order
        imported = ImportedModules([control.fileno()])
        self._ground: SlotGround = prepare(order.modules, order.memory_limit_mb, imported.loaded)
        self._unsafe = imported.reason
        # The collector then never writes to what the slots share: a write would give each of them a copy. What is garbage by now stays; to
        # collect it first would delay every worker's first job.
        gc.freeze()

    def serve(self) -> None:
        """Forks one slot for each request, until the supervisor is gone."""
        self._answer(ServerReady())
        while True:
            _, channels, _, _ = socket.recv_fds(self._control, 64, 1)
            if not channels:
                return
            [channel] = channels
            reason = self._unsafe or reason_not_to_fork([self._control.fileno(), channel])
            if reason or self._ground.broken is not None:
                self._become_slot(channel, "" if self._ground.broken is not None else reason)
            self._fork(channel)
            os.close(channel)

    def _answer(self, answer: ServerAnswer) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone, and the next read says so
            self._control.send(msgspec.msgpack.encode(answer))

    def _fork(self, channel: int) -> None:
        # What was printed and not yet written would be written by every slot.
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            between = os.fork()
        except OSError as error:
            self._answer(ForkFailed(str(error)))
            return
        if between == 0:
            self._fork_again(channel)
        os.waitpid(between, 0)

    def _fork_again(self, channel: int) -> NoReturn:
        """Forks the slot, tells its pid, and ends. The order matters: when the slot becomes the supervisor's child, its pid is known there."""
        between = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._answer(ForkFailed(str(error)))
            os._exit(1)
        if pid == 0:
            self._run_forked(channel, between)
        self._answer(SlotForked(pid))
        os._exit(0)

    def _run_forked(self, channel: int, between: int) -> NoReturn:
        """Ends as a program does, also by an error: nothing of the server may run in a slot."""
        code = 1
        try:
            os.setsid()
            # The kernel kills a process that wants to die with its parent when it gets another parent: wait for the one to stay with.
            while os.getppid() == between:
                self._ground.clock.sleep(WAIT_S)
            die_with_parent(self._order.supervisor)
            reseed_after_fork()
            self._run_slot(channel)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _become_slot(self, channel: int, reason: str) -> NoReturn:
        self._answer(ForkRefused(reason))
        gc.unfreeze()
        self._run_slot(channel)

    def _run_slot(self, descriptor: int) -> NoReturn:
        adopt_orphans()
        machine.here.name_process(SLOT_NAME)
        # Else the supervisor would not see that the server is gone.
        self._control.close()
        channel = FrameChannel(socket.socket(fileno=descriptor))
        start = read_start(channel)
        run_slot(start, channel, open_dump(Path(start.folder)), self._ground)


def main() -> None:
    """Takes the socket that the supervisor left open, reads the order, imports the modules, and serves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to handle
    keep_import_folder()
    control = socket.socket(fileno=int(sys.argv[1]))
    first = control.recv(MOST_MESSAGE_BYTES)
    if not first:
        return  # the supervisor is gone
    order = msgspec.msgpack.decode(first, type=PrepareModules)
    die_with_parent(order.supervisor)
    machine.here.name_process(SERVER_NAME)
    faulthandler.enable()  # a crash in native code of an import is told on standard error
    ForkServer(control, order).serve()
    os._exit(0)  # no handler of the user's modules runs at the exit of a process that did no work

"""Starts slots for one supervisor: forked from a fork server where that is safe, else spawned.

A forked slot is there in milliseconds and shares its memory with the others, because the server has imported the modules once. A request never waits:
`arrived` returns the slots that the server has forked since. A server that dies takes no slot with it, and is replaced.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections import deque
from pathlib import Path
from typing import Literal, NamedTuple

from tenure import machine
from tenure.clock import Clock
from tenure.logs import NodeLog
from tenure.work.slots.fork_messages import (
    FORK,
    MOST_MESSAGE_BYTES,
    ForkFailed,
    ForkRefused,
    PrepareModules,
    ServerAnswer,
    ServerReady,
    SlotForked,
    read_answer,
)
from tenure.work.slots.frames import FrameChannel, StartSlot
from tenure.work.slots.interpreters import BegunServer, begin_fork_server, start_interpreter
from tenure.work.slots.processes import kill_tree
from tenure.work.slots.slot_process import SlotProcess

ANSWER_S = 60.0
"""A server that has imported its modules and does not fork for this long is stopped or stuck: it is replaced."""
BURY_S = 10.0
MOST_SERVERS = 5
"""After so many servers that died, slots are spawned: something on this machine does not let a server live."""


def spawn_slot(start: StartSlot, now: float) -> SlotProcess:
    ours, theirs = socket.socketpair()
    with theirs:
        pid = start_interpreter("slot_main", theirs.fileno(), start.incarnation)
    return SlotProcess(pid, _channel(ours, start), Path(start.folder), now, spawned=True)


def _channel(ours: socket.socket, start: StartSlot) -> FrameChannel:
    channel = FrameChannel(ours)
    channel.send(start)
    ours.setblocking(False)
    return channel


class AskedSlot(NamedTuple):
    """A slot that the server has been asked for."""

    channel: FrameChannel
    folder: Path
    asked_at: float


class ServerProcess:
    """A running fork server, from the supervisor's side."""

    def __init__(self, begun: BegunServer, order: PrepareModules) -> None:
        begun.order(order)
        self.socket, self.pid = socket.socket(fileno=begun.descriptor), begun.pid
        self.socket.setblocking(False)
        self.ready_at: float | None = None
        """Monotonic time at which it had imported the modules."""

    def ask(self, end: socket.socket) -> bool:
        """Asks for a slot at the other end of this channel. Returns False when the server has more requests than it can keep."""
        try:
            socket.send_fds(self.socket, [FORK], [end.fileno()])
        except BlockingIOError:
            return False
        except OSError:
            return True  # it is gone, which `read` says too
        return True

    def read(self) -> tuple[list[ServerAnswer], bool]:
        """Returns the answers that have come, and False when the server is gone."""
        found: list[ServerAnswer] = []
        while True:
            try:
                message = self.socket.recv(MOST_MESSAGE_BYTES)
            except BlockingIOError:
                return found, True
            except ConnectionResetError:
                continue  # it ended with requests unread, which the kernel says once, before what it had answered
            except OSError:
                return found, False
            if not message:
                return found, False
            answer = read_answer(message)
            if answer is not None:
                found.append(answer)


class SlotLauncher:
    """Call it from the supervisor's thread only. The selector has the server's socket, with the launcher as its data."""

    def __init__(
        self,
        mode: Literal["auto", "fork", "spawn"],
        order: PrepareModules,
        incarnation: str,
        selector: selectors.BaseSelector,
        *,
        clock: Clock,
        log: NodeLog,
        begun: BegunServer | None = None,
    ) -> None:
        """`begun`: a server that was started before; it becomes the first one."""
        self._begun = begun
        self._order, self._incarnation, self._selector = order, incarnation, selector
        self._clock, self._log, self._mode = clock, log, mode
        self._forks = mode != "spawn" and machine.here.forks_slots
        self._server: ServerProcess | None = None
        self._servers = 0
        self._asked: deque[AskedSlot] = deque()
        self._came: list[SlotProcess] = []
        self.dead: set[int] = set()
        """Servers that ended. The pool buries them, and clears what they left."""
        self.refusal = ""
        """Why slots cannot be forked, where the settings allow nothing else."""
        self.failure = ""
        """Why the machine gave the server no process; the pool waits a while then."""

    @property
    def asked(self) -> int:
        """Returns the number of slots that are still to come."""
        return len(self._asked)

    @property
    def pid(self) -> int:
        """Returns the pid of the server; 0 when there is none."""
        return self._server.pid if self._server is not None else 0

    def warm_up(self) -> None:
        """Has a server import the modules now, so that it is ready when slots are wanted."""
        if not self._forks or self._server is not None:
            return
        self._servers += 1
        begun, self._begun = self._begun or begin_fork_server(self._incarnation), None
        self._server = ServerProcess(begun, self._order)
        self._selector.register(self._server.socket, selectors.EVENT_READ, self)

    def launch(self, start: StartSlot) -> bool:
        """Starts a slot, or asks for one; `arrived` returns it. Returns False when no more can be asked for now."""
        now = self._clock.monotonic()
        if not self._forks:
            self._came.append(spawn_slot(start, now))
            return True
        self.warm_up()
        assert self._server is not None, "it was started just now"
        ours, theirs = socket.socketpair()
        with theirs:
            if not self._server.ask(theirs):
                ours.close()
                return False
        self._asked.append(AskedSlot(_channel(ours, start), Path(start.folder), now))
        return True

    def arrived(self) -> list[SlotProcess]:
        """Returns the slots that were started since the last call, and looks after the server."""
        if self._server is not None:
            self._hear(self._server)
        came, self._came = self._came, []
        return came

    def _hear(self, server: ServerProcess) -> None:
        answers, alive = server.read()
        for answer in answers:
            self._obey(server, answer)
        if self._server is not server:
            return  # it has become a slot
        now = self._clock.monotonic()
        if not alive:
            self._lose(server, "ended")
        elif self._asked and now - max(server.ready_at or now, self._asked[0].asked_at) > ANSWER_S:
            self._lose(server, f"has not answered for {ANSWER_S:g} s")

    def _obey(self, server: ServerProcess, answer: ServerAnswer) -> None:
        now = self._clock.monotonic()
        if isinstance(answer, ServerReady):
            server.ready_at = now
            return
        if self._server is not server or not self._asked:
            return  # user code wrote it: nobody has asked
        asked = self._asked.popleft()
        if isinstance(answer, SlotForked):
            self._came.append(SlotProcess(answer.pid, asked.channel, asked.folder, now))
        elif isinstance(answer, ForkFailed):
            asked.channel.close()
            self.failure = answer.reason
        else:
            self._take_as_slot(server, asked, answer)

    def _take_as_slot(self, server: ServerProcess, asked: AskedSlot, answer: ForkRefused) -> None:
        """The server becomes a slot itself. All others are spawned, unless it only could not import: the next server may."""
        self._forget(server)
        self._servers -= 1
        self._came.append(SlotProcess(server.pid, asked.channel, asked.folder, self._clock.monotonic(), spawned=True))
        if not answer.reason:
            return
        self._forks = False
        if self._mode == "fork":
            self.refusal = answer.reason
        self._log.warning(f"slots are spawned, not forked, so each imports the modules anew: {answer.reason}")

    def _lose(self, server: ServerProcess, how: str) -> None:
        self._forget(server)
        kill_tree(server.pid)
        self.dead.add(server.pid)
        if server.ready_at is None:
            self._forks = False
            self._log.warning(f"the fork server {how} while it imported the modules: slots are spawned")
        elif self._servers >= MOST_SERVERS:
            self._forks = False
            self._log.warning(f"the fork server {how}, as {MOST_SERVERS - 1} did before it: slots are spawned")
        else:
            self._log.warning(f"the fork server {how}: its slots go on, and another one takes its place")

    def _forget(self, server: ServerProcess) -> None:
        """Drops the server and what it was asked for. A slot that it forked and did not tell of sees its channel close, and ends."""
        self._server = None
        self._selector.unregister(server.socket)
        server.socket.close()
        for asked in self._asked:
            asked.channel.close()
        self._asked.clear()

    def end(self) -> None:
        """Ends the server: no slot is wanted any more."""
        self._forks = False
        server = self._server
        if server is not None:
            self._forget(server)
            kill_tree(server.pid)
            self.dead.add(server.pid)

    def bury(self) -> None:
        """Waits for servers that the pool did not bury. They were killed, so it is a moment; one stuck inside the kernel is left to init."""
        for pid in self.dead:
            with contextlib.suppress(ChildProcessError):
                deadline = self._clock.monotonic() + BURY_S
                while os.waitpid(pid, os.WNOHANG)[0] == 0 and self._clock.monotonic() < deadline:
                    self._clock.sleep(0.001)
        self.dead = set()

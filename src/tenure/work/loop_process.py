"""Loops in processes of their own, so that one that hangs is killed alone (document 004's limitations, lifted).

A loop is an object, and objects are not shipped: it is inherited by fork. Forking a program that has threads is unsound, and a group has
threads; so the group forks once, before it starts any, a *fork server* that stays single-threaded and forks the loops' processes from then on,
also when one has to be started again. Beats come back through shared memory; everything else through one socket.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import socket
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

import msgspec

from tenure.beat.watchdog import LoopState
from tenure.errors import LoopProcessError
from tenure.work.line_channel import LineChannel, decoder_of
from tenure.work.slots.processes import die_with_parent, kill_tree

if TYPE_CHECKING:
    from tenure.work.group_loops import Loop

MIRROR_EVERY_S = 0.2
"""The interval at which beats of the loops' processes are copied to the heartbeats that the group watches."""
_LONGEST_ERROR = 20_000


_STATES = tuple(LoopState)


class SharedLoopState:
    """The state of a loop's process, in shared memory that the fork inherits: four words, one writer."""

    BYTES = 32

    def __init__(self, page: mmap.mmap, index: int) -> None:
        words = memoryview(page)[index * self.BYTES : (index + 1) * self.BYTES]
        self._ints, self._floats = words.cast("q"), words.cast("d")
        self._floats[1] = -1.0

    def beat(self, progress: float | None, mark: int) -> None:
        self._floats[1] = -1.0 if progress is None else progress
        self._ints[3] = mark
        self._ints[0] += 1  # last: whoever sees the beat sees what it showed

    @property
    def count(self) -> int:
        return self._ints[0]

    @property
    def progress(self) -> float | None:
        found = self._floats[1]
        return None if found < 0 else found

    @property
    def mark(self) -> int:
        return self._ints[3]

    @property
    def state(self) -> LoopState:
        return _STATES[self._ints[2]]

    @state.setter
    def state(self, state: LoopState) -> None:
        self._ints[2] = _STATES.index(state)


class _Order(msgspec.Struct, frozen=True):
    do: str  # "run", "stop" or "kill"
    name: str


class _News(msgspec.Struct, frozen=True):
    name: str
    exit_code: int  # negative: the signal that ended it
    error: str


_orders: msgspec.json.Decoder[_Order] = decoder_of(_Order)
_news: msgspec.json.Decoder[_News] = decoder_of(_News)


class LoopForkServer:
    """The group's side: run, stop and kill loops by name."""

    def __init__(self, loops: Mapping[str, Loop], run: Callable[[Loop], None]) -> None:
        """Forks the fork server. Create it before any thread of the group runs."""
        self._loops = dict(loops)
        self._lock = threading.Lock()
        self._ended: dict[str, _News] = {}
        self._changed = threading.Condition(self._lock)
        self._reasons: dict[str, str] = {}
        page = mmap.mmap(-1, SharedLoopState.BYTES * len(self._loops))
        self._shared_states = {name: SharedLoopState(page, index) for index, name in enumerate(self._loops)}
        ours, theirs = socket.socketpair()
        with warnings.catch_warnings():
            # Since 3.12 Python warns of a fork beside threads. The caller's threads do not exist in the fork server, and it
            # takes none of their locks: it reads a socket, forks and waits.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _ForkServerProcess(self._loops, run, self._shared_states, theirs).main()
        theirs.close()
        self._lines = LineChannel(ours, _news)
        self._listener = threading.Thread(target=self._listen, name="tenure-fork-server", daemon=True)
        self._listener.start()

    def run(self, name: str) -> None:
        """Run one loop in a process of its own until it ends. Raises `LoopProcessError` when it did not end well."""
        self._lines.send(_Order("run", name))
        with self._changed:
            self._changed.wait_for(lambda: name in self._ended)
            news = self._ended.pop(name)
            reason = self._reasons.pop(name, "")
        if news.exit_code != 0:
            raise LoopProcessError(name, news.exit_code, reason or news.error)

    def stop(self, name: str) -> None:
        self._lines.send(_Order("stop", name))

    def kill(self, name: str, reason: str) -> None:
        """SIGKILL one loop's process, and everything below it."""
        with self._lock:
            self._reasons[name] = reason
        self._lines.send(_Order("kill", name))

    def close(self) -> None:
        """Ends the fork server; the loops that it still runs die with it."""
        self._lines.close()
        self._listener.join(5)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def state(self, name: str) -> LoopState:
        """Returns the state of the loop in its own process."""
        return self._shared_states[name].state

    def _listen(self) -> None:
        seen = dict.fromkeys(self._loops, 0)
        while self._lines.open:
            try:
                ready, _, _ = select.select([self._lines.socket], [], [], MIRROR_EVERY_S)
            except (OSError, ValueError):
                break  # closed
            self._mirror(seen)
            for news in self._lines.read() if ready else []:
                self._tell(news)
        with self._changed:
            # Without the fork server no loop runs, so `run` must not wait for one.
            for name in self._loops:
                self._ended.setdefault(name, _News(name, -signal.SIGKILL, "the fork server process ended"))
            self._changed.notify_all()

    def _tell(self, news: _News) -> None:
        with self._changed:
            self._ended[news.name] = news
            self._changed.notify_all()

    def _mirror(self, seen: dict[str, int]) -> None:
        for name, loop in self._loops.items():
            shared = self._shared_states[name]
            if shared.count != seen[name]:
                seen[name] = shared.count
                # The mark was made in the loop's process: a second one here would count what was counted.
                loop.heartbeat.progress = shared.progress
                loop.heartbeat.mark.copy(shared.mark)
                loop.heartbeat.beat()


class _ForkServerProcess:
    """The other side of the fork: one thread that forks, kills and reaps."""

    def __init__(
        self,
        loops: Mapping[str, Loop],
        run: Callable[[Loop], None],
        shared_states: Mapping[str, SharedLoopState],
        end: socket.socket,
    ) -> None:
        self._loops, self._run, self._shared_states = loops, run, shared_states
        self._lines = LineChannel(end, _orders)
        self._pids: dict[str, int] = {}
        self._errors: dict[str, int] = {}  # the pipes on which a loop says why it died
        self._stops: dict[str, int] = {}

    def main(self) -> NoReturn:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            wake, alarm = os.pipe()
            os.set_blocking(alarm, False)
            signal.signal(signal.SIGCHLD, lambda *_: None)
            signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
            while self._lines.open:
                ready, _, _ = select.select([self._lines.socket.fileno(), wake], [], [])
                if wake in ready:
                    os.read(wake, 4_096)
                if self._lines.socket.fileno() in ready:
                    for order in self._lines.read():
                        self._obey(order)
                self._reap()
            for pid in self._pids.values():
                kill_tree(pid)
        finally:
            os._exit(0)

    def _obey(self, order: _Order) -> None:
        name = order.name
        if order.do == "run":
            self._start(name)
        elif name in self._pids:
            if order.do == "kill":
                kill_tree(self._pids[name])
            else:
                with contextlib.suppress(OSError):
                    os.write(self._stops[name], b"x")

    def _start(self, name: str) -> None:
        error_out, error_in = os.pipe()
        stop_out, stop_in = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._lines.close()
            os.close(error_out)
            os.close(stop_in)
            for descriptor in (*self._errors.values(), *self._stops.values()):
                os.close(descriptor)
            _be_loop(self._loops[name], self._run, self._shared_states[name], parent, stop_out, error_in)
        os.close(error_in)
        os.close(stop_out)
        self._pids[name], self._errors[name], self._stops[name] = pid, error_out, stop_in

    def _reap(self) -> None:
        for name, pid in list(self._pids.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found == 0:
                continue
            error = b""
            while chunk := os.read(self._errors[name], 65_536):
                error += chunk
            os.close(self._errors.pop(name))
            os.close(self._stops.pop(name))
            del self._pids[name]
            self._lines.send(_News(name, os.waitstatus_to_exitcode(status), error.decode(errors="replace")))


def _be_loop(
    loop: Loop, run: Callable[[Loop], None], shared: SharedLoopState, parent: int, stops: int, errors: int
) -> NoReturn:
    """Runs the loop in its own process, and never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        die_with_parent(parent)
        os.setsid()
        loop.heartbeat.add_callback(lambda: shared.beat(loop.heartbeat.progress, loop.heartbeat.mark.word))
        threading.Thread(target=_await_stop, args=(loop, shared, stops), daemon=True).start()
        run(loop)
        code = 0
    except BaseException:
        os.write(errors, traceback.format_exc()[-_LONGEST_ERROR:].encode())
    finally:
        os._exit(code)


def _await_stop(loop: Loop, shared: SharedLoopState, stops: int) -> None:
    """Writes the loop's state to shared memory until the loop is asked to stop."""
    while True:
        shared.state = loop.vitals().state
        ready, _, _ = select.select([stops], [], [], MIRROR_EVERY_S)
        if not ready:
            continue
        if not os.read(stops, 1):
            kill_tree(os.getpid())  # the fork server is gone
        loop.stop()

"""Judges the silence of heartbeats: readiness is the early warning, and the watchdog ends a process whose work has stalled (document 004).

Readiness is pure. It turns when a loop cannot take work (it starts, stops, died, or cannot reach its mailbox) and when its silence is well
on the way to the watchdog's threshold; it asks neither the engine nor the work itself.

The watchdog's thread asks each heartbeat how long its silence is. It reports one that is too long with the stacks of all threads, and then
kills the process: a stuck thread cannot answer SIGTERM, and the lease gives the message to another worker. `find_stalls` decides; the act
is replaceable.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType

from tenure.beat.heartbeat import Heartbeat
from tenure.beat.proof import ProofClock, ShownProof, place_of
from tenure.beat.proof import stuck_threshold as stuck_after
from tenure.clock import Clock, SystemClock
from tenure.errors import LimitError


def thread_stacks() -> str:
    """Returns the stack of each thread, by name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"Thread {names.get(ident, 'unknown to Python')!s} ({ident}):\n{_stack(frame)}"
        for ident, frame in sorted(sys._current_frames().items())
    ]
    return "\n".join(parts)


def thread_stack(ident: int) -> str:
    """Returns the stack of one thread; empty when it is gone."""
    frame = sys._current_frames().get(ident)
    return "" if frame is None else _stack(frame)


def _stack(frame: FrameType) -> str:
    return "".join(traceback.format_stack(frame))


class LoopState(StrEnum):
    """The state of a loop."""

    STARTING = "starting"  # it has not asked for work yet
    POLLING = "polling"  # it waits for work
    WORKING = "working"  # it has a message in hand
    CUT_OFF = "cut off"  # its mailbox cannot be reached; it goes on trying
    RESTARTING = "restarting"  # it died, and will be started again
    STOPPING = "stopping"  # it finishes what it has, and takes nothing new
    ENDED = "ended"  # it stopped as it was asked to
    DEAD = "dead"  # it ended with an error


_TAKES_WORK = frozenset({LoopState.POLLING, LoopState.WORKING})


@dataclass(frozen=True, slots=True)
class LoopVitals:
    """The state of one loop at this moment."""

    state: LoopState
    beat_age_s: float
    """Seconds since the last beat, as they are."""
    silent_s: float = 0.0
    """Seconds of silence that the work did not declare."""
    beats: int = 0
    note: str | None = None
    progress: float | None = None
    error: str | None = None
    in_hand: str | None = None
    """The id of the message that is being worked on."""

    @classmethod
    def of(
        cls,
        heartbeat: Heartbeat,
        state: LoopState = LoopState.WORKING,
        *,
        error: str | None = None,
        in_hand: str | None = None,
    ) -> LoopVitals:
        age, silent, beats = heartbeat.elapsed(), heartbeat.unexplained(), heartbeat.count
        return cls(state, age, silent, beats, heartbeat.note, heartbeat.progress, error, in_hand)


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer of `/health/ready`: whether, and why not, per loop."""

    ready: bool
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why not, by loop; a loop that is ready is not named."""
    loops: Mapping[str, LoopVitals] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {
            "ready": self.ready,
            "reasons": dict(self.reasons),
            "loops": {
                name: {
                    "ready": name not in self.reasons,
                    "state": vitals.state,
                    "beat_age_s": round(vitals.beat_age_s, 3),
                    "silent_s": round(vitals.silent_s, 3),
                    "beats": vitals.beats,
                    "doing": vitals.note,
                    "progress": vitals.progress,
                    "in_hand": vitals.in_hand,
                    "error": vitals.error,
                }
                for name, vitals in self.loops.items()
            },
        }


def judge_readiness(loops: Mapping[str, LoopVitals], threshold_s: float) -> Readiness:
    """Ready when every loop takes work and none has been silent for longer than the threshold."""
    reasons = {name: reason for name, vitals in loops.items() if (reason := _reason(vitals, threshold_s))}
    if not loops:
        reasons["-"] = "there is no loop"
    return Readiness(not reasons, reasons, loops)


def _reason(vitals: LoopVitals, threshold_s: float) -> str | None:
    if vitals.state not in _TAKES_WORK:
        return f"{vitals.state}: {vitals.error}" if vitals.error else str(vitals.state)
    if vitals.silent_s > threshold_s:
        doing = f", it last said {vitals.note!r}" if vitals.note else ""
        return f"no beat for {vitals.silent_s:.1f} s (unready after {threshold_s:g} s){doing}"
    return None


_logger = logging.getLogger(__name__)

# Taking evidence may hang as well (a full pipe, a log handler whose lock the stuck thread holds): the kill waits no longer than this.
_EVIDENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Stall:
    """One heartbeat that was silent for too long."""

    name: str
    silent_s: float
    threshold_s: float
    note: str | None
    progress: float | None
    beats: int
    spinning: str = ""
    """The evidence where it beats and gets nowhere; empty where it is silent."""

    def __str__(self) -> str:
        if self.spinning:
            return f"{self.name} stalled, {self.spinning}"
        doing = f"it last said {self.note!r}" if self.note else "it never said what it was doing"
        if self.progress is not None:
            doing += f", {self.progress:.0%} done"
        return (
            f"{self.name} stalled: no beat for {self.silent_s:.1f} s (the threshold is {self.threshold_s:g} s); "
            f"{doing}; {self.beats} beats before"
        )


@dataclass(frozen=True, slots=True)
class StallReport:
    """All that stalled at one check, and where every thread was."""

    stalls: tuple[Stall, ...]
    stacks: str

    def __str__(self) -> str:
        return "\n".join(["Watchdog:", *(f"  {stall}" for stall in self.stalls), "", self.stacks])


def find_stalls(heartbeats: Mapping[str, Heartbeat], threshold_s: float) -> list[Stall]:
    """Returns those whose undeclared silence is longer than the threshold."""
    stalls = []
    for name, heartbeat in heartbeats.items():
        silent_s = heartbeat.unexplained()
        if silent_s > threshold_s:
            note, progress, beats = heartbeat.note, heartbeat.progress, heartbeat.count
            stalls.append(Stall(name, silent_s, threshold_s, note, progress, beats))
    return stalls


def kill_this_process(report: StallReport) -> None:
    """Write the report to standard error, log it, and end the process with SIGKILL, whatever its threads hold."""
    evidence = threading.Thread(target=_testify, args=(report,), name="watchdog-evidence", daemon=True)
    # "can't start new thread" must not save a stuck process either.
    with contextlib.suppress(RuntimeError):
        evidence.start()
        evidence.join(_EVIDENCE_S)
    os.kill(os.getpid(), signal.SIGKILL)
    # Still here: we are the first process of a container, which the kernel protects from its own SIGKILL.
    os._exit(128 + signal.SIGKILL)


def _testify(report: StallReport) -> None:
    # Not through sys.stderr, whose lock the stuck thread may hold. Logging comes second for the same reason.
    with contextlib.suppress(OSError):
        os.write(2, f"{report}\nThe process is ended with SIGKILL; leases return its messages.\n".encode())
    for stall in report.stalls:
        _logger.critical("%s; the process is ended with SIGKILL", stall)


class Watchdog:
    """A daemon thread that watches heartbeats and acts on a stall, once for each."""

    def __init__(
        self,
        heartbeats: Iterable[Heartbeat] | Mapping[str, Heartbeat],
        stall_threshold: float = 720.0,
        check_interval: float = 60.0,
        *,
        on_stall: Callable[[StallReport], object] = kill_this_process,
        stuck_threshold: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`on_stall` is what is done about a stall. By default, the process is killed.

        Work that has said how far it is, and beats for `stuck_threshold` without getting further, has stalled, too: twice the stall
        threshold, and two minutes at least, where none is given.
        """
        for name, value in (("stall_threshold", stall_threshold), ("check_interval", check_interval)):
            if not value > 0:
                raise LimitError(f"Watchdog.{name}", value, "above 0 seconds")
        self.stuck_threshold = stuck_after(stall_threshold, stuck_threshold)
        self.stall_threshold = stall_threshold
        self.check_interval = check_interval
        self._clock = clock or SystemClock()
        self._on_stall = on_stall
        self._heartbeats = _named(heartbeats)
        self._reported: dict[str, int] = {}  # the count of beats at which a stall was reported: once is enough
        self._proofs: dict[str, ProofClock] = {}
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def watch(self, name: str, heartbeat: Heartbeat) -> None:
        """Watch this one from now on, in place of one of the same name."""
        with self._condition:
            self._heartbeats = {**self._heartbeats, name: heartbeat}
            self._reported.pop(name, None)
            self._proofs.pop(name, None)

    def unwatch(self, name: str) -> None:
        """Forgets a heartbeat whose work ended: it need not beat any more."""
        with self._condition:
            self._heartbeats = {other: heartbeat for other, heartbeat in self._heartbeats.items() if other != name}

    def start(self) -> None:
        """Begin to watch; harmless when it runs already."""
        with self._condition:
            if self.running:
                return
            self._stopping = False
            self._thread = threading.Thread(target=self._run, name="tenure-watchdog", daemon=True)
            self._thread.start()

    def stop(self, timeout: float | None = 5.0) -> None:
        """Stop watching, at once. Safe to call when it never started."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def check(self) -> list[Stall]:
        """Look once, and act when something stalled that was not reported yet; what stalled."""
        stalls = find_stalls(self._heartbeats, self.stall_threshold)
        spinning = self._find_spinning(self._heartbeats)
        fresh = [stall for stall in stalls if self._reported.get(stall.name) != stall.beats]
        # One that spins beats on: it was reported when its clock was started anew, not by its count.
        stalls, fresh = [*stalls, *spinning], [*fresh, *spinning]
        if fresh:
            self._reported.update((stall.name, stall.beats) for stall in fresh)
            self._act(StallReport(tuple(fresh), thread_stacks()))
        return stalls

    def _find_spinning(self, heartbeats: Mapping[str, Heartbeat]) -> list[Stall]:
        """Returns those that beat and got nowhere for the stuck threshold, each once per threshold."""
        now, found = self._clock.monotonic(), []
        for name, heartbeat in heartbeats.items():
            shown = ShownProof(heartbeat.count, heartbeat.mark.word, heartbeat.silent is not None)
            proof = self._proofs.setdefault(name, ProofClock())
            spinning = proof.look(shown, now, stuck_s=self.stuck_threshold)
            if spinning is None:
                continue
            self._proofs[name] = ProofClock()
            reason = spinning.reason(place_of(0, 0, heartbeat.progress or 0.0), self.stuck_threshold)
            note, progress, beats = heartbeat.note, heartbeat.progress, heartbeat.count
            found.append(Stall(name, 0.0, self.stall_threshold, note, progress, beats, reason))
        return found

    def _act(self, report: StallReport) -> None:
        try:
            self._on_stall(report)
        except Exception:
            _logger.exception("The watchdog's own act failed; it goes on watching")

    def _run(self) -> None:
        guard = _InterpreterGuard(self)
        try:
            while self._wait():
                guard.rearm()
                self.check()
        finally:
            guard.disarm()

    def _wait(self) -> bool:
        until = self._clock.monotonic() + self.check_interval
        with self._condition:
            while not self._stopping and (left := until - self._clock.monotonic()) > 0:
                self._clock.wait(self._condition, left)
            return not self._stopping


class _InterpreterGuard:
    """Ends the process when not even the watchdog's thread can run: native code that holds the interpreter lock for ever.

    `faulthandler`'s timer is a thread of C that needs no lock. It is the process's only one, so it is used only where the
    watchdog is to kill the process anyway and counts real time.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        self._armed = watchdog._on_stall is kill_this_process and isinstance(watchdog._clock, SystemClock)
        self._seconds = watchdog.stall_threshold + 2 * watchdog.check_interval
        self.rearm()

    def rearm(self) -> None:
        if self._armed:
            try:
                faulthandler.dump_traceback_later(self._seconds, exit=True, file=2)
            except (OSError, ValueError, RuntimeError):
                self._armed = False
                _logger.warning("No timer for native code that holds the interpreter lock: standard error is closed")

    def disarm(self) -> None:
        if self._armed:
            faulthandler.cancel_dump_traceback_later()


def _named(heartbeats: Iterable[Heartbeat] | Mapping[str, Heartbeat]) -> dict[str, Heartbeat]:
    if isinstance(heartbeats, Mapping):
        return dict(heartbeats)
    named: dict[str, Heartbeat] = {}
    for position, heartbeat in enumerate(heartbeats):
        name = heartbeat.name or f"heartbeat {position}"
        named[name if name not in named else f"{name} ({position})"] = heartbeat
    return named

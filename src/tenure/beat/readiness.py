"""Judges whether a worker should get work, from the last state of each of its loops. Pure.

Readiness is the early warning. It turns when a loop cannot take work (it starts, stops, died, or cannot reach its mailbox) and when its
silence is well on the way to the watchdog's threshold; it asks neither the engine nor the work itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tenure.beat.heartbeat import Heartbeat


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


def readiness_of(heartbeats: Iterable[Heartbeat], threshold_s: float) -> Callable[[], Readiness]:
    """A readiness check over bare heartbeats, for processes that have no loops of ours."""
    watched = list(heartbeats)

    def check() -> Readiness:
        vitals = {heartbeat.name or f"heartbeat {n}": LoopVitals.of(heartbeat) for n, heartbeat in enumerate(watched)}
        return judge_readiness(vitals, threshold_s)

    return check


def _reason(vitals: LoopVitals, threshold_s: float) -> str | None:
    if vitals.state not in _TAKES_WORK:
        return f"{vitals.state}: {vitals.error}" if vitals.error else str(vitals.state)
    if vitals.silent_s > threshold_s:
        doing = f", it last said {vitals.note!r}" if vitals.note else ""
        return f"no beat for {vitals.silent_s:.1f} s (unready after {threshold_s:g} s){doing}"
    return None

"""How loaded a node is, in four words: the overload signal that gates and piggybacks carry.

Four things are judged: latency against its own moving baseline (with its trend), latency against absolute bounds, CPU,
memory. The worst wins. Hysteresis keeps the answer from flapping: two bad assessments to get worse, five calm ones for
each step back. It asks no clock: time passes by assessments, not by requests, so that a burst of a thousand slow requests
is one bad second and not a new normal.

An overloaded gate turns requests away: new work of low priority first, then all new work and requests that only inform. Never a cancel, a
result, a report or a timeout: turning those away would make the load last longer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median
from typing import Final, NamedTuple

from tenure.errors import LimitError
from tenure.health.signals import finite, whole


class OverloadState(StrEnum):
    """From calm to drowning. A gate that is stressed or worse takes no new work."""

    HEALTHY = "healthy"
    BUSY = "busy"
    STRESSED = "stressed"
    OVERLOADED = "overloaded"


_LEVELS: Final = tuple(OverloadState)


class Bounds(NamedTuple):
    """From where on a signal is busy, stressed, overloaded."""

    busy: float
    stressed: float
    overloaded: float

    def level(self, value: float) -> int:
        """0 for healthy to 3 for overloaded."""
        return (value >= self.busy) + (value >= self.stressed) + (value >= self.overloaded)


_LATENCY_MS: Final = Bounds(200.0, 500.0, 2_000.0)
_LATENCY_RATIO: Final = Bounds(1.5, 2.0, 4.0)
_PERCENT: Final = Bounds(70.0, 85.0, 95.0)


@dataclass(frozen=True, slots=True)
class OverloadConfig:
    """Where load becomes overload."""

    latency_ms: Bounds = _LATENCY_MS
    latency_ratio: Bounds = _LATENCY_RATIO  # of the baseline
    ratio_floor_ms: float = 20.0  # below it no ratio counts: from 1 to 4 ms is no overload
    trend_ratio: float = 1.2  # the newer half of the recent latencies over the older: one step worse, if busy already
    cpu_percent: Bounds = _PERCENT
    memory_percent: Bounds = _PERCENT
    recent: int = 10  # assessments that make a trend, and the evidence that a baseline needs
    baseline_weight: float = 0.05  # of a new assessment in the baseline: about 20 of them
    patience: int = (
        100  # those above the busy ratio weigh this much less: after half an hour, overload is the new normal
    )
    worse_after: int = 2
    calm_after: int = 5

    def __post_init__(self) -> None:
        for name in ("latency_ms", "latency_ratio", "cpu_percent", "memory_percent"):
            bounds = getattr(self, name)
            for bound in bounds:
                finite(name, bound)
            if list(bounds) != sorted(bounds):
                raise LimitError(name, tuple(bounds), "in rising order")
        finite("ratio_floor_ms", self.ratio_floor_ms)
        finite("trend_ratio", self.trend_ratio, least=1.0)
        whole("recent", self.recent, least=2)
        finite("baseline_weight", self.baseline_weight, most=1.0)
        whole("patience", self.patience, least=1)
        whole("worse_after", self.worse_after, least=1)
        whole("calm_after", self.calm_after, least=1)


class OverloadAssessment(NamedTuple):
    """The state after hysteresis, and the signal that is worst now."""

    state: OverloadState
    reason: str


ASSESS_EVERY_S: Final = 1.0
"""The cadence at which nodes assess their load."""
_FEWEST: Final = 3  # latencies that make a judgement: one slow request on a quiet node is no overload
_MOST_SAMPLES: Final = 256  # between two assessments; the latest count


class HybridOverloadDetector:
    """Feed it latencies as they come, and assess on a cadence (once a second)."""

    def __init__(self, config: OverloadConfig | None = None) -> None:
        self.config = config or OverloadConfig()
        self._samples: deque[float] = deque(maxlen=_MOST_SAMPLES)
        self._latencies: deque[float] = deque(maxlen=self.config.recent)  # one per assessment
        self._measured = 0
        self._baseline = 0.0
        self._level = 0
        self._worse_run: list[int] = []
        self._calm_run = 0

    @property
    def state(self) -> OverloadState:
        """The state of the last assessment."""
        return _LEVELS[self._level]

    @property
    def baseline_ms(self) -> float:
        """The latency that counts as normal now."""
        return self._baseline

    def record_latency(self, latency_ms: float) -> None:
        """Notes that one request took this long."""
        self._samples.append(finite("latency_ms", latency_ms))

    def assess(self, cpu_percent: float = 0.0, memory_percent: float = 0.0) -> OverloadAssessment:
        """Judge the four signals once."""
        finite("cpu_percent", cpu_percent)
        finite("memory_percent", memory_percent)
        if self._samples:
            self._latencies.append(median(self._samples))
        elif self._latencies:
            # A node that sheds everything sees no latency at all: what it saw last must not keep it shut for ever.
            self._latencies.popleft()
        level, reason = max(self.signals(cpu_percent, memory_percent), key=lambda signal: signal[0])
        if self._samples:
            self._move_baseline(self._latencies[-1])
            self._samples.clear()
        self._settle(level)
        return OverloadAssessment(self.state, reason if level else "all signals are calm")

    def _move_baseline(self, latency: float) -> None:
        self._measured += 1
        weight = self.config.baseline_weight
        if self._measured <= self.config.recent:
            weight = 1 / self._measured  # a plain mean until there is enough
        elif latency > self._baseline * self.config.latency_ratio.busy:
            weight /= self.config.patience
        self._baseline += (latency - self._baseline) * weight

    def signals(self, cpu_percent: float, memory_percent: float) -> list[tuple[int, str]]:
        """Returns the level that each signal asks for, with its reason. `assess` follows the highest."""
        config = self.config
        signals = [
            (config.cpu_percent.level(cpu_percent), f"CPU at {cpu_percent:g} %"),
            (config.memory_percent.level(memory_percent), f"memory at {memory_percent:g} %"),
        ]
        if len(self._latencies) >= _FEWEST:
            latency = median(self._latencies)
            signals.append((config.latency_ms.level(latency), f"latency {latency:.0f} ms"))
            signals.append(self._against_baseline(latency))
        return signals

    def _against_baseline(self, latency: float) -> tuple[int, str]:
        config = self.config
        if latency < config.ratio_floor_ms or self._measured < config.recent or self._baseline <= 0:
            return 0, ""
        ratio = latency / self._baseline
        level = config.latency_ratio.level(ratio)
        reason = f"latency {latency:.0f} ms, {ratio:.1f} times its baseline"
        if level and self._rising():
            return min(level + 1, len(_LEVELS) - 1), f"{reason} and rising"
        return level, reason

    def _rising(self) -> bool:
        recent = list(self._latencies)
        half = len(recent) // 2
        return half > 0 and fmean(recent[half:]) > fmean(recent[:half]) * self.config.trend_ratio

    def _settle(self, level: int) -> None:
        """Worse when enough assessments in a row say so (as bad as all of them agree on); calmer by one step at a time."""
        self._worse_run = [*self._worse_run, level][-self.config.worse_after :] if level > self._level else []
        self._calm_run = self._calm_run + 1 if level < self._level else 0
        if len(self._worse_run) == self.config.worse_after:
            self._level, self._worse_run = min(self._worse_run), []
        elif self._calm_run == self.config.calm_after:
            self._level, self._calm_run = self._level - 1, 0


class RequestKind(StrEnum):
    """Kinds of requests, from the first to be turned away to those that never are."""

    SUBMIT = "submit"
    INFORM = "inform"  # lists and explanations
    VITAL = "vital"  # cancels, results, reports, timeouts, probes


_LOWEST: Final = {OverloadState.HEALTHY: float("-inf"), OverloadState.BUSY: 0.0, OverloadState.STRESSED: 1.0}
"""The lowest priority that is still taken. 0 is what a job has that asks for none."""


_RETRY_AFTER_S: Final = {
    OverloadState.HEALTHY: 1.0,
    OverloadState.BUSY: 2.0,
    OverloadState.STRESSED: 5.0,
    OverloadState.OVERLOADED: 10.0,
}


def retry_after_s(state: OverloadState) -> float:
    """Returns the seconds that a refused caller should stay away: the worse the overload, the longer the recovery."""
    return _RETRY_AFTER_S[state]


def what_passes(state: OverloadState, asked: RequestKind) -> str:
    """Returns what a refused caller could do instead of waiting; empty where nothing helps."""
    if asked is RequestKind.SUBMIT and state in (OverloadState.BUSY, OverloadState.STRESSED):
        return f"or submit it with priority {_LOWEST[state]:.0f} or above"
    return ""


def why_shed(state: OverloadState, asked: RequestKind, priority: int = 0) -> str:
    """Empty when it may pass."""
    if asked is RequestKind.VITAL:
        return ""
    if state is OverloadState.OVERLOADED:
        return "the gate is overloaded and takes nothing new"
    if asked is RequestKind.SUBMIT and priority < _LOWEST[state]:
        return f"the gate is {state} and takes jobs of priority {_LOWEST[state]:.0f} and above; this one has {priority}"
    return ""

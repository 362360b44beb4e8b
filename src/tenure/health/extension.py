"""Time that a worker earns beyond its healthcheck deadline (document 000).

Each grant is half of the one before, needs progress since the last, and there is a last one: the sum has a bound that
`extension_bound` states. This file knows no clock and no deadline; `deadlines.py` keeps those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple

from tenure import bounds as b
from tenure.errors import LimitError
from tenure.health.signals import finite, whole


class ExtensionReason(StrEnum):
    """Why a worker may ask for more time."""

    LONG_WORKFLOW = "long_workflow"
    GC_PAUSE = "gc_pause"
    RESOURCE_CONTENTION = "resource_contention"


class Denial(StrEnum):
    """Why a request was denied."""

    SUSPECT = "suspect"
    MAXIMUM = "maximum"
    NO_PROGRESS = "no_progress"


def grant_seconds(extension_count: int, *, base_deadline: float = 30.0, min_grant: float = 1.0) -> float:
    """Returns the grant that follows `extension_count` earlier ones: max(min_grant, base / 2^count)."""
    return max(min_grant, math.ldexp(base_deadline, -extension_count))


def extension_bound(*, base_deadline: float = 30.0, min_grant: float = 1.0, max_extensions: int = 5) -> float:
    """Returns all that one series of grants can add up to: 58.125 s with the defaults. Jobs cap what they count by it."""
    return math.fsum(
        grant_seconds(count, base_deadline=base_deadline, min_grant=min_grant) for count in range(max_extensions)
    )


class _Answer(NamedTuple):
    granted: bool
    extension_seconds: float


class ExtensionGrant(_Answer):
    """The answer to a request: unpacks as (granted, extension_seconds), and also carries why."""

    reason: str
    denial: Denial | None
    warning: str | None

    def __new__(
        cls,
        granted: bool,
        extension_seconds: float,
        *,
        reason: str,
        denial: Denial | None = None,
        warning: str | None = None,
    ) -> ExtensionGrant:
        answer = super().__new__(cls, granted, extension_seconds)
        answer.reason, answer.denial, answer.warning = reason, denial, warning
        return answer


@dataclass
class ExtensionTracker:
    """Tracks healthcheck extensions for a worker."""

    worker_id: str
    base_deadline: float = 30.0
    min_grant: float = 1.0
    max_extensions: int = 5

    extension_count: int = 0
    last_progress: float = 0.0
    total_extended: float = 0.0
    # The worker's count of steps at the last grant, when it gave one: unlike a fraction it never falls when one
    # workflow ends and the next begins, so it decides where both know it.
    last_counter: int | None = None

    def __post_init__(self) -> None:
        finite("base_deadline", self.base_deadline)
        if self.base_deadline == 0:
            raise LimitError("base_deadline", 0, "more than 0 s")
        finite("min_grant", self.min_grant, most=self.base_deadline)
        whole("max_extensions", self.max_extensions)
        whole("extension_count", self.extension_count)
        finite("last_progress", self.last_progress, most=1.0)
        finite("total_extended", self.total_extended)

    @property
    def bound(self) -> float:
        """All that this tracker can grant between two resets."""
        return extension_bound(
            base_deadline=self.base_deadline, min_grant=self.min_grant, max_extensions=self.max_extensions
        )

    @property
    def remaining_extensions(self) -> int:
        """Returns the number of grants that are left before a reset."""
        return max(0, self.max_extensions - self.extension_count)

    def request_extension(
        self, reason: str, current_progress: float, *, counter: int | None = None, suspect: str | None = None
    ) -> ExtensionGrant:
        """Request a deadline extension: (granted, extension_seconds), with the reason.

        `counter` is the worker's count of steps, and wins over the fraction. `suspect` says why the worker is under
        suspicion, which denies. A wrong reason or progress raises `LimitError`: it is a bug, not a denial.
        """
        check_reason(reason)
        finite("current_progress", current_progress, most=1.0)
        if counter is not None:
            whole("counter", counter)
        denied = self._denial(current_progress, counter, suspect)
        if denied is not None:
            denial, why = denied
            return ExtensionGrant(False, 0.0, reason=why, denial=denial)

        grant = grant_seconds(self.extension_count, base_deadline=self.base_deadline, min_grant=self.min_grant)
        self.extension_count += 1
        self.last_progress = current_progress
        self.last_counter = counter
        self.total_extended += grant
        why = f"extension {self.extension_count} of {self.max_extensions} for {reason}: {grant:g} s"
        return ExtensionGrant(True, grant, reason=why, warning=self._warning())

    def reset(self) -> None:
        """Reset tracker when worker completes operation or recovers."""
        self.extension_count = 0
        self.last_progress = 0.0
        self.total_extended = 0.0
        self.last_counter = None

    def _denial(self, progress: float, counter: int | None, suspect: str | None) -> tuple[Denial, str] | None:
        if suspect is not None:
            return Denial.SUSPECT, f"Worker is already marked suspect: {suspect}"
        if self.extension_count >= self.max_extensions:
            return Denial.MAXIMUM, f"Maximum extensions ({self.max_extensions}) exceeded"
        if self.extension_count == 0:  # there is no last extension since which it could have advanced
            return None
        if counter is not None and self.last_counter is not None:
            if counter <= self.last_counter:
                was = f"counter was {self.last_counter}, now {counter}"
                return Denial.NO_PROGRESS, f"No progress since last extension ({was})"
        elif progress <= self.last_progress:
            was = f"was {self.last_progress}, now {progress}"
            return Denial.NO_PROGRESS, f"No progress since last extension ({was})"
        return None

    def _warning(self) -> str | None:
        """Said one grant before the last, and with the last, so that work can save its state while it has time."""
        if self.remaining_extensions > 1:
            return None
        if self.remaining_extensions == 0:
            return "This was the last extension: save your state now"
        last = grant_seconds(self.extension_count, base_deadline=self.base_deadline, min_grant=self.min_grant)
        return f"One extension of {last:g} s is left: save your state"


@dataclass(frozen=True)
class HealthcheckExtensionRequest:
    """Worker requests more time before being marked unhealthy."""

    worker_id: b.WorkerName
    reason: Annotated[str, b.one_of(ExtensionReason)]  # "long_workflow" | "gc_pause" | "resource_contention"
    current_progress: b.Fraction  # 0.0 to 1.0
    estimated_completion: b.UnixTime  # Unix timestamp; evidence only
    active_workflow_count: b.Count  # evidence only
    progress_counter: b.StepCount | None = (
        None  # all steps of this incarnation of the worker; wins over current_progress
    )

    def __post_init__(self) -> None:
        check_reason(self.reason)
        finite("current_progress", self.current_progress, most=1.0)
        finite("estimated_completion", self.estimated_completion)
        whole("active_workflow_count", self.active_workflow_count)
        if self.progress_counter is not None:
            whole("progress_counter", self.progress_counter)


@dataclass(frozen=True)
class HealthcheckExtensionResponse:
    """Manager response to extension request."""

    granted: bool
    extension_seconds: float  # 0.0 if not granted
    new_deadline: float  # Unix timestamp of new deadline
    remaining_extensions: int  # How many more can be requested
    denial_reason: str | None = None  # If not granted
    warning: str | None = None  # one grant before the last, and with the last


def check_reason(reason: str) -> ExtensionReason:
    """Returns the reason as one of the three; raises `LimitError` for any other."""
    try:
        return ExtensionReason(reason)
    except ValueError:
        raise LimitError("reason", repr(reason), "one of " + ", ".join(ExtensionReason)) from None

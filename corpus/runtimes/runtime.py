"""The contract of a runtime under measure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from corpus.case import Case


@dataclass(frozen=True)
class Known:
    """The facts that a runtime has recorded about one case."""

    failed_at: float | None = None
    """The Unix time at which it recorded the first failure of an attempt."""
    evidence: str = ""
    """Everything that it can show for that failure: reason, stacks, log lines."""


class Runtime(ABC):
    """One runtime with one set of settings. `start`, `submit`, then `known` as often as one likes, and `stop`."""

    name: str
    settings: str
    """Its settings in words, for the table."""
    version: str = ""
    """The package and version that ran, for the page."""
    longest_s: float = 0.0
    """The seconds until it gives up a job at last: a hang is not judged before. 0 where it has no limit, or finds hangs by their thresholds."""
    after_s: float = 8.0
    """A hang that nobody has found so long after its threshold and the slack is missed; the retry of one that was found has this time, too."""
    at_once: int = 100
    """The most cases that it has running at a time."""
    frees_places: bool = False
    """It takes the place of a hung case back, so that all cases can be submitted at once. Others get them in batches, each with fresh workers."""

    @abstractmethod
    def start(self, folder: Path, places: int) -> None: ...

    @abstractmethod
    def submit(self, cases: list[Case]) -> None: ...

    def watch(self, case: Case) -> None:
        """Called twice a second for each case that is open."""

    @abstractmethod
    def known(self, case: Case) -> Known: ...

    @abstractmethod
    def stop(self) -> None: ...

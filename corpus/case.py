"""A case of the corpus: a small program and its label. Standard library only, because peers import it in environments of their own."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SCALE = 100
"""All times are a hundredth of real ones: Tenure's default stall of 300 s is 3 s here, a peer's default timeout of 180 s is 1.8 s."""
STALL_S = 300 / SCALE
STUCK_S = 2 * STALL_S
SLACK_S = 5.0
"""A hang counts as found in time within its threshold and this."""

MODULES = (
    "hangs.locks",
    "hangs.processes",
    "hangs.network",
    "hangs.native",
    "hangs.event_loop",
    "hangs.spinning",
    "healthy.steps",
    "healthy.waiting",
    "healthy.machine",
    "healthy.event_loop",
)


@dataclass(frozen=True)
class Case:
    """One program with its label."""

    run: Callable[..., Any]
    kind: str
    """`hang` or `healthy`."""
    story: str
    """A hang: what is wrong. A healthy job: why it is slow, and why that is no hang."""
    threshold_s: float = STALL_S
    """A hang: the seconds after which it should be found."""
    names: tuple[str, ...] = ()
    """A hang: the words that evidence must contain to have named the cause, mostly the function that blocks."""
    counts: bool = True
    """A hang: it counted items and saved a checkpoint before it hung. Without that, nothing but beats is known of it."""
    short: bool = False
    """It is part of the short version, in `make test`."""
    cpu: bool = False
    """It burns a core while it runs: few of these run at a time."""
    tags: frozenset[str] = field(default_factory=frozenset)

    @property
    def name(self) -> str:
        return str(self.run.__name__)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.run)


CASES: dict[str, Case] = {}


def _add(case: Case) -> Callable[..., Any]:
    assert case.name not in CASES, f"two cases are called {case.name}"
    CASES[case.name] = case
    return case.run


def hang(
    story: str, *names: str, spins: bool = False, threshold_s: float = 0.0, **label: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a program that hangs. `names` are what its evidence has to contain; `spins`: it beats, and the stuck threshold counts."""
    default_s = STUCK_S if spins else STALL_S
    return lambda run: _add(Case(run, "hang", story, threshold_s or default_s, names or (run.__name__,), **label))


def healthy(story: str, **label: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a program that is slow and healthy."""
    return lambda run: _add(Case(run, "healthy", story, **label))


def all_cases() -> dict[str, Case]:
    """Returns every case by name. To add one, write a marked function into a module of `MODULES`."""
    for module in MODULES:
        importlib.import_module(f"corpus.{module}")
    return CASES

"""The first request of a person on call: is anything wrong, since when, and what helps."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tenure.control.messages.queues import QueueView
from tenure.control.messages.wire import Placed, Reply


class Severity(StrEnum):
    WRONG = "wrong"  # work does not go on until somebody acts
    LOOK = "look"  # something ended badly or is about to; a person should look
    NOTE = "note"  # on purpose or harmless, and good to know


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    severity: Severity
    kind: str
    subject: str
    text: str
    remedy: str = ""
    """A command, or what to look at."""
    since: float = 0.0
    """The engine's time; 0 where nobody knows."""


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """The last minutes in equal steps, oldest first. A leader counts from its election on."""

    step_s: float
    until: float
    """The end of the last step, by the engine's time: it is still being counted."""
    submitted: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    completed: tuple[int, ...] = ()
    """Attempts that brought a result."""
    failed: tuple[int, ...] = ()
    """Attempts that did not."""
    waiting: tuple[int, ...] = ()
    """Attempts that waited at the end of each step."""
    running: tuple[int, ...] = ()


class AskOverview(Placed, frozen=True, kw_only=True, tag="overview"):
    """How the datacenter is. Leader only: nobody else hears of workers."""


class Overview(Reply, frozen=True, kw_only=True, tag="overview_view"):
    datacenter: str
    leader: str
    epoch: int
    elected_at: float
    now: float
    troubles: tuple[Trouble, ...]
    """The worst first."""
    jobs: dict[str, int]
    """In memory, by state."""
    attempts: dict[str, int]
    """Open ones: resting, held, queued, running."""
    workers: dict[str, int]
    """By what they are told."""
    slots: int
    free: int
    queues: tuple[QueueView, ...]
    dead_letters: int
    pulse: Pulse

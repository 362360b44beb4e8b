"""The engine: what one URL opens, what it refuses to promise, and what its own check finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Self

from tenure.clock import Clock, SystemClock
from tenure.engines.contracts.election import Election
from tenure.engines.contracts.journal import Journal
from tenure.engines.contracts.mailbox import Mailbox
from tenure.engines.contracts.messages import BodyT, ReplyT
from tenure.engines.contracts.store import Store


class Refusal(NamedTuple):
    """A guarantee that an engine does not give, which part of the suite it concerns, and why."""

    guarantee: str
    reason: str


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"  # it works, and under some circumstance it will not
    ERROR = "error"  # it does not work, or a promise does not hold


class Finding(NamedTuple):
    """One thing that an engine's own check looked at, and what to do about it."""

    level: Level
    what: str
    remedy: str = ""


class Engine(ABC):
    """Where work and decisions live. One URL selects it."""

    url: str
    clock: Clock
    refusals: tuple[Refusal, ...] = ()

    @staticmethod
    def open(url: str, *, clock: Clock | None = None) -> Engine:
        """Open `memory://`, `sqlite:///file`, `postgresql://…`, `redis://…` or `nats://…`."""
        from tenure.engines.opening import open_engine

        return open_engine(url, clock or SystemClock())

    @abstractmethod
    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Mailbox[BodyT, ReplyT]:
        """A handle on a mailbox, made when first used. The types say how bodies and replies are decoded."""

    @abstractmethod
    def journal(self, name: str) -> Journal: ...

    @abstractmethod
    def election(self, name: str) -> Election: ...

    @abstractmethod
    def store(self, name: str) -> Store: ...

    @abstractmethod
    def now(self) -> float:
        """The engine's time: Unix seconds, the same for all its clients, never going back."""

    def check(self) -> list[Finding]:
        """Returns findings about this set-up for an operator: version, rights and settings, each with its remedy. Changes nothing."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Close every handle and connection. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

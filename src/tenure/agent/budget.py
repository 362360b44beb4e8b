"""Bounds an evaluation: a budget of tokens, money and tool calls with the tracker that counts them, and the deadline by which it has to be over.

Exceeding a budget is an outcome with a sentence that says which limit and by how much; nothing is raised.

A deadline is an instant on the wire, as Unix time, so that it survives an engine and another machine. A process measures its span once, when
it starts, and counts it down on its own monotonic clock: a stepped wall clock moves no deadline that is already running.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from tenure.agent.events import NO_USAGE, Event, ModelSaid, ToolAnswered, Usage
from tenure.clock import Clock, SystemClock
from tenure.errors import LimitError


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a model, in money per million tokens. `cached` is None where cached input costs as much as other input."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None

    def cost(self, usage: Usage) -> float:
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        return (fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one request; None: no limit. Reaching a limit is allowed, and ends the work that would go on."""

    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_cost: float | None = None
    max_tool_calls: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value >= 0:
                raise LimitError(f"Budget.{field.name}", value, "0 or more, or None for no limit")


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens, money and tool calls that were used so far."""

    usage: Usage = NO_USAGE
    cost: float = 0.0
    tool_calls: int = 0


class BudgetTracker:
    """Counts what an evaluation uses. Safe to share between threads and between evaluations of one request."""

    def __init__(self, budget: Budget | None = None, prices: Prices | None = None) -> None:
        self.budget = budget or Budget()
        self.prices = prices
        self._spent = Spent()
        self._lock = threading.Lock()
        if self.budget.max_cost is not None and prices is None:
            raise LimitError(
                "Budget.max_cost", self.budget.max_cost, "None while no prices are known",
                remedy="Give the loop the model's prices: MainLoopConfig(prices=Prices(input=3, output=15))",
            )  # fmt: skip

    @property
    def spent(self) -> Spent:
        return self._spent

    def charge(self, usage: Usage) -> None:
        """Counts one model call."""
        cost = self.prices.cost(usage) if self.prices is not None else 0.0
        with self._lock:
            self._spent = Spent(self._spent.usage + usage, self._spent.cost + cost, self._spent.tool_calls)

    def count_tool_call(self) -> None:
        with self._lock:
            self._spent = Spent(self._spent.usage, self._spent.cost, self._spent.tool_calls + 1)

    def recount(self, events: Iterable[Event]) -> None:
        """Take over what an earlier delivery spent on the same request, so that a crash is no fresh purse."""
        for event in events:
            if isinstance(event, ModelSaid):
                self.charge(event.usage)
            elif isinstance(event, ToolAnswered) and event.made:
                self.count_tool_call()

    def exhausted(self) -> str | None:
        """Which limit is reached, so that no further model call may start; None while there is room in all of them."""
        over = [f"{name} {used:,.10g} of {limit:,.10g}" for name, used, limit in self._limits() if used >= limit]
        return "; ".join(over) or None

    def refuses_tool_call(self) -> str | None:
        """Returns why no further tool call may start; None where one may."""
        most, used = self.budget.max_tool_calls, self._spent.tool_calls
        return f"tool calls {used} of {most}" if most is not None and used >= most else None

    def _limits(self) -> Iterator[tuple[str, float, float]]:
        budget, spent = self.budget, self._spent
        rows = (
            ("tokens", spent.usage.total_tokens, budget.max_total_tokens),
            ("input tokens", spent.usage.input_tokens, budget.max_input_tokens),
            ("output tokens", spent.usage.output_tokens, budget.max_output_tokens),
            ("cost", spent.cost, budget.max_cost),
        )
        for name, used, limit in rows:
            if limit is not None:
                yield name, used, limit


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant, in Unix seconds."""

    expires_at: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.expires_at):
            raise LimitError("Deadline.expires_at", self.expires_at, "a finite Unix time")

    @classmethod
    def after(cls, seconds: float, clock: Clock | None = None) -> Deadline:
        """Returns the deadline that is so many seconds from now."""
        if not 0 <= seconds < math.inf:
            raise LimitError("Deadline seconds", seconds, "0 seconds or more")
        return cls((clock or SystemClock()).wall() + seconds)

    def earlier(self, other: Deadline | None) -> Deadline:
        """Whichever of the two comes first."""
        return self if other is None or self.expires_at <= other.expires_at else other

    def countdown(self, clock: Clock) -> Countdown:
        """Counts the time that is left, from here on by this process's own clock."""
        return Countdown(clock, clock.monotonic() + self.expires_at - clock.wall())


@dataclass(frozen=True, slots=True)
class Countdown:
    """A running deadline."""

    clock: Clock
    until: float = math.inf

    @property
    def remaining_s(self) -> float:
        """Seconds that are left; 0 once it is over, infinite without a deadline."""
        return max(0.0, self.until - self.clock.monotonic())

    @property
    def over(self) -> bool:
        return self.remaining_s <= 0

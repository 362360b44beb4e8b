"""Commands that wait for a ledger's writer, and what became of each."""

from __future__ import annotations

import asyncio
from typing import Generic, NamedTuple, TypeVar

from tenure.errors import TenureError
from tenure.jobs.commands import Command

DecisionT = TypeVar("DecisionT")


class CommandGroup(Generic[DecisionT]):
    """Commands that came together: their caller is woken once, when all of them are settled."""

    def __init__(self, size: int) -> None:
        self.outcomes: list[DecisionT | TenureError | None] = [None] * size
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = size

    def settle(self, place: int, outcome: DecisionT | TenureError) -> None:
        """Say what became of one of them. The first word counts: a writer that failed settles whatever it left open."""
        if self.outcomes[place] is not None:
            return
        self.outcomes[place] = outcome
        self._open -= 1
        if not self._open and not self.complete.done():
            self.complete.set_result(None)

    def settle_rest(self, outcome: TenureError) -> None:
        """Say the same of all that are open."""
        for place in range(len(self.outcomes)):
            self.settle(place, outcome)


class WaitingCommand(NamedTuple, Generic[DecisionT]):
    command: Command
    group: CommandGroup[DecisionT]
    place: int

    def settle(self, outcome: DecisionT | TenureError) -> None:
        self.group.settle(self.place, outcome)

"""Holds the commands that wait for a ledger's writer, and the outcome of each."""

from __future__ import annotations

import asyncio
from typing import Generic, NamedTuple, TypeVar

from tenure.errors import TenureError
from tenure.jobs.commands import Command

DecisionT = TypeVar("DecisionT")


class CommandGroup(Generic[DecisionT]):
    """Commands of one caller. `complete` wakes the caller once, when all of them are settled."""

    def __init__(self, size: int) -> None:
        self.outcomes: list[DecisionT | TenureError | None] = [None] * size
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = size

    def settle(self, place: int, outcome: DecisionT | TenureError) -> None:
        """Sets the outcome of one command. The first outcome counts: when a writer fails, all commands are settled, and some already were."""
        if self.outcomes[place] is not None:
            return
        self.outcomes[place] = outcome
        self._open -= 1
        if not self._open and not self.complete.done():
            self.complete.set_result(None)

    def settle_rest(self, outcome: TenureError) -> None:
        """Sets this outcome for every command that has none yet."""
        for place in range(len(self.outcomes)):
            self.settle(place, outcome)


class WaitingCommand(NamedTuple, Generic[DecisionT]):
    command: Command
    group: CommandGroup[DecisionT]
    place: int

    def settle(self, outcome: DecisionT | TenureError) -> None:
        self.group.settle(self.place, outcome)

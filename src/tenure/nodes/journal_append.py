"""The two ends of a write to a journal: commands that wait for their outcome, and an append that finds out its own.

`SureAppend` appends and learns what became of it, also where the engine's answer was lost. `CommandGroup` holds the outcomes for a caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Journal
from tenure.errors import (
    DeposedError,
    EngineBusyError,
    EngineFullError,
    EngineUnavailableError,
    SequenceConflictError,
    StaleEpochError,
    TenureError,
    Truncated,
)
from tenure.jobs.decisions import Command, Event, Outcome
from tenure.randomness import Random

RETRY_MOST_S = 1.0


class Decided(Protocol):
    """The decision on a command: the events to append, and what became of the command. Its class adds more of the answer."""

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def outcome(self) -> Outcome: ...


DecisionT = TypeVar("DecisionT", bound=Decided)


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


class SureAppend:
    """Asks the engine until it answers: until then the outcome of an append is unknown."""

    def __init__(self, calls: Calls, clock: Clock, random: Random) -> None:
        self._calls, self._clock, self._random = calls, clock, random

    async def append(
        self, journal: Journal, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str
    ) -> int:
        """Returns the sequence that the events got. Raises `DeposedError` when another leader wrote at this position."""
        backoff: Backoff | None = None
        lost_answer = False
        while True:
            try:
                if lost_answer and (found := await self._find(journal, append_id, expect)) is not None:
                    return found
                return await self._calls.run(journal.append, events, epoch=epoch, expect=expect, append_id=append_id)
            except (EngineUnavailableError, EngineBusyError, EngineFullError):
                lost_answer, backoff = True, backoff or self.backoff()
                await self._clock.async_sleep(backoff.next())
            except (StaleEpochError, SequenceConflictError) as error:
                # After a lost answer, the entry at this position may be our own append.
                found = await self._find_for_sure(journal, append_id, expect) if lost_answer else None
                if found is not None:
                    return found
                raise DeposedError(f"an append was refused: {error}") from error
            except Truncated as error:
                raise DeposedError(f"another leader has gone on: {error}") from error

    def backoff(self) -> Backoff:
        return Backoff(self._random, most_s=RETRY_MOST_S)

    async def _find(self, journal: Journal, append_id: str, after: int) -> int | None:
        """Returns the sequence of the entry with this id above `after`, or None. Each page is one engine call, so that a simulation may fail any."""
        position = after
        while entries := await self._calls.run(journal.read, position):
            for entry in entries:
                if entry.append_id == append_id:
                    return entry.seq
            position = entries[-1].seq
        return None

    async def _find_for_sure(self, journal: Journal, append_id: str, after: int) -> int | None:
        backoff = self.backoff()
        while True:
            try:
                return await self._find(journal, append_id, after)
            except (EngineUnavailableError, EngineBusyError):
                await self._clock.async_sleep(backoff.next())
            except Truncated:
                return None

"""Appends to a journal and finds out the outcome, also where the engine's answer was lost."""

from __future__ import annotations

from collections.abc import Sequence

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
    Truncated,
)
from tenure.randomness import Random

RETRY_MOST_S = 1.0


class SureAppend:
    """Asks the engine until it answers: until then the outcome of an append is unknown."""

    def __init__(self, calls: Calls, clock: Clock, random: Random) -> None:
        self._calls, self._clock, self._random = calls, clock, random

    async def append(
        self, journal: Journal, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str
    ) -> int:
        """Returns the sequence that the events got. Raises `DeposedError` when another leader wrote at this position."""
        backoff, lost_answer = self.backoff(), False
        while True:
            try:
                if lost_answer and (found := await self._find(journal, append_id, expect)) is not None:
                    return found
                return await self._calls.run(journal.append, events, epoch=epoch, expect=expect, append_id=append_id)
            except (EngineUnavailableError, EngineBusyError, EngineFullError):
                lost_answer = True
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

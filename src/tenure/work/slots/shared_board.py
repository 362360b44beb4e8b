"""The beat board of a supervisor, as other threads of its process read it while the supervisor opens and closes it."""

from __future__ import annotations

import contextlib
import threading

from tenure.beat.board import BeatBoard
from tenure.beat.record import BeatReading, Totals
from tenure.errors import BoardError


class SharedBoard:
    """Its methods may be called from any thread. Before it was opened, and after it was closed, it shows nothing."""

    def __init__(self) -> None:
        self._board: BeatBoard | None = None
        self._lock = threading.Lock()
        self._steps = 0

    def opened(self, board: BeatBoard) -> None:
        self._board = board

    @property
    def open(self) -> BeatBoard:
        assert self._board is not None, "it is open while its supervisor runs"
        return self._board

    @property
    def is_open(self) -> bool:
        return self._board is not None

    def close(self) -> None:
        with self._lock:
            self.open.close()
            self._board = None

    def readings(self) -> list[tuple[int, BeatReading]]:
        """Returns a reading of every record that is not damaged."""
        with self._lock:
            found = []
            for record in self._board.records if self._board else ():
                with contextlib.suppress(BoardError):
                    found.append((record.index, record.read()))
            return found

    def lease_of(self, index: int, serial: int) -> float:
        """Returns the boot time at which the lease of an attempt is lost; 0 where there is no board."""
        with self._lock:
            return self._board.records[index].lease_of(serial) if self._board else 0.0

    def totals(self) -> Totals:
        """Returns the totals of all attempts since this board was opened."""
        with self._lock:
            found = [record.totals() for record in self._board.records] if self._board else []
        # A slot moves a record's steps from one word to another as the next attempt begins. A read in between would show fewer.
        self._steps = max(self._steps, sum(one.steps for one in found))
        return Totals(sum(one.completed for one in found), sum(one.failed for one in found), self._steps)

"""Keeps the file small: forgets old keys and expired values, gives free pages back, and records the latest time.

Done by whoever writes, at most once a minute, in small steps, so that nothing has to run in the background.
"""

from __future__ import annotations

import contextlib

from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.database import Database
from tenure.engines.sqlite.rows import KEY_MEMORY_US
from tenure.errors import EngineError

EVERY_US = 60_000_000
_SOON_US = 1_000_000
_STEPS = 4
_ROWS = 2_000
_PAGES = 512
_SPARE_PAGES = 64
"""Free pages that are kept for the next messages: giving them back and asking again costs more than they are worth."""


class Upkeep:
    """One per engine."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next_at = database.now() + EVERY_US

    def after_write(self) -> None:
        """Called after each send; nearly always one comparison."""
        if self._database.now() >= self._next_at:
            self._next_at = self._database.now() + EVERY_US
            with contextlib.suppress(EngineError):  # what the caller asked for has succeeded; this comes around again
                self.run()

    def run(self) -> None:
        """A few steps; what is left over is taken up soon."""
        for _ in range(_STEPS):
            if not self.step():
                return
        self._next_at = self._database.now() + _SOON_US

    def step(self) -> bool:
        """One bounded piece of work; whether there may be more."""
        with self._database.writer as tx:
            now = self._database.now()
            tx.execute(sql.TOUCH_TIMELINE, (now,))
            gone = tx.execute(sql.PRUNE_KEYS, (now - KEY_MEMORY_US, _ROWS)).rowcount
            gone = max(gone, tx.execute(sql.BURY_STORED, (KEY_MEMORY_US, now, _ROWS)).rowcount)
            gone = max(gone, tx.execute(sql.PRUNE_STORED, (now, _ROWS)).rowcount)
            (free,) = tx.execute("PRAGMA freelist_count").fetchone()
        if free > _SPARE_PAGES:
            self._database.writer.vacuum(min(_PAGES, free - _SPARE_PAGES))
        return gone >= _ROWS or free > _SPARE_PAGES + _PAGES

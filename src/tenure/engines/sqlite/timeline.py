"""The engine's time: boot time plus an anchor that the file keeps for this boot.

Boot time is the same in all processes of one boot and is never stepped, so neither are leases. A new boot has a new boot
time: then the anchor is set anew, from the wall clock, or from the latest time that the file knows if that is later. No
process of the earlier boot can be alive, so its leases and terms end there and then.
"""

from __future__ import annotations

import sqlite3

from tenure.clock import Clock
from tenure.engines.sqlite import statements as sql

MICRO = 1_000_000


def micros(seconds: float) -> int:
    """Whole microseconds: sums of them are exact, so a lease ends at its very moment and not a rounding later."""
    return round(seconds * MICRO)


class Timeline:
    """Tells the engine's time, in microseconds, once it is anchored."""

    __slots__ = ("_anchor", "_boottime")

    def __init__(self, clock: Clock, anchor: int) -> None:
        self._boottime, self._anchor = clock.boottime, anchor

    def now(self) -> int:
        return round(self._boottime() * MICRO) + self._anchor


def anchored(connection: sqlite3.Connection, clock: Clock) -> Timeline:
    """Read the anchor of this boot, or drop one; inside the caller's write transaction."""
    row = connection.execute(sql.READ_TIMELINE).fetchone()
    if row is not None and row[0] == clock.boot_id():
        return Timeline(clock, row[1])
    now = max(micros(clock.wall()), _latest_known(connection))
    anchor = now - micros(clock.boottime())
    connection.execute(sql.SET_TIMELINE, (clock.boot_id(), anchor, now))
    if row is not None:
        connection.execute(sql.FREE_ALL_LEASES)
        connection.execute(sql.END_ALL_TERMS, (now,))
    return Timeline(clock, anchor)


def _latest_known(connection: sqlite3.Connection) -> int:
    """The latest time that anything in the file was written at: reads whole tables, once per boot."""
    return max(int(connection.execute(query).fetchone()[0] or 0) for query in sql.LATEST_TIMES)

"""A nightly ETL: days are copied one by one, a day that was loaded is never loaded again, and a bad night goes on where it broke.

tenure schedule add etl load_days --cron "0 3 * * *" --arg 'days=["2026-11-16"]'
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tenure import Context, workflow


def extract(source: str, day: str) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(source)) as database:
        return database.execute("SELECT item, amount FROM sale WHERE day = ?", (day,)).fetchall()


def load(warehouse: str, day: str, totals: dict[str, int]) -> int:
    with closing(sqlite3.connect(warehouse)) as database, database:
        # In one transaction and by day: a step that was running when its worker died runs again, and must not count twice.
        database.execute("DELETE FROM total WHERE day = ?", (day,))
        database.executemany("INSERT INTO total VALUES (?, ?, ?)", [(day, *pair) for pair in sorted(totals.items())])
    return len(totals)


def copy_day(source: str, warehouse: str, day: str) -> int:
    totals: dict[str, int] = {}
    for item, amount in extract(source, day):
        totals[item] = totals.get(item, 0) + amount
    return load(warehouse, day, totals)


@workflow(stall=600, max_attempts=5)
def load_days(ctx: Context, source: str, warehouse: str, days: list[str]) -> int:
    return sum(ctx.step("copy_day", copy_day, source, warehouse, day, key=day) for day in ctx.track(days))

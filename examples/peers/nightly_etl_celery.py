"""A nightly ETL with Celery: a table of its own remembers the days that are done, and beat is one more process."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from celery import Celery
from celery.schedules import crontab

app = Celery("etl", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379"))
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_transport_options = {"visibility_timeout": 86_400}
app.conf.beat_schedule = {
    "etl": {
        "task": "nightly_etl_celery.load_days",
        "schedule": crontab(hour=3, minute=0),
        "kwargs": {"source": "shop.db", "warehouse": "warehouse.db", "days": ["2026-11-16"]},
    }
}


def extract(source: str, day: str) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(source)) as database:
        return database.execute("SELECT item, amount FROM sale WHERE day = ?", (day,)).fetchall()


def done(warehouse: str, run: str) -> dict[str, int]:
    with closing(sqlite3.connect(warehouse)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS loaded (run TEXT, day TEXT, rows INT, PRIMARY KEY (run, day))")
        return dict(database.execute("SELECT day, rows FROM loaded WHERE run = ?", (run,)).fetchall())


def load(warehouse: str, run: str, day: str, totals: dict[str, int]) -> int:
    with closing(sqlite3.connect(warehouse)) as database, database:
        database.execute("DELETE FROM total WHERE day = ?", (day,))
        database.executemany("INSERT INTO total VALUES (?, ?, ?)", [(day, *pair) for pair in sorted(totals.items())])
        database.execute("INSERT OR REPLACE INTO loaded VALUES (?, ?, ?)", (run, day, len(totals)))
    return len(totals)


def copy_day(source: str, warehouse: str, run: str, day: str) -> int:
    totals: dict[str, int] = {}
    for item, amount in extract(source, day):
        totals[item] = totals.get(item, 0) + amount
    return load(warehouse, run, day, totals)


@app.task(bind=True, name="nightly_etl_celery.load_days", max_retries=4, soft_time_limit=6 * 3_600)
def load_days(self, source: str, warehouse: str, days: list[str]) -> int:
    before = done(warehouse, self.request.id)
    try:
        rest = sum(copy_day(source, warehouse, self.request.id, day) for day in days if day not in before)
    except Exception as error:
        raise self.retry(exc=error, countdown=1) from error
    return rest + sum(before.values())

"""A day of completed jobs in small, on SQLite: what the leader holds, and what a job asks of the engine, stay as they were. `make bench ONLY=day` has a large one."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from bench.simulated_day import SHORT_KEPT_HOURS, Plan, job_id, simulated, submission
from msgspec.structs import replace

from tenure.control.messages.jobs import Done, Submit
from tenure.jobs import JobSettings, Outcome

AN_HOUR = 40
HOURS = 24
STEADY = 10
"""From this hour on records leave the archive as fast as they come, and ids are forgotten before their time."""
MOST = {"known": 1.0, "remembered": 1.0, "keys": 1.0, "state": 1.02, "objects": 1.02, "calls_a_job": 1.1}
"""The most that any of the last four hours may have, beside the first four of the steady ones."""
MOST_THREADS = 16
SETTINGS = JobSettings(archive_after=90.0, keep_archive=3_600.0, max_remembered=2 * AN_HOUR)


def stored(path: Path) -> dict[str, int]:
    with sqlite3.connect(path) as file:
        return dict(file.execute("SELECT store, count(*) FROM stored GROUP BY store").fetchall())


def test_a_day_leaves_the_leader_as_its_first_hours_did(tmp_path: Path) -> None:
    async def story() -> None:
        hours: list[dict[str, Any]] = []
        async with simulated(f"sqlite:///{tmp_path}/day.db", Plan(HOURS, AN_HOUR, 60.0, SETTINGS)) as day:
            for hour in range(HOURS):
                passed = await day.hour(hour)
                hours.append({**passed, "state": len(day.manager.ledger.book.snapshot())})
            again = replace(submission(0, 0), job_id="again")
            reply = await day.manager.answer("test", Submit(submission=again))
        assert isinstance(reply, Done)
        assert (reply.job_id, reply.outcome) == (job_id(0, 0), Outcome.ALREADY)
        assert {one["epoch"] for one in hours} == {1}
        assert max(one["threads"] for one in hours) <= MOST_THREADS
        for name, most in MOST.items():
            found = [one[name] for one in hours[STEADY:]]
            assert max(found[-4:]) <= most * max(found[:4]), (name, found)

    asyncio.run(story())
    records = stored(tmp_path / "day.db")["jobs"]
    assert records <= AN_HOUR * (HOURS + SHORT_KEPT_HOURS + 2) / 2

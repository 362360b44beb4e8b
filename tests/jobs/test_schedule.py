"""Schedules: which instants there are, which of them fire, and that each is done once whoever leads."""

from __future__ import annotations

import math
from datetime import datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from tests.jobs.desk import Desk, spec, submission

from tenure.clock import zone
from tenure.errors import ConfigurationError, LimitError, UnknownScheduleError
from tenure.jobs import JobBook, Outcome
from tenure.jobs.cron import MOST_MISSED, due, instants, next_instant
from tenure.jobs.schedules import FireCron, PutSchedule, RemoveSchedule, RunSchedule, SkipInstants
from tenure.jobs.state_records import Missed, Overlap, Schedule, ScheduleRecord

DAY = 86_400.0


def utc(instant: float) -> int:
    """The zone whose clocks are never ahead of UTC."""
    return 0


def schedule(name: str = "nightly", **options: Any) -> Schedule:
    options.setdefault("cron", "" if "every_s" in options else "0 3 * * *")
    return Schedule(name=name, job=submission("unused", spec("backup")), **options)


def in_berlin(start: str, cron: str, many: int) -> list[str]:
    berlin = ZoneInfo("Europe/Berlin")
    after = datetime.fromisoformat(start).replace(tzinfo=berlin).timestamp()
    found = islice(instants(schedule(cron=cron), after, zone("Europe/Berlin")), many)
    return [datetime.fromtimestamp(instant, berlin).strftime("%d %H:%M%z") for instant in found]


def test_what_is_due_in_the_hour_that_is_left_out_comes_once_at_the_change() -> None:
    assert in_berlin("2026-03-28T12:00", "30 2 * * *", 2) == ["29 03:00+0200", "30 02:30+0200"]
    assert in_berlin("2026-03-29T01:30", "*/20 * * * *", 3) == ["29 01:40+0100", "29 03:00+0200", "29 03:20+0200"]


def test_a_fixed_hour_that_comes_twice_fires_once_and_every_hour_goes_on() -> None:
    assert in_berlin("2026-10-24T12:00", "30 2 * * *", 2) == ["25 02:30+0200", "26 02:30+0100"]
    assert in_berlin("2026-10-25T02:20", "*/30 * * * *", 4) == [
        "25 02:30+0200",
        "25 02:00+0100",
        "25 02:30+0100",
        "25 03:00+0100",
    ]


def test_an_interval_means_the_same_instants_to_every_leader() -> None:
    found = list(islice(instants(schedule(every_s=90.0), 1_000_000_000.0, utc), 3))
    assert found == [1_000_000_080.0, 1_000_000_170.0, 1_000_000_260.0]
    assert next(instants(schedule(every_s=90.0), found[0], utc)) == found[1]


def test_nothing_comes_after_its_end_or_while_it_is_paused() -> None:
    record = ScheduleRecord(schedule=schedule(every_s=60.0, until=150.0), since=0.0)
    assert list(instants(record.schedule, 0.0, utc)) == [60.0, 120.0]
    record.schedule = schedule(every_s=60.0, paused=True)
    assert next_instant(record, utc) == math.inf


@pytest.mark.parametrize(
    ("options", "skipped", "fired"),
    [
        ({"missed": Missed.LATEST}, 4, [300.0]),
        ({"missed": Missed.ALL, "overlap": Overlap.ALLOW}, 0, [60.0, 120.0, 180.0, 240.0, 300.0]),
        ({"missed": Missed.SKIP, "grace_s": 10.0}, 5, []),
        ({"missed": Missed.SKIP, "grace_s": 30.0}, 4, [300.0]),
    ],
)
def test_what_becomes_of_missed_instants_is_a_setting(
    options: dict[str, Any], skipped: int, fired: list[float]
) -> None:
    found = due(ScheduleRecord(schedule=schedule(every_s=60.0, **options), since=0.0), 330.0, utc)
    assert (len(found.skip), list(found.fire)) == (skipped, fired)


def test_years_of_missed_minutes_cost_little_and_run_at_most_a_hundred_times() -> None:
    every_minute = schedule(cron="* * * * *", missed=Missed.ALL, overlap=Overlap.ALLOW)
    found = due(ScheduleRecord(schedule=every_minute, since=0.0), 50 * 365 * DAY, utc)
    assert len(found.fire) == MOST_MISSED
    assert found.fire[-1] == 50 * 365 * DAY
    assert found.skip
    assert found.skip[-1] == found.fire[0] - 60


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name is .a/b., and must be 1 to 100 letters"),
        ({"cron": "0 3 * * *", "every_s": 60.0}, "both of cron and every_s"),
        ({"cron": ""}, "neither of cron and every_s"),
        ({"cron": "0 3 30 2 *"}, "never due"),
        ({"every_s": 0.5}, "every_s"),
        ({"every_s": math.nan}, "every_s"),
        ({"grace_s": -1.0}, "grace_s"),
        ({"missed": Missed.ALL}, "makes up for all missed runs"),
    ],
)
def test_a_schedule_that_means_nothing_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ConfigurationError, LimitError), match=complaint):
        Desk().do(PutSchedule(schedule=schedule(**options)))


@pytest.mark.parametrize("field", ["undo_of", "retry_from"])
def test_a_schedule_whose_runs_would_take_up_another_job_is_refused(field: str) -> None:
    """The fuzzer had one accepted. Each of its runs was refused, and told as a failure of ours."""
    job = msgspec.structs.replace(submission("unused", spec("backup")), **{field: "encode"})
    with pytest.raises(ConfigurationError, match="which one job can do, and no schedule"):
        Desk().do(PutSchedule(schedule=Schedule(name="nightly", job=job, every_s=60.0)))


def test_a_place_that_nobody_knows_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigurationError, match="'Mars/Olympus' is not known") as raised:
        zone("Mars/Olympus")
    assert "Europe/Berlin" in raised.value.remedy
    for path in ("../../etc/passwd", "/etc/passwd", "", "a\0b"):
        with pytest.raises(ConfigurationError):
            zone(path)


def test_an_instant_fires_once_whoever_leads() -> None:
    desk = Desk(at=1_000.0)
    desk.do(PutSchedule(schedule=schedule()))
    desk.at = 2_010.0
    first = desk.do(FireCron(schedule="nightly", instant=2_000.0))
    assert [type(event).__name__ for event in first.events] == ["JobSubmitted", "CronFired"]
    desk.elect("m2")
    assert desk.do(FireCron(schedule="nightly", instant=2_000.0)).outcome is Outcome.ALREADY
    assert desk.do(FireCron(schedule="nightly", instant=1_900.0)).outcome is Outcome.ALREADY
    assert list(desk.book.jobs) == ["nightly/2000"]
    job = desk.book.job("nightly/2000").job.submission
    assert (job.name, job.labels["schedule"], job.workflows[0].name) == ("nightly", "nightly", "backup")


def test_a_run_is_skipped_while_the_one_before_goes_on_unless_that_is_allowed() -> None:
    desk = Desk()
    desk.do(PutSchedule(schedule=schedule("a")))
    desk.do(PutSchedule(schedule=schedule("b", overlap=Overlap.ALLOW)))
    for name in ("a", "b"):
        desk.do(FireCron(schedule=name, instant=100.0))
        desk.do(FireCron(schedule=name, instant=200.0))
    assert list(desk.book.jobs) == ["a/100", "b/100", "b/200"]
    record = desk.book.state.schedules["a"]
    assert (record.last_instant, record.skipped) == (200.0, 1)
    assert "a/100, goes on" in record.last_skipped
    desk.run("a/100", "backup")
    desk.result("a/100", "backup")
    desk.do(FireCron(schedule="a", instant=300.0))
    assert "a/300" in desk.book.jobs


def test_a_changed_schedule_owes_nothing_of_the_past_and_survives_a_snapshot() -> None:
    desk = Desk(at=10.0)
    desk.do(PutSchedule(schedule=schedule(every_s=60.0)))
    desk.at = 1_000.0
    assert desk.do(PutSchedule(schedule=schedule(every_s=60.0))).outcome is Outcome.ALREADY
    desk.do(PutSchedule(schedule=schedule(every_s=100.0)))
    record = JobBook.restore(desk.book.snapshot()).state.schedules["nightly"]
    assert (record.since, next_instant(record, utc)) == (1_000.0, 1_100.0)


def test_a_removed_schedule_fires_nothing_and_its_name_is_free() -> None:
    desk = Desk()
    desk.do(PutSchedule(schedule=schedule()))
    assert desk.do(RemoveSchedule(schedule="nightly")).outcome is Outcome.ACCEPTED
    assert desk.do(RemoveSchedule(schedule="nightly")).outcome is Outcome.ALREADY
    with pytest.raises(UnknownScheduleError, match="nightly"):
        desk.do(FireCron(schedule="nightly", instant=10.0))
    with pytest.raises(UnknownScheduleError):
        desk.do(SkipInstants(schedule="nightly", until=10.0, count=1, reason="late"))
    assert desk.do(PutSchedule(schedule=schedule())).outcome is Outcome.ACCEPTED


def test_a_run_by_hand_is_one_job_and_no_instant() -> None:
    desk = Desk()
    desk.do(PutSchedule(schedule=schedule()))
    outcomes = [desk.do(RunSchedule(schedule="nightly", job_id="now-1", by="eve")).outcome for _ in range(2)]
    assert outcomes == [Outcome.ACCEPTED, Outcome.ALREADY]
    assert desk.book.state.schedules["nightly"].fired == 0


def test_a_job_that_could_run_only_once_makes_no_schedule() -> None:
    once = Schedule(name="x", cron="@daily", job=submission("x", idempotency_key="k"))
    with pytest.raises(ConfigurationError, match="could run only once"):
        Desk().do(PutSchedule(schedule=once))

"""Alarms: work that nobody takes is told, with what to do; work that waits its turn is not."""

from __future__ import annotations

import pytest
from tests.jobs.desk import Desk

from tenure.jobs import JobBook
from tenure.jobs.alarms import AlarmKind, Crew, stranded
from tenure.jobs.attempts import RecordDispatched
from tenure.jobs.endings import CancelJob


def queued(desk: Desk, *job_ids: str) -> Desk:
    for job_id in job_ids:
        desk.submit(job_id)
        desk.do(RecordDispatched(job_id=job_id, workflow="w", attempt=1))
    return desk


@pytest.mark.parametrize(
    ("crew", "remedy"),
    [
        (Crew(0, 0, 0), "No worker serves it: tenure worker MODULE --managed --queue default"),
        (Crew(3, 0, 0), "Its 3 workers take no work"),
        (Crew(3, 2, 4), "4 slots are free"),
    ],
)
def test_work_that_nobody_takes_is_an_alarm_with_a_remedy(crew: Crew, remedy: str) -> None:
    desk = queued(Desk(at=1_000.0), "a", "b")
    (alarm,) = stranded(desk.book, 1_061.0, {}, lambda mailbox: crew)
    assert (alarm.kind, alarm.subject) == (AlarmKind.NOTHING_CLAIMED, "default.p0")
    assert "2 waiting in default.p0, the oldest for 61 s" in alarm.reason
    assert alarm.remedy.startswith(remedy)


def test_work_that_waits_for_a_busy_slot_is_no_alarm() -> None:
    desk = queued(Desk(at=1_000.0), "a")
    assert stranded(desk.book, 9_000.0, {}, lambda mailbox: Crew(2, 2, 0)) == []


def test_it_is_no_alarm_while_work_is_begun_or_just_after_a_takeover() -> None:
    desk = queued(Desk(at=1_000.0), "a", "b")
    nobody = Crew()
    assert stranded(desk.book, 1_060.0, {}, lambda mailbox: nobody) == []
    assert stranded(desk.book, 1_100.0, {("default", 0): 1_050.0}, lambda mailbox: nobody) == []
    desk.at = 1_090.0
    desk.elect("m2")
    assert stranded(desk.book, 1_100.0, {}, lambda mailbox: nobody) == []
    assert len(stranded(desk.book, 1_151.0, {}, lambda mailbox: nobody)) == 1


def test_the_index_of_queued_work_follows_every_change_and_a_restore() -> None:
    desk = queued(Desk(), "a", "b", "c")
    desk.run("a")
    desk.do(CancelJob(job_id="b"))
    assert [key for lane in desk.book.queued.values() for key in lane] == [("c", "w")]
    restored = JobBook.restore(desk.book.snapshot())
    assert [key for lane in restored.queued.values() for key in lane] == [("c", "w")]

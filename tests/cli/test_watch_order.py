"""In which order `tenure watch --progress` tells what one page of events and progress holds."""

from __future__ import annotations

from tenure.cli.read_jobs import in_order
from tenure.control.messages.events import EventLine, ProgressLine


def event(at: float, kind: str) -> EventLine:
    return EventLine(cursor="1", event={"type": kind, "at": at})


def progress(at: float) -> ProgressLine:
    return ProgressLine(job_id="j", workflow="w", attempt=1, worker="w-1", steps=int(at), at=at)


def test_progress_stands_between_the_decisions_and_never_before_the_start_of_its_work() -> None:
    events = [event(1, "JobSubmitted"), event(2, "WorkflowStarted"), event(5, "JobEnded")]
    told = [one.at if isinstance(one, ProgressLine) else one.event["type"] for one in in_order(events, [progress(3)])]
    assert told == ["JobSubmitted", "WorkflowStarted", 3, "JobEnded"]


def test_events_keep_their_order_also_where_a_new_leader_s_clock_is_behind() -> None:
    events = [event(5, "first"), event(4, "second"), event(6, "third")]
    told = [one.event["type"] for one in in_order(events, []) if isinstance(one, EventLine)]
    assert told == ["first", "second", "third"]

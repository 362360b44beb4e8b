"""Counts over the workers that a leader knows, and their newest reports: attempts are found by job, and only those of reports that still count."""

from __future__ import annotations

from typing import Any

from tenure.control.messages.nodes import WorkerNode
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.health.signals import RoutingDecision
from tenure.jobs.alarms import Crew
from tenure.nodes.fleet.member import HEARD_WITHIN_S, ReportedAttempts, Room, WorkerStanding, crew, room, verdicts


def worker(name: str, *, accepting: bool = True, **known: Any) -> WorkerStanding:
    fields: dict[str, Any] = {"verdict": "route", "heard_s_ago": 1.0, "free": 3, "lanes": ("default.p0",), **known}
    return WorkerStanding(WorkerNode(name=name, **fields), accepting)


FLEET = [
    worker("able"),
    worker("drains", accepting=False, free=0),
    worker("judged", verdict=RoutingDecision.DRAIN),
    worker("by-hand"),
    worker("elsewhere", lanes=("video.p0",)),
    worker("silent", heard_s_ago=HEARD_WITHIN_S + 1),
]


def test_only_workers_that_take_work_count_and_their_slots() -> None:
    assert room(FLEET, drained={"by-hand"}) == Room(workers=2, capacity=6, drained=1)
    # Every worker drained: nobody is there to do anything, and it is known why.
    assert room(FLEET[:1], drained={"able"}) == Room(workers=0, capacity=0, drained=1)
    # One that has all its slots full takes work as soon as it can.
    assert room([worker("full", free=0)]) == Room(workers=1, capacity=0)


def test_a_mailbox_has_the_crew_that_serves_it() -> None:
    assert crew(FLEET, "default.p0", drained={"by-hand"}) == Crew(workers=4, accepting=1, free=3)
    assert crew(FLEET, "nobody.p0") == Crew()


def test_an_operators_drain_counts_as_a_verdict() -> None:
    assert verdicts([one.node for one in FLEET], drained={"by-hand"}) == {"route": 4, "drain": 2}


def report(start: str, *jobs: str, number: int = 1, worker: str = "w") -> WorkerReport:
    attempts = tuple(AttemptReport(job_id=job, workflow="encode", attempt=1, delivery=1, steps=number) for job in jobs)
    return WorkerReport(worker=worker, incarnation=start, attempts=attempts, number=number)


def test_a_newer_report_replaces_the_attempts_of_the_older_one() -> None:
    reported = ReportedAttempts()
    reported.remember(report("s-1", "a", "b"), 1.0)
    reported.remember(report("s-1", "b", number=2), 2.0)
    assert reported.attempt("a", "encode") is None
    assert reported.starts_of_job("a") == []
    found = reported.attempt("b", "encode")
    assert found is not None
    assert (found.start, found.attempt.steps) == ("s-1", 2)
    heard = reported.report("s-1")
    assert heard is not None
    assert heard.at == 2.0


def test_a_report_that_was_overtaken_on_its_way_says_nothing_new() -> None:
    reported = ReportedAttempts()
    reported.remember(report("s-1", "b", number=2), 2.0)
    reported.remember(report("s-1", "a", number=1), 3.0)
    assert [one.number for one in reported.reports()] == [2]
    assert reported.attempt("a", "encode") is None


def test_two_starts_of_one_worker_do_not_hide_each_other_and_the_last_to_report_an_attempt_runs_it() -> None:
    reported = ReportedAttempts()
    reported.remember(report("s-1", "a", "b"), 1.0)
    reported.remember(report("s-2", "b"), 2.0)
    assert reported.starts_of_worker("w") == reported.starts_of_job("b") == ["s-1", "s-2"]
    reported.forget("s-1")
    found = reported.attempt("b", "encode")
    assert found is not None
    assert found.start == "s-2"
    assert reported.starts_of_job("b") == ["s-2"]
    assert reported.attempt("a", "encode") is None
    reported.forget("s-2")
    reported.forget("s-2")
    assert reported.attempt("b", "encode") is None
    reported.remember(report("s-3", "a"), 3.0)
    assert {worker: len(runs) for worker, runs in reported.running().items()} == {"w": 1}

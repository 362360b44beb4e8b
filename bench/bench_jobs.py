"""Jobs: events folded per second, a check with a million tracked jobs against a scan, replay of a million events.

The journals are those of jobs that run, advance and complete, and are archived an hour later, as a leader writes them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.harness import Report, rate
from tenure.jobs import JobBook, JobSettings, JobSubmission, WorkflowSpec, decide
from tenure.jobs.attempt_results import RecordResult
from tenure.jobs.attempts import RecordDispatched, RecordProgress, RecordStarted
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command, Event, encode_event
from tenure.jobs.endings import ArchiveJob
from tenure.jobs.submission import SubmitJob
from tenure.timers import Timers

TRACKED = 1_000_000
REPLAYED = 1_000_000
SETTINGS = JobSettings()


def life_of(job_id: str) -> Iterator[tuple[float, Command]]:
    """What a leader is asked about one job, and when."""
    attempt = {"job_id": job_id, "workflow": "w", "attempt": 1}
    yield 0.0, SubmitJob(submission=JobSubmission(job_id=job_id, workflows=(WorkflowSpec(name="w"),)))
    yield 0.1, RecordDispatched(**attempt)
    yield 0.2, RecordStarted(worker="w1", **attempt)
    yield 40.0, RecordProgress(worker="w1", steps=40, **attempt)
    yield 80.0, RecordProgress(worker="w1", steps=80, **attempt)
    yield 90.0, RecordResult(worker="w1", **attempt)
    yield 4_000.0, ArchiveJob(job_id=job_id)


def journal(events: int, settings: JobSettings) -> list[Event]:
    """The events of as many jobs as it takes: 8 of each."""
    book = JobBook(settings)
    written: list[Event] = list(decide(book, TakeLead(epoch=1, leader="m1"), 0.0).events)
    book.apply_all(written)
    number = 0
    while len(written) < events:
        for after, command in life_of(f"job-{number:07}"):
            made = decide(book, command, number + after).events
            book.apply_all(made)
            written += made
        number += 1
    return written[:events]


def run(report: Report) -> None:
    plain = JobSettings(history_limit=0)
    events = journal(100_000, plain)
    encoded = [encode_event(event) for event in events]

    def fold(settings: JobSettings) -> float:
        return rate(lambda: JobBook(settings).apply_all(events), count=len(events))

    def decode_only() -> float:
        from tenure.jobs.topics import decode_event

        return rate(lambda: [decode_event(each) for each in encoded], count=len(encoded))

    def replay() -> float:
        return rate(lambda: JobBook(SETTINGS).replay(encoded), count=len(encoded))

    report.value("events folded, without history", fold(plain), "per second")
    report.value("events folded, with the history that `why` reads", fold(SETTINGS), "per second")
    report.compare(
        "replay from bytes, against decoding the bytes alone",
        replay,
        decode_only,
        beside="decoding alone",
        at_least=0.1,
        rounds=3,
    )
    million(report)
    check_against_scan(report)


def million(report: Report) -> None:
    """A whole journal of a million events, as a restarted leader without a snapshot reads it."""
    encoded = [encode_event(event) for event in journal(REPLAYED, JobSettings(history_limit=0))]
    begun = time.perf_counter()
    book = JobBook(SETTINGS)
    book.replay(encoded)
    spent = time.perf_counter() - begun
    report.value(f"replay of {REPLAYED:,} events", spent, "s")
    begun = time.perf_counter()
    snapshot = book.snapshot()
    JobBook.restore(snapshot, SETTINGS)
    report.value(f"snapshot and restore after it ({len(snapshot):,} bytes)", time.perf_counter() - begun, "s")


def check_against_scan(report: Report) -> None:
    """One check while nothing is due: the heap against looking at every deadline, as the document's loop does."""
    timers: Timers[int] = Timers()
    deadlines = {}
    for number in range(TRACKED):
        timers.set(number, 1e6 + number)
        deadlines[number] = 1e6 + number

    def heap() -> float:
        begun = time.perf_counter()
        for _ in range(1_000):
            timers.pop_due(5.0)
        return (time.perf_counter() - begun) / 1_000

    def scan() -> float:
        begun = time.perf_counter()
        [number for number, due in deadlines.items() if due <= 5.0]
        return time.perf_counter() - begun

    report.compare(
        f"one check of {TRACKED:,} tracked jobs, none due",
        heap,
        scan,
        beside="a scan",
        unit="s",
        at_most=0.001,
    )
    begun = time.perf_counter()
    due = timers.pop_due(1e6 + 999)
    report.value("one check with 1,000 of them due", (time.perf_counter() - begun) / len(due) * 1e6, "us per due job")

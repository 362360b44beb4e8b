"""What a beat and a tracked item cost the work itself, in nanoseconds of its own thread: other work on the machine does not count."""

from __future__ import annotations

import time

from bench.baselines.document_beat import LockedHeartbeat
from bench.bench_slots import slot_context
from bench.harness import Report

COUNT = 200_000
ROUNDS = 7


def in_process(report: Report) -> None:
    context, printed = slot_context(), LockedHeartbeat()
    mine = [beat_ns(context.beat) for _ in range(ROUNDS)]
    theirs = [beat_ns(printed.beat) for _ in range(ROUNDS)]
    report.value("beat() in a slot", min(mine), "ns CPU", most=200)
    report.beside(
        "beat() in a slot",
        [min(mine)],
        [min(theirs)],
        beside="the documents' class, 003 and 004 together",
        unit="ns CPU",
        at_most=0.4,
    )
    report.value("ctx.track, each item", min(track_ns(context) for _ in range(ROUNDS)), "ns CPU", most=400)


def beat_ns(beat: object) -> float:
    assert callable(beat)
    begun = time.thread_time()
    for _ in range(COUNT):
        beat()
    return (time.thread_time() - begun) / COUNT * 1e9


def track_ns(context: object) -> float:
    items, begun = range(COUNT), time.thread_time()
    for _ in context.track(items):  # type: ignore[attr-defined]
        pass
    return (time.thread_time() - begun) / COUNT * 1e9

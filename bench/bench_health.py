"""Sweeps over a large, mostly failing fleet: beside a bare loop over the same states, and beside the document's own way.

"A bare loop" asks each state for its routing decision and keeps nothing: no brake, no counts, no history. The document's
`should_evict` counts the failing nodes anew for each node (bench/baselines/document_health.py, as written), so its sweep
is quadratic and shown at 5,000 nodes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from bench.baselines import document_health as document
from bench.harness import Report, rate
from tenure.clock import ManualClock
from tenure.health.node_states import WorkerHealthState
from tenure.health.tracker import NodeHealthTracker

NODES = 100_000
FEWER = 5_000
START = 1_000.0


def failing(index: int) -> bool:
    return index % 5 < 3  # 60 %


def states(count: int, clock: ManualClock) -> list[WorkerHealthState]:
    """All alive at START; 60 % of them were last heard 29 s ago, and decay within the next second."""
    return [
        WorkerHealthState(
            f"w{index}", START - 29 + index / count / 2 if failing(index) else START, 0, True, 3, 4, 4, 1.0, clock=clock
        )
        for index in range(count)
    ]


def fleet(nodes: list[WorkerHealthState], clock: ManualClock) -> NodeHealthTracker[WorkerHealthState]:
    tracker: NodeHealthTracker[WorkerHealthState] = NodeHealthTracker("worker", clock=clock)
    for state in nodes:
        tracker.update_state(state.worker_id, state, now=START)
    return tracker


def seconds(work: Callable[[], object]) -> float:
    gc.collect()  # what the set-up left behind is not the sweep's to clean
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def run(report: Report) -> None:
    clock = ManualClock(START)
    nodes = states(NODES, clock)
    steady = fleet(nodes, clock)
    clock.advance(2)
    assert steady.sweep().held == NODES * 3 // 5

    def decaying() -> float:
        tracker = fleet(nodes, clock)
        return seconds(tracker.sweep)

    def bare() -> float:
        return seconds(lambda: [state.get_routing_decision() for state in nodes])

    loop = "a bare loop"
    report.compare(
        "sweep of 100,000, 60 % failing", lambda: seconds(steady.sweep), bare, beside=loop, unit="s", at_most=3
    )
    # Each node's change of class is written down once, at the moment of the sweep that sees it; the next one is the first line.
    report.compare("the same, the 60 % falling silent just now", decaying, bare, beside=loop, unit="s", at_most=5)
    report.compare(
        "should_evict for each of 100,000, 60 % failing",
        lambda: seconds(lambda: [steady.should_evict(state.worker_id) for state in nodes]),
        bare,
        beside=loop,
        unit="s",
        at_most=3,
    )
    report.value(
        "updates of a fleet of 100,000",
        rate(lambda: [steady.update_state(state.worker_id, state) for state in nodes], count=NODES),
        "per second",
    )
    beside_the_document(report)


def beside_the_document(report: Report) -> None:
    clock = ManualClock(START)
    nodes = states(FEWER, clock)
    ours = fleet(nodes, clock)
    theirs: document.NodeHealthTracker[document.WorkerHealthState] = document.NodeHealthTracker("worker")
    for state in nodes:
        last = state.last_liveness_response
        theirs.update_state(state.worker_id, document.WorkerHealthState(state.worker_id, last, 0, True, 3, 4, 4, 1.0))
    clock.advance(2)
    machine, document.clock = document.clock, clock
    try:
        report.compare(
            "should_evict for each of 5,000, 60 % failing",
            lambda: seconds(lambda: [ours.should_evict(state.worker_id) for state in nodes]),
            lambda: seconds(lambda: [theirs.should_evict(state.worker_id) for state in nodes]),
            beside="the document's own way",
            unit="s",
            at_most=0.05,
            rounds=1,
        )
    finally:
        document.clock = machine

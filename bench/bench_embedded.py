"""How long a program waits for its own datacenter: from `embedded()` to the first result, and for each job after that.

Manager, supervisor and slots are processes that start beside each other. The bar is on the time on the wall; on a busy machine it is on the processor
time of all of them together, from start to end, halved for the two that work at once.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

from bench.harness import Report
from bench.slot_app import noop
from tenure import embedded

ROUNDS = 3
BAR_S = 2.0


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spans = [first_result(Path(folder) / str(n)) for n in range(ROUNDS)]
        wall, processor = min(wall for wall, _ in spans), min(processor for _, processor in spans)
        report.wall(f"embedded(), to the first result, best of {ROUNDS}", wall, processor / 2, "s", most=BAR_S)
        report.value("embedded(), start to end: processor time of all its processes", processor, "s")
        report.value("a job from submit to result, median", round_trip(Path(folder) / "0"), "ms")


def first_result(folder: Path) -> tuple[float, float]:
    before, begun = _processor_s(), time.perf_counter()
    with embedded(folder, workflows=[noop], slots=1) as t:
        t.submit(noop).wait()
        wall = time.perf_counter() - begun
    return wall, _processor_s() - before


def _processor_s() -> float:
    own, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime


def round_trip(folder: Path) -> float:
    with embedded(folder, workflows=[noop], slots=1) as t:
        spans = []
        for _ in range(30):
            begun = time.perf_counter()
            t.submit(noop).wait()
            spans.append(time.perf_counter() - begun)
        return 1_000 * sorted(spans)[len(spans) // 2]

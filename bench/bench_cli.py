"""What a person waits for at a prompt: `tenure --help`, and what `import tenure` costs a program that only marks workflows.

The bar is on processor time, which is what the command takes on a machine that does nothing else; the time on the wall is shown beside it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import NamedTuple

from bench.harness import Report

ROUNDS = 15


class Spent(NamedTuple):
    processor_s: float
    wall_s: float


def run(report: Report) -> None:
    helps = [spent("-m", "tenure", "--help") for _ in range(ROUNDS)]
    report.value("tenure --help, processor time", 1_000 * min(one.processor_s for one in helps), "ms", most=150)
    report.value("tenure --help, on the wall, best of 15", 1_000 * min(one.wall_s for one in helps), "ms")
    for code, beside in (("import tenure", "pass"), ("from tenure import workflow", "import msgspec, inspect")):
        report.compare(
            code,
            lambda code=code: spent("-c", code).processor_s,
            lambda beside=beside: spent("-c", beside).processor_s,
            beside=f"python -c '{beside}'",
            unit="s",
            at_most=3.0,
            rounds=ROUNDS,
        )


def spent(*arguments: str) -> Spent:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return Spent(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended - begun)

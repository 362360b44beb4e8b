"""What a person waits for at a prompt: `tenure --help`, and what `import tenure` costs a program that only marks workflows.

The bar is on the time on the wall, as the issue has it; on a busy machine on processor time, which is what the command takes on one that does nothing else.
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
    wall, processor = min(one.wall_s for one in helps), min(one.processor_s for one in helps)
    report.wall(f"tenure --help, best of {ROUNDS}", 1_000 * wall, 1_000 * processor, "ms", most=150)
    for code, beside, at_most in (
        ("import tenure", "pass", 1.5),
        ("from tenure import workflow", "import msgspec, inspect", 2.0),
    ):
        report.compare(
            code,
            lambda code=code: spent("-c", code).processor_s,
            lambda beside=beside: spent("-c", beside).processor_s,
            beside=f"python -c '{beside}'",
            unit="s",
            at_most=at_most,
            rounds=ROUNDS,
        )


def spent(*arguments: str) -> Spent:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return Spent(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended - begun)

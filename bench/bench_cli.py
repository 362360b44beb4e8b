"""What a person waits for at a prompt: `tenure --help`, and what `import tenure` costs a program that only marks workflows."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.harness import Report

ROUNDS = 15


def run(report: Report) -> None:
    # The best of several: a machine that is busy with other things only ever adds to it.
    best = min(spent([sys.executable, "-m", "tenure", "--help"]) for _ in range(ROUNDS))
    report.value("tenure --help", 1_000 * best, "ms", most=150)
    report.compare(
        "import tenure",
        lambda: spent([sys.executable, "-c", "import tenure"]),
        lambda: spent([sys.executable, "-c", "pass"]),
        beside="an interpreter that does nothing",
        unit="s",
        at_most=1.5,
        rounds=ROUNDS,
    )
    report.compare(
        "from tenure import workflow",
        lambda: spent([sys.executable, "-c", "from tenure import workflow"]),
        lambda: spent([sys.executable, "-c", "import msgspec, inspect"]),
        beside="importing msgspec and inspect",
        unit="s",
        at_most=2.0,
        rounds=ROUNDS,
    )


def spent(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun

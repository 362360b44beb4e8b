"""Play the chaos of engines and nodes in its long version, round after round, until the hours have passed: the second half of `make soak`.

    python tools/chaos_rounds.py              two hours
    python tools/chaos_rounds.py --hours 0.1  a few rounds

Each round freezes, cuts, resets, restarts, fills and replaces every engine under a load, and kills managers and workers of whole datacenters. Its tests
assert that what was accepted ended once, that nothing took effect behind its fence, and that what was lost was said. One round proves that once;
a race that needs a coincidence shows in the fiftieth. A failed round does not end the run: how often it fails is what one wants to know.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHAOS = (
    "tests/engines/test_chaos.py",
    "tests/engines/nats/test_silence.py",
    "tests/engines/redis/test_losses.py",
    "tests/engines/sqlite/test_faults.py",
    "tests/engines/servers/test_faults.py",
    "tests/process/datacenter/test_lost_engine.py",
    "tests/process/datacenter/test_silence.py",
    "tests/process/datacenter/test_adversity.py",
    "tests/process/datacenter/test_engines.py",
    "tests/process/datacenter/test_failover.py",
)
FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)
ENDED = re.compile(r"(\d+) (passed|failed|skipped|error)")


@dataclass(frozen=True)
class Round:
    """What pytest said of one round."""

    seconds: float
    counts: dict[str, int]
    failed: tuple[str, ...]
    said: str

    @property
    def ok(self) -> bool:
        """A round in which no test passed proves nothing, so it counts as failed."""
        return not self.failed and self.counts.get("passed", 0) > 0 and not self.counts.get("error")


def play(clock: Callable[[], float] = time.monotonic) -> Round:
    """Runs all files once, in two processes: most of their time they wait."""
    begun = clock()
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-r", "f", *CHAOS]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "TENURE_SOAK": "1"}, capture_output=True, text=True, check=False
    )
    return read_round(clock() - begun, done.stdout)


def read_round(seconds: float, said: str) -> Round:
    last = said.strip().splitlines()[-1] if said.strip() else ""
    counts = {kind: int(number) for number, kind in ENDED.findall(last)}
    return Round(seconds, counts, tuple(FAILED.findall(said)), said)


def rounds(seconds: float, play: Callable[[], Round], clock: Callable[[], float]) -> Iterator[Round]:
    """Plays rounds until the time has passed, at least one; the last one is played to its end."""
    until = clock() + seconds
    while True:
        yield play()
        if clock() >= until:
            return


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plays the chaos of engines and nodes, round after round.")
    parser.add_argument("--hours", type=float, default=2.0)
    options = parser.parse_args(arguments)
    if not 0 < options.hours <= 1_000:
        parser.error(f"--hours is {options.hours:g}: give a number above 0 and up to 1000")
    played, failed = Counter[str](), Counter[str]()
    for number, one in enumerate(rounds(options.hours * 3600, play, time.monotonic), start=1):
        played["rounds"] += 1
        played["failed rounds"] += not one.ok
        played.update(one.counts)
        failed.update(one.failed)
        told = ", ".join(f"{count} {kind}" for kind, count in one.counts.items()) or "pytest ended without a count"
        print(f"round {number:>3}{one.seconds:>8.0f} s  {told}", flush=True)
        if not one.ok:
            print(one.said[-6_000:], flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in played.items()))
    for name, times in failed.most_common():
        print(f"  failed {times} times: {name}")
    return 1 if played["failed rounds"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Measures two checkouts of this repository against each other, in turns, and prints the ratio of each figure.

    python tools/compare_trees.py /path/to/before .                  every story on SQLite, and on Redis where a server can be had
    python tools/compare_trees.py before after --only worker --rounds 7

A round runs each story once in each tree, the first tree changing by round, so that a machine that slows down slows both. The medians are compared:
wall time, and CPU time of all processes, which a busy machine hardly moves. A ratio over 1 means that the second tree is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

STORIES = Path(__file__).parent / "compared" / "stories.py"
PLAN = {  # story: (engines, jobs in one measurement)
    "mailbox": (("memory", "sqlite", "redis"), 4_000),
    "worker": (("sqlite", "redis"), 1_500),
    "managed": (("sqlite", "redis"), 400),
    "submits": (("sqlite",), 300),
    "beats": (("memory",), 5_000),
    "imports": (("memory",), 1_000),
}


def measure(tree: Path, story: str, engine: str, count: int, redis: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="compared-") as folder:
        url = {
            "memory": "memory://",
            "sqlite": f"sqlite:///{folder}/tenure.db",
            "redis": f"{redis}?namespace={Path(folder).name.replace('_', '-')}",
        }[engine]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "COMPARED_COUNT": f"{folder}/count"}
        command = [sys.executable, str(STORIES), story, url, str(count)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
        if run.returncode:
            raise SystemExit(f"{story} on {engine} in {tree} failed:\n{run.stdout}{run.stderr}")
        found: dict[str, float] = json.loads(run.stdout.strip().splitlines()[-1])
        return found


def compare(trees: list[Path], story: str, engine: str, count: int, rounds: int, redis: str) -> None:
    found: list[list[dict[str, float]]] = [[], []]
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            found[which].append(measure(trees[which], story, engine, count, redis))
    words = [f"{story} on {engine}".ljust(20)]
    for figure in ("wall_s", "cpu_s"):
        before, after = (statistics.median(one[figure] for one in runs) for runs in found)
        words.append(f"{figure} {before:8.3f} -> {after:8.3f}  x{after / before if before else float('nan'):.3f}")
    print("   ".join(words), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(PLAN), default=list(PLAN))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    trees = [given.before.resolve(), given.after.resolve()]
    with ExitStack() as stack:
        redis = ""
        sys.path.insert(0, str(trees[1] / "src"))
        from tenure.testing.pytest_plugin import CannotBeHad, server

        try:
            redis = stack.enter_context(server("redis"))
        except CannotBeHad as reason:
            print(f"SKIPPED: everything on Redis: {reason}")
        for story in given.only:
            engines, count = PLAN[story]
            for engine in engines:
                if engine != "redis" or redis:
                    compare(trees, story, engine, count, given.rounds, redis)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

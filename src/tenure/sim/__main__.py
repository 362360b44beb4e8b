"""`python -m tenure.sim`: play seeds, and replay the one that failed.

python -m tenure.sim list FILE.py
python -m tenure.sim run FILE.py:Class --seeds 0:10000 --jobs 2
python -m tenure.sim replay FILE.py:Class --seed 42 [--faults 3,7 | --faults none] [--trace]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tenure.clock import SystemClock
from tenure.errors import ConfigurationError
from tenure.sim.faults import table
from tenure.sim.runner import run_seeds, story
from tenure.sim.scenario import find, run_one, scenarios_in


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tenure.sim", description="Deterministic simulation.")
    commands = found.add_subparsers(dest="command", required=True)
    shown = commands.add_parser("list", help="the scenarios of a file or a module")
    shown.add_argument("place", metavar="FILE.py | MODULE")
    run = commands.add_parser("run", help="play many seeds")
    run.add_argument("scenario", metavar="SCENARIO", help="FILE.py:Class or MODULE:Class")
    run.add_argument("--seeds", default="0:1000", help="FROM:TO, or one seed")
    run.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    replay = commands.add_parser("replay", help="play one seed and show what happened")
    replay.add_argument("scenario", metavar="SCENARIO", help="FILE.py:Class or MODULE:Class")
    replay.add_argument("--seed", type=int, required=True)
    replay.add_argument("--faults", help="only these, by number; or 'none'")
    replay.add_argument("--trace", action="store_true", help="print every event")
    digest = commands.add_parser("hash", help="the trace hash of each seed, to compare interpreters and machines")
    digest.add_argument("scenario", metavar="SCENARIO", help="FILE.py:Class or MODULE:Class")
    digest.add_argument("--seeds", default="0:10", help="FROM:TO, or one seed")
    return found


def seeds(text: str) -> range:
    first, colon, end = text.partition(":")
    try:
        return range(int(first), int(end) if colon else int(first) + 1)
    except ValueError:
        raise ConfigurationError(f"--seeds is {text!r}", remedy="Write FROM:TO, such as 0:1000, or one seed") from None


def play(options: argparse.Namespace) -> int:
    clock = SystemClock()
    begun = clock.monotonic()
    report = run_seeds(find(options.scenario), seeds(options.seeds), jobs=options.jobs)
    for failure in report.failures:
        print(story(failure))
    print(f"{report.summary()}, {clock.monotonic() - begun:.1f} s")
    return 0 if report.ok else 1


def replay(options: argparse.Namespace) -> int:
    chosen = None
    if options.faults is not None:
        chosen = [] if options.faults == "none" else [int(number) for number in options.faults.split(",")]
    outcome = run_one(find(options.scenario), options.seed, only=chosen, name=options.scenario, keep_trace=True)
    if options.trace:
        print("\n".join(outcome.trace))
    if not outcome.ok:
        print(outcome.details)
        print(story(outcome))
        return 1
    print(f"seed {outcome.seed}: every promise held for {outcome.ended_s:.3f} s, {outcome.steps:,} callbacks")
    print(table((outcome.faults[number] for number in outcome.chosen), numbers=outcome.chosen))
    print(f"trace hash {outcome.digest}")
    return 0


def show_scenarios(options: argparse.Namespace) -> int:
    for found in scenarios_in(options.place):
        about = (found.__doc__ or "").strip().partition("\n")[0]
        print(f"{options.place}:{found.__name__}  {about}".rstrip())
    return 0


def show_hashes(options: argparse.Namespace) -> int:
    make = find(options.scenario)
    for seed in seeds(options.seeds):
        outcome = run_one(make, seed, name=options.scenario)
        print(f"{seed} {outcome.digest} {outcome.steps} {outcome.failure}".strip())
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.command == "list":
            return show_scenarios(options)
        return {"run": play, "replay": replay, "hash": show_hashes}[options.command](options)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tenure.sim.jobs search | counterexamples | simulate`: see each with `--help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tenure.sim.jobs.big_world import simulate
from tenure.sim.jobs.mutants import MUTANTS
from tenure.sim.jobs.search import counterexample, search


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tenure.sim.jobs", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    whole = commands.add_parser("search", help="visit every state of the small world")
    whole.add_argument("--cancel", action="store_true", help="a user may cancel at the gate at any time, too")
    whole.add_argument("--leaders", type=int, default=2, help="how many leaders each datacenter may have in turn")
    commands.add_parser("counterexamples", help="what happens when a ruling is left out, as a story for each")
    play = commands.add_parser("simulate", help="play random schedules of the large world")
    play.add_argument("--seeds", default="0:1000", help="FROM:TO, or one seed")
    play.add_argument("--story", action="store_true", help="print what happened, line by line")
    chosen = parser.parse_args(arguments)
    if chosen.command == "simulate":
        return play_seeds(chosen.seeds, story=chosen.story)
    if chosen.command == "search":
        found = search(leaders=chosen.leaders, cancel=chosen.cancel)
        print(found)
        return 1 if found.broken else 0
    missed = 0
    for name, options in MUTANTS.items():
        story = counterexample(**options)
        missed += not story.broken
        print(f"WITHOUT the ruling on {name}\n{story}\n")
    return 1 if missed else 0


def play_seeds(text: str, *, story: bool) -> int:
    first, colon, end = text.partition(":")
    seeds = range(int(first), int(end) if colon else int(first) + 1)
    failed = events = 0
    for seed in seeds:
        outcome = simulate(seed, story=story)
        events += outcome.events
        failed += bool(outcome.broken)
        if story:
            print("\n".join(outcome.lines))
        if story or outcome.broken:
            print(outcome)
    print(f"{len(seeds):,} runs, {events:,} events, {failed} broke a promise")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

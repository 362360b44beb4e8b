"""`python -m tests.worlds.jobs search | counterexamples`: see each with `--help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.worlds.jobs.mutants import MUTANTS
from tests.worlds.jobs.search import counterexample, search


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.worlds.jobs", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    whole = commands.add_parser("search", help="visit every state of the small world")
    whole.add_argument("--cancel", action="store_true", help="a user may cancel at the gate at any time, too")
    whole.add_argument("--leaders", type=int, default=2, help="how many leaders each datacenter may have in turn")
    commands.add_parser("counterexamples", help="what happens when a ruling is left out, as a story for each")
    chosen = parser.parse_args(arguments)
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


if __name__ == "__main__":
    sys.exit(main())

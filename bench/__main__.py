"""`make bench`, or `python -m bench [suite ...]`: run every `bench_*.py`, fail when a ratio is under its bar."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from bench.harness import Report, row


def main() -> int:
    found = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    wanted = sys.argv[1:] or found
    if unknown := set(wanted) - set(found):
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(found)}", file=sys.stderr)
        return 2
    report = Report()
    for name in wanted:
        report.suite = name
        importlib.import_module(f"bench.bench_{name}").run(report)
    report.write()
    for note in report.notes:
        print(note)
    for line in report.failed:
        print(f"UNDER ITS BAR: {row(line)}")
    print(
        f"\nwritten: bench/results/latest.md, latest.json; {len(report.lines)} lines, {len(report.failed)} under their bar"
    )
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())

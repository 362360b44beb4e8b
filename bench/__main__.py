"""`make bench`, or `python -m bench [suite ...]`: run the benchmarks, say what became of every bar, fail when one is not met."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import os
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from bench.harness import RESULTS, Report, Verdict, row
from bench.machine import load

HERE = Path(__file__).parent
ABOUT_S = {
    "agent": 15, "answering": 75, "api": 30, "beat": 20, "behaviours": 60, "catalogue": 240, "cli": 15, "datacenter": 150, "datacenter_scale": 60, "day": 120, "decisions": 60, "embedded": 15, "gate": 60,
    "gossip": 90, "health": 10, "jobs": 60, "memory": 15, "million": 900, "nats": 40, "nats_workers": 90, "peers": 1080, "postgres": 40, "product": 620, "redis": 40, "scale": 45, "sim": 15, "slots": 40, "sqlite": 40, "state": 240, "steps": 60,
}  # fmt: skip
"""How long each takes on two cores that do nothing else."""
USUAL = ("product", "behaviours", "beat", "slots", "health", "memory", "agent", "embedded", "cli", "sim")
"""The suites of a run that names none: what users run beside the peers, what it promises, and the small ones. They end within a quarter of an hour."""
LIMIT_S = 1_800
"""A suite that takes longer than this is ended, and told as a failure."""
LIMITS_S = {"day": 14_400, "million": 14_400}
"""The limits of suites that may take longer."""


class TookTooLong(Exception):
    """A suite that does not end."""


def main() -> int:
    found = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    options = parsed(found)
    wanted = options.suites or list(USUAL)
    # Where it is set, each process that is measured compiles our modules anew, and those of the peers not (decision 0510).
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if wanted == ["all"]:
        wanted = found
    if unknown := set(wanted) - set(found):
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(found)}", file=sys.stderr)
        return 2
    about = sum(ABOUT_S.get(name, 60) for name in wanted)
    print(f"{len(wanted)} suites, about {minutes(about)} on an idle machine; {load()}\n", flush=True)
    report, begun, at = Report(), time.monotonic(), time.strftime("%Y-%m-%d %H:%M")
    before, times = load(), dict[str, float]()
    with contextlib.suppress(KeyboardInterrupt):  # what was measured until then is told
        for number, name in enumerate(wanted, 1):
            print(f"== {number}/{len(wanted)} {name}: {what(name)}", flush=True)
            report.suite, started = name, time.monotonic()
            try:
                measure(report, name)
            finally:
                times[name] = time.monotonic() - started
    run = f"{at}, {minutes(time.monotonic() - begun)}; before: {before}; after: {load()}"
    text = report.write(
        f"`python -m bench {' '.join(options.suites)}`: {run}. {platform.machine()}, Python {platform.python_version()}, {commit()}."
    )
    if options.keep:
        named = "-".join(options.suites) if 0 < len(options.suites) < 4 else f"{len(wanted)}-suites"
        kept = RESULTS / f"{at[:10]}-{named}.md"
        kept.write_text(text)
        print(f"kept as {kept.relative_to(HERE.parent)}")
    return summary(report, times, len(wanted), strict=options.strict)


def parsed(found: list[str]) -> argparse.Namespace:
    listed = "\n".join(f"  {name:<17} {minutes(ABOUT_S.get(name, 60)):>9}   {what(name)}" for name in found)
    usual, whole = (minutes(sum(ABOUT_S.get(name, 60) for name in names)) for names in (USUAL, found))
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Tenure beside baselines, raw clients and other libraries. Ends with 1 when a bar is not met.",
        epilog=f"suites, and how long they take on two idle cores ({whole} together; the first run installs the peers):\n{listed}\n\n"
        f"Without a name: {', '.join(USUAL)} ({usual}). "
        'With make: make bench ONLY="beat redis"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "suites", nargs="*", metavar="suite", help="only these, or `all`; without a name those that users feel first"
    )
    parser.add_argument("--strict", action="store_true", help="what could not be judged is a failure too")
    parser.add_argument("--keep", action="store_true", help="keep the results as bench/results/DATE-SUITES.md")
    return parser.parse_args()


def what(name: str) -> str:
    """What it compares: the first line of its docstring."""
    text = ast.get_docstring(ast.parse((HERE / f"bench_{name}.py").read_text())) or ""
    return text.partition("\n")[0]


def measure(report: Report, name: str) -> None:
    """One suite that breaks, or does not end, is told and does not end the others."""
    try:
        with limited(LIMITS_S.get(name, LIMIT_S)):
            importlib.import_module(f"bench.bench_{name}").run(report)
    except Exception as error:
        traceback.print_exc()
        report.fail(f"it broke: {type(error).__name__}: {error}"[:200])


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> NoReturn:
        raise TookTooLong(f"it did not end within {minutes(seconds)}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def summary(report: Report, times: dict[str, float], wanted: int, *, strict: bool) -> int:
    for table in report.tables:
        print(f"\n{table}")
    for note in report.notes:
        print(note)
    held, failed, unjudged, told = (
        report.of(verdict) for verdict in (Verdict.HELD, Verdict.FAILED, Verdict.NOT_JUDGED, Verdict.TOLD)
    )
    print("\nhow long: " + ", ".join(f"{name} {minutes(spent)}" for name, spent in times.items()))
    for line in unjudged:
        print(f"NOT JUDGED: {row(line)}")
    for line in failed:
        print(f"UNDER ITS BAR: {row(line)}")
    if len(times) < wanted:
        print(f"INTERRUPTED: {wanted - len(times)} of {wanted} suites were not begun")
    print(
        f"\n{len(held)} bars held, {len(failed)} failed, {len(unjudged)} NOT JUDGED, {len(told)} figures without a bar; "
        f"{len(times)} suites in {minutes(sum(times.values()))}; {load()}"
    )
    if unjudged:
        print("What was not judged has not passed: run it again on a machine that does nothing else.")
    print("written: bench/results/latest.md, latest.json")
    return 1 if failed or (strict and unjudged) or len(times) < wanted else 0


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"


def commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return f"commit {asked.stdout.strip()}" if asked.returncode == 0 else "no commit"


if __name__ == "__main__":
    sys.exit(main())

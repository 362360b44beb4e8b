"""Runs the corpus on Tenure and on peers, and writes docs/corpus.md and docs/corpus.json.

python -m corpus                              Tenure, all cases
python -m corpus --short                      20 hangs and 20 healthy jobs
python -m corpus --only lock_order bursts     these cases, with what the runtime said; writes nothing
python -m corpus --runtime rq:best            a peer at its best settings, or rq:defaults; `peers` stands for all of them
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from corpus.case import Case, all_cases
from corpus.measure import Outcome, run, total
from corpus.runtimes.runtime import Runtime
from corpus.table import DOCS, merge, write

BAR = 55 / 60
"""Tenure finds at least this part of the hangs in time, with the cause named, and ends no healthy job."""


def runtime_of(name: str) -> Runtime:
    if name == "tenure":
        from corpus.runtimes.tenure_runtime import TenureRuntime

        return TenureRuntime()
    from corpus.runtimes.peer_runtime import PeerRuntime

    peer, _, mode = name.partition(":")
    return PeerRuntime(peer, mode or "defaults")


def names_of(wanted: list[str]) -> list[str]:
    if "peers" not in wanted:
        return wanted
    from corpus.runtimes.peer_runtime import PEERS

    return [name for name in wanted if name != "peers"] + [
        f"{p}:{mode}" for p in PEERS for mode in ("defaults", "best")
    ]


def chosen(only: list[str], short: bool) -> list[Case]:
    found = all_cases()
    unknown = set(only) - set(found)
    if unknown:
        raise SystemExit(f"no case is called {', '.join(sorted(unknown))}; known are: {', '.join(found)}")
    return [case for name, case in found.items() if (not only or name in only) and (case.short or not short)]


def good(one: Outcome) -> bool:
    return (one.in_time and one.named) if one.kind == "hang" else not one.killed


def meets_bar(outcomes: list[Outcome]) -> bool:
    figures = total(outcomes)
    return bool(figures["found in time and named"] >= BAR * figures["hangs"] and not figures["killed"])


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    # A run that is ended from outside ends the processes that it started: some of them spin for ever.
    signal.signal(signal.SIGTERM, _end)
    parser = argparse.ArgumentParser(
        prog="python -m corpus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="CASE")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--runtime", nargs="*", default=["tenure"], metavar="NAME[:MODE]")
    parser.add_argument("--quiet", action="store_true", help="Do not print the cases that went wrong.")
    parser.add_argument("--docs", type=Path, default=DOCS, help="Write the table and the JSON into this folder.")
    options = parser.parse_args()
    cases, failed = chosen(options.only, options.short), False
    for name in names_of(options.runtime):
        try:
            runtime = runtime_of(name)
            outcomes = run(runtime, cases)
        except Exception as error:
            print(f"{name} could not be measured: {error}", flush=True)
            failed = True
            continue
        show(name, outcomes, options.quiet)
        if not all(one.begun for one in outcomes):
            failed = True
        elif not options.only:
            write(options.docs, merge(options.docs, name, about(runtime), outcomes))
        failed = failed or (name == "tenure" and not options.only and not meets_bar(outcomes))
    return int(failed)


def show(name: str, outcomes: list[Outcome], quiet: bool) -> None:
    for one in outcomes:
        if not good(one) and not quiet:
            print(f"--- {one}\n", flush=True)
    print(name, json.dumps(total(outcomes), indent=1), flush=True)
    if missing := [one.case for one in outcomes if not one.begun]:
        # A case that never began says nothing about a runtime: the row is left out.
        print(f"{name}: {len(missing)} cases never began ({', '.join(missing[:5])}): nothing is written", flush=True)


def about(runtime: Runtime) -> dict[str, Any]:
    """Returns what the page says of a run beside its figures. The load is that of the last five minutes, its own work included."""
    day, load = time.strftime("%Y-%m-%d"), round(os.getloadavg()[1], 1)
    return {"settings": runtime.settings, "version": runtime.version, "when": day, "load": load}


if __name__ == "__main__":
    sys.exit(main())

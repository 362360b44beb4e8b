"""Runs cases on a runtime and judges what the witness saw: found or not, how soon, killed in error, run twice, lost."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corpus.case import SLACK_S, Case
from corpus.job import Witness
from corpus.runtimes.runtime import Known, Runtime

LONGEST_S = 30.0
START_S = 60.0


@dataclass
class Outcome:
    """The judgement on one case."""

    case: str
    kind: str
    begun: bool = False
    found_s: float | None = None
    """A hang: the seconds from where it hung to the record of its failure, or to its next attempt."""
    in_time: bool = False
    named: bool = False
    """The evidence contains the words of the label."""
    recovered: bool = False
    """A hang: another attempt finished the job."""
    killed: bool = False
    """A healthy job: one of its attempts was ended."""
    completed: bool = False
    duplicates: int = 0
    """Attempts that began while an earlier one could still act."""
    redone: int = 0
    """Steps that were done more than once."""
    lost_s: float = 0.0
    """A healthy job: the seconds of attempts that came to nothing."""
    said: str = ""


def run(
    runtime: Runtime, cases: Iterable[Case], folder: Path | None = None, *, after_s: float | None = None
) -> list[Outcome]:
    """Runs the cases, at most `at_once` at a time, and returns their outcomes in order. `after_s` in place of the runtime's own."""
    chosen, found = list(cases), []
    size = max(1, min(len(chosen), runtime.at_once))
    batches = [chosen] if runtime.frees_places else [chosen[at : at + size] for at in range(0, len(chosen), size)]
    for batch in batches:
        with tempfile.TemporaryDirectory(prefix="corpus-", dir=folder) as run_folder:
            found += _run_batch(runtime, batch, Path(run_folder), size, runtime.after_s if after_s is None else after_s)
    return found


def _run_batch(runtime: Runtime, batch: list[Case], folder: Path, places: int, after_s: float) -> list[Outcome]:
    runtime.start(folder, places)
    try:
        runtime.submit(batch)
        open_cases = {case.name: case for case in batch}
        rounds = -(-len(batch) // places)
        until = time.monotonic() + START_S + rounds * LONGEST_S + runtime.longest_s + after_s
        while open_cases and time.monotonic() < until:
            time.sleep(0.5)
            for case in list(open_cases.values()):
                runtime.watch(case)
                if _is_settled(case, Witness(folder, case.name).lines(), runtime.longest_s, after_s):
                    del open_cases[case.name]
        time.sleep(0.5)
        return [judge(case, Witness(folder, case.name).lines(), runtime.known(case)) for case in batch]
    finally:
        runtime.stop()


def _is_settled(case: Case, lines: list[dict[str, Any]], longest_s: float, after_s: float) -> bool:
    """True when nothing more is to be expected of a case, or it had its time."""
    begun = _first(lines, "begin")
    if begun is None:
        return False
    if any(line["what"] == "end" for line in lines):
        return True
    hung = _first(lines, "hang")
    if case.kind == "hang":
        return hung is not None and time.time() - hung["at"] > max(longest_s, case.threshold_s + SLACK_S) + after_s
    return bool(time.time() - begun["at"] > LONGEST_S + after_s)


def judge(case: Case, lines: list[dict[str, Any]], known: Known) -> Outcome:
    """Judges one case by what its witness wrote and what the runtime recorded."""
    outcome = Outcome(case.name, case.kind, begun=bool(lines))
    begins = [line for line in lines if line["what"] == "begin"]
    outcome.duplicates = sum(bool(line["beside"]) for line in begins)
    ends = [line for line in lines if line["what"] == "end"]
    outcome.completed = bool(ends)
    if case.kind == "hang":
        _judge_hang(case, lines, begins, known, outcome)
    else:
        ended = {line["attempt"]: line for line in lines if line["what"] in ("end", "error")}
        outcome.killed = len(begins) > 1 or known.failed_at is not None or not ends
        if outcome.killed:
            wasted = [one for one in begins if ended.get(one["attempt"], {"what": ""})["what"] != "end"]
            last = max((line["at"] for line in lines), default=0.0)
            outcome.lost_s = sum(ended.get(one["attempt"], {"at": last})["at"] - one["at"] for one in wasted)
            outcome.said = known.evidence[:2000] or str(lines)[:500]
    return outcome


def _judge_hang(
    case: Case, lines: list[dict[str, Any]], begins: list[dict[str, Any]], known: Known, outcome: Outcome
) -> None:
    hung = _first(lines, "hang")
    if hung is None:
        outcome.said = "it never came to the place where it hangs"
        return
    times = [line["at"] for line in begins if line["attempt"] > 1]
    times += [known.failed_at] if known.failed_at is not None else []
    outcome.recovered = outcome.completed and len(begins) > 1
    if times:
        outcome.found_s = round(max(0.0, min(times) - hung["at"]), 2)
        outcome.in_time = outcome.found_s <= case.threshold_s + SLACK_S
        outcome.named = all(re.search(word, known.evidence) for word in case.names)
    steps = [line["step"] for line in lines if line["what"] == "step"]
    outcome.redone = len(steps) - len(set(steps))
    if not outcome.named:
        outcome.said = known.evidence[:4000]


def _first(lines: list[dict[str, Any]], what: str) -> dict[str, Any] | None:
    return next((line for line in lines if line["what"] == what), None)


def total(outcomes: list[Outcome]) -> dict[str, Any]:
    """Returns the figures of one runtime's row."""
    hangs = [one for one in outcomes if one.kind == "hang"]
    healthy = [one for one in outcomes if one.kind == "healthy"]
    found = sorted(one.found_s for one in hangs if one.found_s is not None)
    return {
        "hangs": len(hangs),
        "found": len(found),
        "found in time": sum(one.in_time for one in hangs),
        "named": sum(one.named for one in hangs),
        "found in time and named": sum(one.in_time and one.named for one in hangs),
        "median seconds": found[len(found) // 2] if found else None,
        "recovered": sum(one.recovered for one in hangs),
        "healthy": len(healthy),
        "killed": sum(one.killed for one in healthy),
        "duplicates": sum(one.duplicates for one in outcomes),
        "steps done again": sum(one.redone for one in hangs),
        "seconds lost": round(sum(one.lost_s for one in healthy), 1),
    }


def as_json(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    return [asdict(one) for one in outcomes]

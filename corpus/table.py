"""Writes docs/corpus.md from the outcomes of a run: a row for each runtime, and the cases that Tenure misses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corpus.case import SCALE, SLACK_S, STALL_S, STUCK_S, all_cases
from corpus.measure import Outcome, as_json, total

DOCS = Path(__file__).resolve().parent.parent / "docs"
HEAD = f"""# The hang corpus

Written by `make corpus`; do not edit. `corpus/` holds small real programs: ways to hang, and jobs that are slow and healthy. Each runs in real
processes on each runtime. A witness in the program writes down what really happened; the runtime is judged by that, not by what it says.

All times are a hundredth of real ones (1:{SCALE}): Tenure's default stall threshold of 300 s is {STALL_S:g} s here, its stuck threshold {STUCK_S:g} s, and a peer's
default limit of 180 s is 1.8 s. *In time* is within the threshold of the case and {SLACK_S:g} s. *Named*: the evidence contains the function that hangs, or
says that the process is stopped. *Killed*: a healthy job whose attempt was ended, or that failed. *Run twice*: another attempt began while the earlier one
could still act. *Done again*: steps that an earlier attempt had done; each hang had done 6, and 4 of them were in a checkpoint. *Lost*: seconds of
healthy work that came to nothing. Each peer also runs at its best settings: a limit above the longest healthy job, with whatever beats and retries it has.

| runtime | settings | hangs found | named | in time | in time and named | median s | finished by a retry | healthy killed | run twice | done again | lost s |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def merge(folder: Path, runtime: str, settings: str, outcomes: list[Outcome], when: str) -> dict[str, Any]:
    """Adds the outcomes of one runtime to corpus.json, and returns all of it."""
    results = folder / "corpus.json"
    known = json.loads(results.read_text()) if results.exists() else {}
    kept = [{key: value for key, value in one.items() if key != "said"} for one in as_json(outcomes)]
    known[runtime] = {"settings": settings, "when": when, "total": total(outcomes), "cases": kept}
    results.write_text(json.dumps(known, indent=1) + "\n")
    return dict(known)


def write(folder: Path, known: dict[str, Any]) -> None:
    """Writes corpus.md."""
    rows = [_row(name, known[name]) for name in sorted(known, key=lambda name: (name != "tenure", name))]
    text = HEAD + "\n".join(rows) + "\n"
    if "tenure" in known:
        text += _misses(known["tenure"]["cases"])
    text += "\nHow to run it, and how to add a case: [corpus/README.md](../corpus/README.md).\n"
    (folder / "corpus.md").write_text(text)


def _row(name: str, one: dict[str, Any]) -> str:
    t = one["total"]
    median = "-" if t["median seconds"] is None else f"{t['median seconds']:.1f}"
    cells = [
        name.partition(":")[0],
        one["settings"],
        f"{t['found']} of {t['hangs']}",
        t["named"],
        t["found in time"],
        t["found in time and named"],
        median,
        t["recovered"],
        f"{t['killed']} of {t['healthy']}",
        t["duplicates"],
        t["steps done again"],
        t["seconds lost"],
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def _misses(cases: list[dict[str, Any]]) -> str:
    labels = all_cases()
    missed = [one["case"] for one in cases if one["kind"] == "hang" and not (one["in_time"] and one["named"])]
    killed = [one["case"] for one in cases if one["kind"] == "healthy" and one["killed"]]
    lines = [f"- `{name}`: {labels[name].story}" for name in missed]
    text = (
        "\n## What Tenure misses\n\nThese claim progress, or excuse themselves, and nothing but their meaning tells them from work:\n\n"
        + "\n".join(lines)
        + "\n"
    )
    if killed:
        text += (
            "\n## Healthy jobs that Tenure ended\n\n" + "\n".join(f"- `{n}`: {labels[n].story}" for n in killed) + "\n"
        )
    return text

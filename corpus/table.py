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
says that the process is stopped; a peer's evidence is its log, and the stack with which it ended the job, also where it does not log that. *Killed*: a
healthy job whose attempt was ended, or that failed. *Run twice*: another attempt began while the earlier one could still act. *Done again*: steps that an
earlier attempt had done; each hang had done 6, and 4 of them were saved where the runtime can save. *Lost*: seconds of healthy work that came to nothing.

| runtime | settings | hangs found | named | in time | in time and named | median s | finished by a retry | healthy killed | run twice | done again | lost s |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""
SETTINGS = """
## What each runtime was set to

At its defaults, and as somebody who knows it well would set it for jobs that may be long: a limit above the longest healthy job (any lower one ends healthy
jobs, as the rows of default limits show), its heartbeats where it has them, its retries, and its own place for saved state. Times here are real
ones, of which a run has a hundredth. The load is that of the machine with two cores while the row ran, its own included.

"""
README = DOCS.parent / "README.md"
BEGIN, END = "<!-- corpus: written by `make corpus` -->\n", "<!-- /corpus -->"


def merge(folder: Path, name: str, about: dict[str, Any], outcomes: list[Outcome]) -> dict[str, Any]:
    """Adds the outcomes of one runtime to corpus.json, and returns all of it."""
    results = folder / "corpus.json"
    known = json.loads(results.read_text()) if results.exists() else {}
    kept = [{key: value for key, value in one.items() if key != "said"} for one in as_json(outcomes)]
    known[name] = {**about, "total": total(outcomes), "cases": kept}
    results.write_text(_one_case_a_line(known))
    return dict(known)


def _one_case_a_line(known: dict[str, Any]) -> str:
    rows = []
    for name in sorted(known):
        facts = {key: value for key, value in known[name].items() if key != "cases"}
        cases = ",\n  ".join(json.dumps(case) for case in known[name]["cases"])
        rows.append(f' {json.dumps(name)}: {json.dumps(facts)[:-1]}, "cases": [\n  {cases}\n ]}}')
    return "{\n" + ",\n".join(rows) + "\n}\n"


def write(folder: Path, known: dict[str, Any]) -> None:
    """Writes corpus.md; and, where it is that of the repository, the table in the README."""
    (folder / "corpus.md").write_text(page(known))
    if folder == DOCS:
        README.write_text(with_table(README.read_text(), known))


def _ordered(known: dict[str, Any]) -> list[str]:
    return sorted(known, key=lambda name: (name != "tenure", name.partition(":")[0], name.endswith(":best")))


def page(known: dict[str, Any]) -> str:
    """Returns corpus.md."""
    names = _ordered(known)
    text = HEAD + "\n".join(_row(name, known[name]) for name in names) + "\n"
    if "tenure" in known:
        text += _misses(known["tenure"]["cases"])
    text += SETTINGS + "\n".join(_settings(name, known[name]) for name in names) + "\n"
    return text + "\nHow to run it, and how to add a case: [corpus/README.md](../corpus/README.md).\n"


def with_table(readme: str, known: dict[str, Any]) -> str:
    """Returns the README with the short table between its two marks."""
    total = known["tenure"]["total"] if "tenure" in known else {"hangs": 0, "healthy": 0}
    lines = [
        f"| [{total['hangs']} ways to hang, {total['healthy']} slow and healthy jobs](docs/corpus.md), times 1:{SCALE} "
        "| hangs found | cause named | median s | healthy jobs killed |",
        "|---|--:|--:|--:|--:|",
        *(_short_row(name, known[name]["total"]) for name in _ordered(known)),
    ]
    before, _, rest = readme.partition(BEGIN)
    return before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2]


def _short_row(name: str, t: dict[str, Any]) -> str:
    runtime, _, mode = name.partition(":")
    title = f"**Tenure, {mode or 'defaults'}**" if runtime == "tenure" else f"{TITLES.get(runtime, runtime)}, {mode}"
    cells = [title, f"{t['found']} of {t['hangs']}", t["named"], _median(t), f"{t['killed']} of {t['healthy']}"]
    return "| " + " | ".join(map(str, cells)) + " |"


TITLES = {
    "celery": "Celery",
    "dbos": "DBOS",
    "dramatiq": "Dramatiq",
    "procrastinate": "Procrastinate",
    "rq": "RQ",
    "taskiq": "Taskiq",
    "temporal": "Temporal",
}


def _median(t: dict[str, Any]) -> str:
    return "-" if t["median seconds"] is None else f"{t['median seconds']:.1f}"


def _settings(name: str, one: dict[str, Any]) -> str:
    runtime, _, mode = name.partition(":")
    version = f" ({one['version']})" if one.get("version") else ""
    return f"- **{runtime}, {mode or 'defaults'}**{version}: {one['settings']}. Load {one.get('load', 'unknown')}, {one['when']}."


def _row(name: str, one: dict[str, Any]) -> str:
    t = one["total"]
    cells = [
        name.partition(":")[0],
        name.partition(":")[2] or "defaults",
        f"{t['found']} of {t['hangs']}",
        t["named"],
        t["found in time"],
        t["found in time and named"],
        _median(t),
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

"""Writes docs/performance.md and its chart from one run of `python -m bench product`. Every figure is one that this run measured.

The other pages of figures, such as the cost of a million jobs, are kept between the two marks of the page, and stay as they are.
"""

from __future__ import annotations

import math
import os
import platform
import time
from pathlib import Path

from bench.harness import Line, Report, Verdict
from bench.machine import load

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, CHART = DOCS / "performance.md", DOCS / "pictures" / "performance.svg"
KEPT, KEPT_END = "<!-- kept: written by other runs -->", "<!-- end of kept -->"
NAMES = {"redis": "Redis (Valkey, synced every second)", "sqlite": "SQLite (synchronous=full)", "postgres": "PostgreSQL", "nats": "NATS JetStream"}  # fmt: skip
VERDICTS = {Verdict.HELD: "met", Verdict.FAILED: "**missed**", Verdict.NOT_JUDGED: "not judged", Verdict.TOLD: ""}
WIDTH, LEFT, ROW = 720, 250, 22
CORES = os.cpu_count() or 1


def write_page(report: Report) -> None:
    lines = [line for line in report.lines if line.suite == report.suite and not math.isnan(line.ours)]
    CHART.write_text(chart([line for line in lines if "drain" in line.name and line.theirs is not None]))
    PAGE.write_text(text(lines, report.notes, kept()))
    print(f"written: {PAGE.relative_to(DOCS.parent)}, {CHART.relative_to(DOCS.parent)}", flush=True)


def kept() -> str:
    """Returns the part of the present page that other runs wrote."""
    if not PAGE.exists() or KEPT not in (before := PAGE.read_text()):
        return ""
    return before.partition(KEPT)[2].partition(KEPT_END)[0]


def write_section(name: str, written: str) -> None:
    """Writes one section of the kept part, and leaves the others as they are."""
    begin, end = f"<!-- section {name} -->", f"<!-- end of {name} -->"
    page, mine = PAGE.read_text(), f"\n{begin}\n{written}\n{end}\n"
    others = kept()
    if begin in others:
        head, _, rest = others.partition(f"\n{begin}\n")
        changed = head + mine + rest.partition(f"{end}\n")[2]
    else:
        changed = others + mine
    PAGE.write_text(page.replace(f"{KEPT}{others}{KEPT_END}", f"{KEPT}{changed}{KEPT_END}"))
    print(f"written: {PAGE.relative_to(DOCS.parent)}, section {name}", flush=True)


def text(lines: list[Line], notes: list[str], others: str) -> str:
    judged = [line for line in lines if line.verdict is not Verdict.TOLD]
    held = sum(line.verdict is Verdict.HELD for line in judged)
    parts = [
        "# Performance",
        f"`make bench ONLY=product` wrote this page on {time.strftime('%Y-%m-%d')}: {platform.machine()}, {CORES} cores, Python "
        f"{platform.python_version()}; {load()} at its end. It measures what users run, `tenure worker` and a datacenter, beside each peer at a "
        "fast setting, on the same private servers, in turn, three rounds; a ratio is that of the medians. "
        f"Of {len(judged)} bars, {held} are met; the others say so. [How each is measured and set up](../bench/peers/README.md).",
        "![Jobs per second of one worker, ours and theirs](pictures/performance.svg)",
        "Jobs per second, ours in green. The longest bar of each engine has the whole width: compare within an engine.",
        "## The code of a job\n\n" + table([line for line in lines if ":" not in line.name]),
    ]
    for broker, name in NAMES.items():
        mine = [line for line in lines if line.name.startswith(f"{broker}: ")]
        if mine:
            parts.append(f"## {name}\n\n{table(mine, broker)}")
    if notes:
        parts.append("## Not measured, and settings\n\n" + "\n".join(f"- {note}" for note in notes))
    parts.append(f"{KEPT}{others}{KEPT_END}")
    return "\n\n".join(parts) + "\n"


def table(lines: list[Line], broker: str = "") -> str:
    head = "| what | ours | beside | theirs | ratio | bar | |\n|---|--:|---|--:|--:|---|---|\n"
    return head + "\n".join(row(line, broker) for line in lines)


def row(line: Line, broker: str) -> str:
    theirs = "" if line.theirs is None else figure(line.theirs)
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    verdict = VERDICTS[line.verdict] + (f": {line.why}" if line.why else "")
    name = line.name.removeprefix(f"{broker}: ")
    return f"| {name} | {figure(line.ours)} {line.unit} | {line.beside} | {theirs} | {ratio} | {line.bar} | {verdict} |"


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:,.4g}"


def chart(lines: list[Line]) -> str:
    """Returns bars, the longest of each broker over the whole width: rates of different brokers are not to be compared."""
    most = {broker: max(max(x.ours, x.theirs or 0.0) for x in lines if of(x) == broker) for broker in map(of, lines)}
    drawn, y = list[str](), 6
    for line in lines:
        for whose, rate, colour in (
            (f"Tenure, {part(line)}", line.ours, "#0f766e"),
            # A worker with fewer slots is ours, too.
            (f"Tenure, {line.beside}", line.theirs or 0.0, "#5eaaa2")
            if line.beside.startswith("worker-")
            else (line.beside, line.theirs or 0.0, "#94a3b8"),
        ):
            long = (WIDTH - LEFT - 90) * rate / most[of(line)]
            drawn.append(
                f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{of(line)}: {whose}</text>'
                f'<rect x="{LEFT}" y="{y + 2}" width="{long:.0f}" height="{ROW - 6}" fill="{colour}"/>'
                f'<text x="{LEFT + long + 6:.0f}" y="{y + 14}">{rate:,.0f}/s</text>'
            )
            y += ROW
        y += ROW // 2
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12" fill="#334155">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>', *drawn, "</svg>\n"])


def of(line: Line) -> str:
    return line.name.partition(":")[0]


def part(line: Line) -> str:
    return line.name.rpartition(", ")[2]

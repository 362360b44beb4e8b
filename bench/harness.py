"""What every benchmark reports through: values, ratios of two things measured in the same run, and what became of their bars.

A ratio is taken from interleaved rounds, ours and theirs in turn, so that a machine that slows down slows both. The ratio is that of the medians,
and it is judged always. A time on the wall with a bar of its own is another matter: on a machine that others use (`machine.py` says how
much they did) a bar that is met is met, and one that is not is NOT JUDGED. That is told loudly, with the reason, and is never a pass.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from bench.machine import BUSY_CORES, Others, load

RESULTS = Path(__file__).resolve().parent / "results"
ON_THE_WALL = frozenset({"s", "ms", "µs", "us", "ns", "per second", "terms"})
"""Units of what others can spoil. Bytes, counts and shares of a core are judged whatever the machine does."""


class Verdict(StrEnum):
    HELD = "ok"
    FAILED = "UNDER ITS BAR"
    NOT_JUDGED = "NOT JUDGED"
    TOLD = ""
    """There is no bar."""


@dataclass
class Line:
    suite: str
    name: str
    ours: float
    unit: str
    theirs: float | None = None
    beside: str = ""  # what `theirs` is
    ratio: float | None = None
    bar: str = ""
    verdict: Verdict = Verdict.TOLD
    why: str = ""  # it was not judged
    others: float = 0.0  # cores that others used meanwhile


@dataclass
class Report:
    suite: str = ""
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was not measured and why, and how it was measured; printed again at the end."""
    tables: list[str] = field(default_factory=list)
    """In Markdown, printed at the end."""
    others: Others = field(default_factory=Others)

    def note(self, text: str) -> None:
        self.notes.append(f"{self.suite}: {text}")
        print(f"{self.suite:<10} NOTE {text}", flush=True)

    def fail(self, text: str) -> None:
        """Something of ours could not be measured at all."""
        self._add(
            Line(self.suite, text, math.nan, "", bar="measured", verdict=Verdict.FAILED, others=self.others.cores())
        )

    def value(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        most: float | None = None,
        least: float | None = None,
        unfair: str = "",
    ) -> None:
        """One figure, with a bound where the issue names one. `unfair` says why a bar that is not met says nothing here."""
        line = Line(self.suite, name, value, unit, bar=_bar(most, least, ""))
        self._judge(line, value, most, least, unfair, on_the_wall=unit in ON_THE_WALL)

    def wall(self, name: str, wall: float, processor: float, unit: str, *, most: float) -> None:
        """A time on the wall. Where others keep the machine too busy for that, what it costs the processors is held to the same bar."""
        used = self.others.cores()
        if wall <= most or used <= BUSY_CORES:
            self.value(f"{name}, on the wall", wall, unit, most=most)
            return
        self.value(f"{name}, on the wall", wall, unit, most=most, unfair=_busy(used))
        line = Line(self.suite, f"{name}, processor time, as the machine is busy", processor, unit, bar=f"<= {most:g}")
        self._judge(line, processor, most, None, "", on_the_wall=False)

    def compare(
        self,
        name: str,
        ours: Callable[[], float],
        theirs: Callable[[], float],
        *,
        beside: str,
        unit: str = "per second",
        at_least: float | None = None,
        at_most: float | None = None,
        rounds: int = 5,
    ) -> None:
        """Measure both in turn. `at_least` for rates (ours / theirs), `at_most` for times and costs."""
        pairs = [(ours(), theirs()) for _ in range(rounds)]
        self.beside(
            name,
            [mine for mine, _ in pairs],
            [other for _, other in pairs],
            beside=beside,
            unit=unit,
            at_least=at_least,
            at_most=at_most,
        )

    def beside(
        self,
        name: str,
        ours: Sequence[float],
        theirs: Sequence[float],
        *,
        beside: str,
        unit: str = "per second",
        at_least: float | None = None,
        at_most: float | None = None,
        unfair: str = "",
    ) -> Line:
        """As `compare`, of what was measured already, in turn."""
        mine, other = statistics.median(ours), statistics.median(theirs)
        line = Line(self.suite, name, mine, unit, other, beside, mine / other, _bar(at_most, at_least, "x"))
        return self._judge(line, mine / other, at_most, at_least, unfair, on_the_wall=False)

    def _judge(
        self, line: Line, value: float, most: float | None, least: float | None, unfair: str, *, on_the_wall: bool
    ) -> Line:
        line.others = self.others.cores()
        if most is None and least is None:
            line.verdict = Verdict.TOLD
        elif (most is None or value <= most) and (least is None or value >= least):
            line.verdict = Verdict.HELD
        elif unfair or (on_the_wall and line.others > BUSY_CORES):
            line.verdict, line.why = Verdict.NOT_JUDGED, unfair or _busy(line.others)
        else:
            line.verdict = Verdict.FAILED
        return self._add(line)

    def _add(self, line: Line) -> Line:
        self.lines.append(line)
        print(row(line), flush=True)
        return line

    def of(self, verdict: Verdict) -> list[Line]:
        return [line for line in self.lines if line.verdict is verdict]

    def write(self, head: str) -> str:
        """`results/latest.json` and `latest.md`; what the latter says."""
        RESULTS.mkdir(exist_ok=True)
        lines = [{**asdict(line), "ours": None if math.isnan(line.ours) else line.ours} for line in self.lines]
        told = {"run": head, "lines": lines, "notes": self.notes, "tables": self.tables}
        (RESULTS / "latest.json").write_text(json.dumps(told, indent=1))
        table = "| suite | what | ours | beside | theirs | ratio | bar | | cores used by others |\n|---|---|--:|---|--:|--:|---|---|--:|\n"
        rows = "".join(
            f"| {x.suite} | {x.name} | {x.ours:,.4g} {x.unit} | {x.beside} | "
            f"{'' if x.theirs is None else f'{x.theirs:,.4g}'} | {'' if x.ratio is None else f'{x.ratio:.2f}'} | {x.bar} | "
            f"{x.verdict}{f': {x.why}' if x.why else ''} | {x.others:.1f} |\n"
            for x in self.lines
        )
        notes = "".join(f"- {note}\n" for note in self.notes)
        text = "\n".join([head, "", *self.tables, table + rows, notes])
        (RESULTS / "latest.md").write_text(text)
        return text


def row(line: Line) -> str:
    text = f"{line.suite:<10} {line.name:<58} {line.ours:>12,.4g} {line.unit}"
    if line.ratio is not None:
        text += f"   {line.ratio:.2f}x of {line.beside} ({line.theirs:,.4g})"
    if line.bar:
        text += f"   bar {line.bar}: {line.verdict}"
    if line.why:
        text += f" ({line.why})"
    elif line.verdict is Verdict.FAILED:
        text += f" (others used {line.others:.1f} cores; {load()})"
    return text


def _bar(most: float | None, least: float | None, unit: str) -> str:
    return f"<= {most:g}{unit}" if most is not None else f">= {least:g}{unit}" if least is not None else ""


def _busy(cores: float) -> str:
    return f"the machine is too busy: others used {cores:.1f} cores, more than {BUSY_CORES}; {load()}"


def rate(work: Callable[[], object], *, count: int) -> float:
    """How many per second, when `work()` does `count` of them."""
    begun = time.perf_counter()
    work()
    return count / (time.perf_counter() - begun)

"""What every benchmark reports through: values, and ratios of two things measured in the same run.

A ratio is taken from interleaved rounds, ours and theirs in turn, so that a machine that slows down slows both. The
ratio is that of the medians. One under its bar fails `make bench`.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


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
    ok: bool = True


@dataclass
class Report:
    suite: str = ""
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was not measured and why, and how it was measured; printed again at the end."""

    def note(self, text: str) -> None:
        self.notes.append(f"{self.suite}: {text}")
        print(f"{self.suite:<10} NOTE {text}", flush=True)

    def fail(self, text: str) -> None:
        """Something of ours could not be measured at all."""
        self._add(Line(self.suite, text, float("nan"), "", bar="measured", ok=False))

    def value(
        self, name: str, value: float, unit: str, *, most: float | None = None, least: float | None = None
    ) -> None:
        """One figure, with a bound where the issue names one."""
        ok = (most is None or value <= most) and (least is None or value >= least)
        bar = f"<= {most:g}" if most is not None else f">= {least:g}" if least is not None else ""
        self._add(Line(self.suite, name, value, unit, bar=bar, ok=ok))

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
    ) -> None:
        """As `compare`, of what was measured already, in turn."""
        mine, other = statistics.median(ours), statistics.median(theirs)
        ratio = mine / other
        ok = (at_least is None or ratio >= at_least) and (at_most is None or ratio <= at_most)
        bar = f">= {at_least:g}x" if at_least is not None else f"<= {at_most:g}x" if at_most is not None else ""
        self._add(Line(self.suite, name, mine, unit, other, beside, ratio, bar, ok))

    def _add(self, line: Line) -> None:
        self.lines.append(line)
        print(row(line), flush=True)

    @property
    def failed(self) -> list[Line]:
        return [line for line in self.lines if not line.ok]

    def write(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        machine = f"Python {platform.python_version()}, {platform.machine()}"
        (RESULTS / "latest.json").write_text(
            json.dumps(
                {"machine": machine, "lines": [asdict(line) for line in self.lines], "notes": self.notes}, indent=1
            )
        )
        head = "| suite | what | ours | beside | theirs | ratio | bar | |\n|---|---|--:|---|--:|--:|---|---|\n"
        rows = "".join(
            f"| {x.suite} | {x.name} | {x.ours:,.4g} {x.unit} | {x.beside} | "
            f"{'' if x.theirs is None else f'{x.theirs:,.4g}'} | {'' if x.ratio is None else f'{x.ratio:.2f}'} | {x.bar} | "
            f"{'ok' if x.ok else 'UNDER ITS BAR'} |\n"
            for x in self.lines
        )
        notes = "".join(f"- {note}\n" for note in self.notes)
        (RESULTS / "latest.md").write_text(f"{machine}\n\n{head}{rows}\n{notes}")


def row(line: Line) -> str:
    text = f"{line.suite:<10} {line.name:<58} {line.ours:>12,.4g} {line.unit}"
    if line.ratio is not None:
        text += f"   {line.ratio:.2f}x of {line.beside} ({line.theirs:,.4g})"
    if line.bar:
        text += f"   bar {line.bar}: {'ok' if line.ok else 'UNDER ITS BAR'}"
    return text


def rate(work: Callable[[], object], *, count: int) -> float:
    """How many per second, when `work()` does `count` of them."""
    begun = time.perf_counter()
    work()
    return count / (time.perf_counter() - begun)

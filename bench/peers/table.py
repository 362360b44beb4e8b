"""The closing table of the contest: everybody beside us, what each is held to, and who is missing and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.harness import Line

HEAD = [
    "peer", "pick-up p50 / p99, ms", "ours", "ratio of p50", "held to", "drain, jobs/s", "ours, in batches", "ratio", "held to",
    "ours, one by one (no bar)",
]  # fmt: skip


@dataclass
class Row:
    broker: str
    sooner: str
    """Why it has no bar on pick-up."""
    rounds: int
    pickup: Line
    late: Line
    drain: Line
    single: Line

    def cells(self) -> list[str]:
        held = f"{self.pickup.bar}: {self.pickup.verdict}" if self.pickup.bar else f"no bar: {self.sooner}"
        if self.pickup.why:
            held += f" ({self.pickup.why})"
        return [
            self.pickup.beside + ("" if self.rounds == 3 else f" ({self.rounds} rounds)"),
            f"{self.pickup.theirs:.2f} / {self.late.theirs:.2f}",
            f"{self.pickup.ours:.2f} / {self.late.ours:.2f}",
            f"**{self.pickup.ratio:.2f}**",
            held,
            f"{self.drain.theirs:,.0f}",
            f"{self.drain.ours:,.0f}",
            f"**{self.drain.ratio:.1f}**",
            f"{self.drain.bar}: {self.drain.verdict}",
            f"{self.single.ours:,.0f}, {self.single.ratio:.1f}x",
        ]


@dataclass
class Table:
    rows: list[Row] = field(default_factory=list)
    missing: list[tuple[str, str, str]] = field(default_factory=list)

    def text(self) -> str:
        parts = []
        for broker in dict.fromkeys(row.broker for row in self.rows):
            lines = [HEAD, ["---"] * len(HEAD), *(row.cells() for row in self.rows if row.broker == broker)]
            body = "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
            parts.append(f"### {broker}\n\n{body}")
        if self.missing:
            lost = "".join(f"- {broker}: {name}: {why}\n" for broker, name, why in self.missing)
            parts.append(f"### NOT MEASURED\n\n{lost}")
        return "\n".join(parts)

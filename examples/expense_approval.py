"""The approval of an expense: small ones pass, others wait for a person, for days if need be, and hold nothing meanwhile.

python examples/expense_approval.py
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure import embedded, workflow

LIMIT = 100.0
PATIENCE_S = 7 * 86_400
paid: list[str] = []
asked: list[str] = []


@dataclass(frozen=True)
class Outcome:
    paid: bool
    why: str


def ask_for_approval(job: str, who: str, amount: float) -> str:
    """Sends the mail with the link; here it is only noted. As a step it is sent once."""
    asked.append(f"{who} asks for {amount:.2f}: tenure signal {job} approved")
    return asked[-1]


def pay(who: str, amount: float, key: str) -> str:
    """Pays, with the job as the key, so that the bank takes a repeated call for the same one."""
    paid.append(f"{amount:.2f} to {who} ({key})")
    return paid[-1]


@workflow
def expense(ctx: Any, who: str, amount: float) -> Outcome:
    why = "it is small"
    if amount > LIMIT:
        ctx.step("ask", ask_for_approval, ctx.job, who, amount)
        try:
            said = ctx.wait_event("approved", timeout=PATIENCE_S)
        except TimeoutError:
            return Outcome(False, "nobody answered within a week")
        if not said.get("yes"):
            return Outcome(False, f"{said['by']} refused it")
        why = f"{said['by']} approved it"
    ctx.step("pay", pay, who, amount, ctx.job)
    return Outcome(True, why)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded(Path(folder), workflows=[expense], slots=1, mode="threads") as datacenter,
    ):
        print(datacenter.submit(expense, who="ada", amount=12.5).wait(timeout=60))
        job = datacenter.submit(expense, who="grace", amount=950.0)
        job.signal("approved", {"yes": True, "by": "the boss"})
        print(job.wait(timeout=60))


if __name__ == "__main__":
    main()

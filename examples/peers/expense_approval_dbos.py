"""The approval of an expense with DBOS. It waits in a thread of its process, and the answer needs an address of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dbos import DBOS, SetWorkflowID

DBOS(config={"name": "expenses", "system_database_url": os.environ.get("DATABASE", "sqlite:///expenses.sqlite")})
LIMIT = 100.0
PATIENCE_S = 7 * 86_400
paid: list[str] = []
asked: list[str] = []


@dataclass(frozen=True)
class Outcome:
    paid: bool
    why: str


@DBOS.step(retries_allowed=True, max_attempts=3)
def ask_for_approval(job: str, who: str, amount: float) -> str:
    """Sends the mail with the link; here it is only noted."""
    asked.append(f"{who} asks for {amount:.2f}: POST /expenses/{job}/approved")
    return asked[-1]


@DBOS.step(retries_allowed=True, max_attempts=3)
def pay(who: str, amount: float, key: str) -> str:
    """Pays, with the workflow as the key, so that the bank takes a repeated call for the same one."""
    paid.append(f"{amount:.2f} to {who} ({key})")
    return paid[-1]


@DBOS.workflow()
def expense(who: str, amount: float) -> Outcome:
    why = "it is small"
    if amount > LIMIT:
        ask_for_approval(DBOS.workflow_id, who, amount)
        said = DBOS.recv("approved", timeout_seconds=PATIENCE_S)
        if said is None:
            return Outcome(False, "nobody answered within a week")
        if not said.get("yes"):
            return Outcome(False, f"{said['by']} refused it")
        why = f"{said['by']} approved it"
    pay(who, amount, DBOS.workflow_id)
    return Outcome(True, why)


def approve(job: str, yes: bool, by: str) -> None:
    """What the route for the link calls."""
    DBOS.send(job, {"yes": yes, "by": by}, topic="approved")


def main() -> None:
    DBOS.launch()
    with SetWorkflowID("ada-1"):
        print(DBOS.start_workflow(expense, "ada", 12.5).get_result())
    with SetWorkflowID("grace-1"):
        job = DBOS.start_workflow(expense, "grace", 950.0)
    approve("grace-1", True, "the boss")
    print(job.get_result())
    DBOS.destroy()


if __name__ == "__main__":
    main()

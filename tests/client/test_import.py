"""`from tenure import Client` is what every web process pays for. It is counted in modules, because seconds depend on the machine."""

from __future__ import annotations

import subprocess
import sys

from tenure.client.job_messages import ENDED
from tenure.jobs.endings import JobEnded
from tenure.jobs.gate_decisions import GateJobEnded

MOST = 90
"""There were 97 modules of Tenure at the end of the first wave (ab1a98b), 129 before packages became lazy, and 82 after."""
DECIDES = {"tenure.jobs.book", "tenure.jobs.topics", "tenure.jobs.why", "tenure.jobs.event_text", "tenure.health.brake"}


def imported(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if name.partition(".")[0] == "tenure"}


def test_a_client_imports_none_of_what_a_leader_decides_with() -> None:
    found = imported("from tenure import Client")
    assert found & DECIDES == set()
    assert len(found) <= MOST, sorted(found)


def test_the_word_workflow_alone_imports_no_client() -> None:
    assert not {name for name in imported("from tenure import workflow") if name.startswith("tenure.client")}


def test_the_events_that_end_a_job_are_known_by_their_names() -> None:
    """The client has them as text, so that it need not import the events of all topics."""
    assert {JobEnded.__name__, GateJobEnded.__name__} == ENDED

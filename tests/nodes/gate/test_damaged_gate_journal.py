"""A gate whose journal is damaged stays up, refuses to lead, says which entry, and goes on once it is mended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.changed import changed
from tests.nodes.gate.harness import GateWorld

from tenure.control.messages.jobs import Submit
from tenure.control.messages.wire import Problem
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.nodes.gate.leader import JOURNAL


@pytest.fixture
def nodes() -> Iterator[GateWorld]:
    made = GateWorld()
    yield made
    made.close()


def test_gates_that_cannot_read_their_journal_say_so_and_go_on_when_they_can(nodes: GateWorld) -> None:
    nodes.until(lambda: any(gate.leads for gate in nodes.living()))
    nodes.submit("j-1")
    log: Any = nodes.world.backend_of(nodes.plan.gate_engine).engine.journal(JOURNAL).log
    first, second = nodes.plan.gates[:2]
    for address in nodes.plan.gates:
        nodes.world.nodes[address].crash()
    whole = log.entries[-1]
    log.entries[-1] = changed(whole, events=(whole.events[0].replace(b"at", b"ta"), *whole.events[1:]))
    for address in nodes.plan.gates:
        nodes.world.nodes[address].start()
    nodes.until(lambda: all("journal" in nodes.gates[address].unready for address in (first, second)), seconds=60)
    assert f"entry {whole.seq} of journal 'gate'" in nodes.gates[first].unready["journal"]
    asked = JobSubmission(job_id="j-2", workflows=(WorkflowSpec(name="w"),), timeout_seconds=60.0)
    answer = nodes.ask(Submit(submission=asked), first)
    assert isinstance(answer, Problem)
    assert f"entry {whole.seq}" in answer.fact
    assert "tenure journal" in answer.remedy
    log.entries[-1] = whole
    nodes.until(lambda: any(gate.leads for gate in nodes.living()), seconds=60)
    nodes.until(lambda: not any("journal" in gate.unready for gate in nodes.living()), seconds=60)

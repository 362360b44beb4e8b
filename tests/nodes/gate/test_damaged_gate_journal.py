"""A gate whose journal is damaged stays up, refuses to lead, says which entry, and goes on once it is mended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.nodes.gate.stage import Stage

from tenure.control.messages.jobs import Problem, Submit
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.nodes.gate.leader import JOURNAL


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def test_gates_that_cannot_read_their_journal_say_so_and_go_on_when_they_can(stage: Stage) -> None:
    stage.until(lambda: any(gate.leads for gate in stage.living()))
    stage.submit("j-1")
    log: Any = stage.world.backend_of(stage.plan.gate_engine).engine.journal(JOURNAL).log
    first, second = stage.plan.gates[:2]
    for address in stage.plan.gates:
        stage.world.nodes[address].crash()
    whole = log.entries[-1]
    log.entries[-1] = whole._replace(events=(whole.events[0].replace(b"at", b"ta"), *whole.events[1:]))
    for address in stage.plan.gates:
        stage.world.nodes[address].start()
    stage.until(lambda: all("journal" in stage.gates[address].unready for address in (first, second)), seconds=60)
    assert f"entry {whole.seq} of journal 'gate'" in stage.gates[first].unready["journal"]
    asked = JobSubmission(job_id="j-2", workflows=(WorkflowSpec(name="w"),), timeout_seconds=60.0)
    answer = stage.ask(Submit(submission=asked), first)
    assert isinstance(answer, Problem)
    assert f"entry {whole.seq}" in answer.fact
    assert "tenure journal" in answer.remedy
    log.entries[-1] = whole
    stage.until(lambda: any(gate.leads for gate in stage.living()), seconds=60)
    stage.until(lambda: not any("journal" in gate.unready for gate in stage.living()), seconds=60)

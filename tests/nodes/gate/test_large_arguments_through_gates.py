"""Large arguments through a gate: its journal has a mark, each datacenter gets them whole, also from the next gate, and a retry has them again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from tests.nodes.gate.harness import GateWorld
from tests.worlds.gates.cast import Plan

from tenure.attempt_data import ARGUMENTS_STORE
from tenure.backoff import Retry
from tenure.control.messages.jobs import Done, RetryJob, Submit
from tenure.control.messages.wire import Problem
from tenure.jobs.model import JobSubmission, WorkflowSpec

BIG = "x" * 700_000


@pytest.fixture
def nodes() -> Iterator[GateWorld]:
    made = GateWorld()
    yield made
    made.close()


def job(nodes: GateWorld, job_id: str, **arguments: object) -> JobSubmission:
    spec = WorkflowSpec(
        name="w", arguments={"text": BIG, "steps": 2, "ends": "well", **arguments}, retry=Retry(max_attempts=1)
    )
    return JobSubmission(job_id=job_id, workflows=(spec,), timeout_seconds=60.0, target_datacenters=("a", "b"))


def kept(nodes: GateWorld, engine: str) -> dict[str, int]:
    store = nodes.world.backend_of(engine).engine.store(ARGUMENTS_STORE)
    return {key: len(value) for key, value in store.scan()}


def test_every_datacenter_gets_large_arguments_whole_and_the_gates_journal_has_a_mark(nodes: GateWorld) -> None:
    assert isinstance(nodes.ask(Submit(submission=job(nodes, "j"))), Done)
    nodes.until(lambda: nodes.job("j").ended)
    for engine in (nodes.plan.gate_engine, "a", "b"):
        [(key, size)] = kept(nodes, engine).items()
        assert key.startswith("j/w/")
        assert size > len(BIG)
        entries = nodes.world.backend_of(engine).engine.journal("gate" if engine == nodes.plan.gate_engine else "jobs")
        events = [one for entry in entries.read(0) for one in entry.events]
        assert max(map(len, events)) < 20_000
    again = nodes.ask(Submit(submission=job(nodes, "j")))
    assert isinstance(again, Done)
    assert again.outcome == "already"
    other = nodes.ask(Submit(submission=job(nodes, "j", text="y" * 700_000)))
    assert isinstance(other, Problem)
    assert len(kept(nodes, nodes.plan.gate_engine)) == 1


def test_a_retry_through_a_gate_has_the_large_arguments_again(nodes: GateWorld) -> None:
    nodes.ask(Submit(submission=job(nodes, "j", ends="fail")))
    nodes.until(lambda: nodes.job("j").ended)
    done = nodes.ask(RetryJob(job_id="j"))
    assert isinstance(done, Done)
    nodes.until(lambda: nodes.job(done.job_id).ended)
    for engine in ("a", "b"):
        assert sorted(key.partition("/")[0] for key in kept(nodes, engine)) == ["j", "j~2"]


def test_a_refused_submission_under_the_id_of_an_archived_job_leaves_that_jobs_arguments() -> None:
    pace = Plan.of(2, 2).pace
    nodes = GateWorld(Plan.of(2, 2, pace=replace(pace, gate=msgspec.structs.replace(pace.gate, archive_after=1.0))))
    try:
        assert isinstance(nodes.ask(Submit(submission=job(nodes, "j"))), Done)
        nodes.until(lambda: not nodes.leader().leadership.ledger.book.jobs)
        [before] = kept(nodes, nodes.plan.gate_engine)
        again = msgspec.structs.replace(job(nodes, "j"), labels={"another": "job"})
        assert isinstance(nodes.ask(Submit(submission=again)), Problem)
        assert list(kept(nodes, nodes.plan.gate_engine)) == [before]
    finally:
        nodes.close()


def test_nobody_names_a_place_of_arguments_to_a_gate(nodes: GateWorld) -> None:
    whole = job(nodes, "j")
    spec = msgspec.structs.replace(whole.workflows[0], arguments={}, arguments_at="other/w/abc")
    refused = nodes.ask(Submit(submission=msgspec.structs.replace(whole, workflows=(spec,))))
    assert isinstance(refused, Problem)
    assert "only a leader does that" in refused.fact

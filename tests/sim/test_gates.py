"""The real gates, managers and workers in simulated worlds: what was accepted ends everywhere, once, in time, whatever fails."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.sim import broken_gates
from tests.soak import sized
from tests.worlds.gates.accounts import DatacenterBook
from tests.worlds.gates.misfortunes import TURNS
from tests.worlds.gates.scenario import BusyGates, CalmGates, Gates, ImpatientGates
from tests.worlds.patching import first_failure

from tenure.engines.contracts import Entry
from tenure.jobs.deadlines import LeaderElected
from tenure.jobs.decisions import Rule, encode_event
from tenure.jobs.endings import JobEnded
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import JobState
from tenure.jobs.submission import JobSubmitted
from tenure.sim import Scenario, run_seeds

CHUNK = 3 * len(TURNS)
"""Every misfortune has its turn three times in each."""
CHUNKS = sized("times 45 schedules of five datacenters and three gates", short=1, long=230)
"""Each chunk sees everything that can happen (`AT_LEAST`), and has as many schedules as the rule needs that is hardest to find (`MUTANTS`)."""
PATIENCE_S = 1_800
"""A chunk takes some fifteen seconds of CPU; on a machine that nine people share it took ten minutes."""
AT_LEAST = {
    "jobs": 4_500,
    **{f"in {count} datacenters": 150 for count in (1, 2, 3, 5)},
    **{f"turn: {turn}": 3 for turn in TURNS},
    **{f"fault: {kind}": 3 for kind in ("partition", "one-way", "loss", "delay", "skew", "stall", "engine-outage")},
    "fault: crash": 15,
    "fault: engine-lost": 6,
    "gate elections": 45,
    "elections": 225,
    "end: completed": 1_000,
    "end: timed_out": 400,
    "end: cancelled": 80,
    "end: failed": 80,
    "decided: overall_timeout": 400,
    "decided: asked": 80,
    "decided: any_datacenter": 30,
    "decided: all_stuck": 1,
    "there: global_timeout": 500,
    "there: global_cancel": 80,
    "there: fallback": 3,
    "tombstones": 40,
    "deadline extended": 10,
    "rebuilt from reports": 10,
    "prompt decisions": 600,
}
"""What every chunk must have seen, so that a thousand schedules are not a thousand times nothing."""


def test_the_first_schedules_keep_every_promise() -> None:
    report = run_seeds(Gates, range(4))
    report.require_ok()
    assert report.tally["jobs"] == 400


def test_without_faults_every_deadline_and_every_cancel_takes_a_round_trip() -> None:
    report = run_seeds(CalmGates, range(3))
    report.require_ok()
    assert report.tally["prompt decisions"] > 50


def test_clients_that_hang_up_while_they_are_answered_lose_nothing() -> None:
    report = run_seeds(ImpatientGates, range(3))
    report.require_ok()
    assert report.tally["jobs"] == 300


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_hundreds_of_schedules_keep_every_promise(chunk: int) -> None:
    report = run_seeds(Gates, range(chunk * CHUNK, (chunk + 1) * CHUNK))
    print(report.summary())
    print(told(report.tally))
    report.require_ok()
    assert report.runs == CHUNK
    seldom = {what: report.tally[what] for what, least in AT_LEAST.items() if report.tally[what] < least}
    assert not seldom, f"these happened too seldom: {seldom}\n{told(report.tally)}"


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
def test_each_misfortune_among_hundreds_of_jobs_keeps_every_promise() -> None:
    report = run_seeds(BusyGates, range(sized("times each misfortune among 300 jobs", short=1, long=10) * len(TURNS)))
    report.require_ok()
    assert report.tally["jobs"] == 300 * report.runs


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("name", broken_gates.MUTANTS)
def test_a_broken_rule_is_found(name: str) -> None:
    scenario: type[Scenario] = getattr(broken_gates, name)
    most = broken_gates.MUTANTS[name]
    found = first_failure(scenario, broken_gates.KNOWN.get(name, ()), most)
    assert found is not None, f"{name} was not found in {most} seeds"
    assert found.failure.startswith("InvariantError"), found.failure


def told(tally: Counter[str]) -> str:
    return "\n".join(f"{count:>8,}  {what}" for what, count in sorted(tally.items()))


def test_the_observer_objects_to_a_stale_token_and_to_a_gate_that_was_replaced() -> None:
    objections: list[str] = []
    book = DatacenterBook(
        "a", lambda holds, why: None if holds else objections.append(why), lambda: 0.0, JobSettings(), {}
    )
    submission = JobSubmission(job_id="j", workflows=(WorkflowSpec(name="w"),), target_datacenters=("a",), gate_epoch=3)
    rules: dict[str, Any] = {"at": 0.0, "by": "m", "job_id": "j"}
    ended = JobEnded(
        **rules,
        rule=Rule.GLOBAL_TIMEOUT,
        state=JobState.TIMED_OUT,
        reason="",
        gate_epoch=2,
        evidence={"fence_token": 1},
    )
    events = [
        LeaderElected(at=0.0, by="m", epoch=1, leader="m"),
        JobSubmitted(**rules, submission=submission, digest=""),
        LeaderElected(at=0.0, by="n", epoch=2, leader="n"),
        ended,
    ]
    for number, event in enumerate(events):
        epoch = 2 if number > 1 else 1
        book.take(Entry(number + 1, epoch, str(number), 0.0, (encode_event(event),)))
    assert objections[:2] == [
        "j in a obeyed token 1, its own is 2",
        "j in a obeyed a gate of epoch 2 after it had heard of 3",
    ]

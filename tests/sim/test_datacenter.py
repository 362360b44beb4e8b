"""The real managers in simulated datacenters: what was accepted ends, once, in time, whatever fails."""

from __future__ import annotations

import asyncio
import os
from typing import ClassVar

import pytest

from tenure.nodes.candidacy import Candidacy
from tenure.nodes.leader import Leader
from tenure.nodes.ledger import Ledger
from tenure.sim import Scenario, run_seeds
from tenure.sim.faults import FaultKind, FaultProfile
from tenure.sim.scenarios.datacenter import Datacenter

SOAK = os.environ.get("TENURE_SOAK") == "1"
CHUNK = 150
CHUNKS = 100 if SOAK else 4


def test_the_first_seeds_keep_every_promise() -> None:
    report = run_seeds(Datacenter, range(20))
    report.require_ok()
    assert report.faults > 30


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_more_seeds_keep_every_promise(chunk: int) -> None:
    report = run_seeds(Datacenter, range(chunk * CHUNK, (chunk + 1) * CHUNK))
    print(report.summary())
    report.require_ok()
    assert report.runs == CHUNK


@pytest.mark.slow
def test_deadlines_that_come_due_while_the_engine_is_away_are_kept() -> None:
    run_seeds(Outages, range(30)).require_ok()


@pytest.mark.parametrize("seed", [7, 105, 715])
def test_seeds_that_once_broke_a_promise_keep_it(seed: int) -> None:
    """7: a deposed ledger went on writing into a reloaded book. 105: an overtaken election ended the node. 715: a deadline that
    came due while the engine was away was forgotten."""
    run_seeds(Datacenter, [seed]).require_ok()


class ForgettingLeader(Leader):
    """Takes a deadline off its heap before it knows that it can act on it."""

    async def _check_deadlines(self) -> None:
        due = self._timers.pop_due(self._now())
        if due:
            await self._drain()
            for job_id in due:
                self._timers.set(job_id, 0.0)
            await super()._check_deadlines()


class AnsweringEarly(Ledger):
    """Answers before the append has returned."""

    async def _append(self, events: list[bytes]) -> int:
        for waiting in self._waiting:
            waiting.answer.cancel()
        writing = asyncio.create_task(super()._append(events))
        writing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self.seq + 1


class ForgettingCandidacy(Candidacy):
    leader_class: ClassVar[type[Leader]] = ForgettingLeader


class EarlyCandidacy(Candidacy):
    ledger_class: ClassVar[type[Ledger]] = AnsweringEarly


class Outages(Datacenter):
    """The engine is away while deadlines come due, often enough to matter in few runs."""

    faults = FaultProfile(
        kinds=(FaultKind.ENGINE_OUTAGE, FaultKind.ENGINE_REFUSES), most=8, until_s=24.0, duration_s=(0.3, 3.0)
    )


class ForgetsDeadlines(Outages):
    candidacy = ForgettingCandidacy


class AnswersEarly(Datacenter):
    candidacy = EarlyCandidacy


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "seeds"), [(ForgetsDeadlines, range(30)), (AnswersEarly, range(60))])
def test_a_broken_rule_is_found(scenario: type[Scenario], seeds: range) -> None:
    assert run_seeds(scenario, seeds).failures, f"{scenario.__name__} was not found"

"""Only the timeout strategies know who decides about a job's time; `tests/seeds/test_002_*` have what each decides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.jobs.desk import GATE, Desk
from tests.nodes.manager.harness import ManagerGroup, ask, run_group, submission

from tenure.control.messages.jobs import GetJob, Submit
from tenure.jobs.deadlines import NEVER
from tenure.jobs.states import JobState
from tenure.jobs.timeout import GateCoordinatedTimeout, LocalAuthorityTimeout, next_due, rules_for

SOURCES = Path(__file__).parents[2] / "src/tenure"


def test_no_other_code_asks_for_the_kind_of_strategy() -> None:
    named = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if re.search(r"StrategyType\.|(?<!def )\.strategy_type\b", path.read_text())
    }
    assert named == {"jobs/timeout.py"}


def test_the_rules_of_a_job_are_those_of_its_journal() -> None:
    desk = Desk()
    desk.submit("own")
    desk.submit("gated", gate_addr=GATE)
    own, gated = desk.book.job("own"), desk.book.job("gated")
    assert (rules_for(own), rules_for(gated)) == (LocalAuthorityTimeout, GateCoordinatedTimeout)
    assert LocalAuthorityTimeout.why_not_obey()
    assert not GateCoordinatedTimeout.why_not_obey()
    assert next_due(own, desk.settings) == next_due(gated, desk.settings)


def test_the_leader_of_a_datacenter_times_its_jobs_by_the_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy that never has anything due: no other clock of the leader ends the job."""

    async def story(group: ManagerGroup, *, ends: bool) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission(timeout_seconds=20.0)))
        for _ in range(60):
            group.clock.advance(1.0)
            await group.until(lambda: True)
        if ends:
            await group.until(lambda: manager.ledger.book.jobs["j-1"].state.terminal, 5)
        assert (await ask(manager, GetJob(job_id="j-1"))).state is (JobState.TIMED_OUT if ends else JobState.PENDING)

    run_group(lambda group: story(group, ends=True))
    monkeypatch.setattr(LocalAuthorityTimeout, "due", classmethod(lambda cls, *given: NEVER))
    run_group(lambda group: story(group, ends=False))

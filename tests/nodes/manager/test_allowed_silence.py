"""Silence that the work is allowed keeps its worker alive, and earns it nothing: the figures are the defaults (decision 0306).

Each story is also told with one rule broken, and must notice it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.changed import changed
from tests.nodes.cast import Cast
from tests.nodes.manager.harness import ask, submission
from tests.nodes.manager.live_datacenter import Datacenter, run

from tenure.control.messages.jobs import AskWhy, Submit
from tenure.control.messages.workers import AttemptReport
from tenure.health.deadlines import WorkerHealthManager
from tenure.health.node_states import WorkerHealthState
from tenure.health.signals import HealthConfig
from tenure.health.window import ProgressCounts, ProgressWindow
from tenure.nodes.fleet.member import FleetSettings
from tenure.nodes.worker.directives import Earning

STALL_S, HEALTHCHECK_S, DECLARED_S = 300.0, 30.0, 900.0


class SilentWork(Datacenter):
    """One worker with two slots. The attempt on one of them has shown a step, and is silent from then on."""

    async def begin(self, *, quiet_s: float = STALL_S) -> Cast:
        leadership = await self.lead("m-1")
        self.book, self.leader = leadership.ledger.book, leadership.leader
        await ask(self.managers["m-1:8470"], Submit(submission=submission("j-1", stuck_threshold=3_000)))
        cast = self.worker("w-1")
        cast.begin(steps=3, stall_s=STALL_S, quiet_s=quiet_s)
        self.quiet_s = quiet_s
        await self.passing(1)
        return cast

    async def silent(self, cast: Cast, seconds: int, then: Callable[[int], Any] = lambda second: None) -> None:
        """Lets the silence last, until its worker is evicted."""
        for second in range(1, seconds + 1):
            if not cast.running:
                return
            silent_s = float(second) if self.quiet_s == STALL_S else 0.0
            cast.step(steps=3, silent_s=silent_s, quiet_s=max(0.0, self.quiet_s - second))
            await self.passing(1)
            then(second)

    async def why(self) -> str:
        return str((await ask(self.managers["m-1:8470"], AskWhy(job_id="j-1"))).text)


async def asks_is_granted_and_lives(dc: SilentWork) -> None:
    """The worker asks in the last third of its deadline, gets document 000's first grant, then a denial, and lives to the end of the stall."""
    cast = await dc.begin()
    deadlines: dict[int, float] = {}
    took: dict[int, int | None] = {}

    def note(second: int) -> None:
        assert cast.evicted == []
        deadlines[second] = dc.leader.worker_reports.fleet.health.deadline("w-1")
        took[second] = cast.most

    began = dc.engine.now()
    await dc.silent(cast, int(STALL_S) - 2, note)
    assert cast.evicted == []
    text = await dc.why()
    assert "w-1 was granted 30 s (grant 1, 30 s in all): the first of a series needs no proof of progress" in text
    assert text.count("was granted") == 1
    assert text.count("was denied more time: No progress since last extension") == 1
    before, after = sorted(set(deadlines.values()))[-2:]
    assert after - before == pytest.approx(HEALTHCHECK_S)  # to the second
    asked = next(second for second, deadline in deadlines.items() if deadline == after)
    assert before - (began + asked) <= HEALTHCHECK_S / 3 + 1
    assert took[asked] is None  # what it was granted, it may use
    assert took[int(STALL_S) - 2] == 0  # after the denial it gets no new work
    cast.step(steps=9, silent_s=0.0, quiet_s=STALL_S)
    await dc.passing(3)
    assert cast.most is None  # it moved: all is as before
    assert cast.evicted == []


async def is_evicted_when_the_silence_has_lasted_too_long(dc: SilentWork) -> None:
    """Nobody ends the attempt at its stall. Its worker has one deadline more to do so, and is evicted."""
    cast = await dc.begin()
    lasted: list[int] = []
    await dc.silent(cast, int(STALL_S) + 200, lasted.append)
    assert len(cast.evicted) == 1
    assert STALL_S + HEALTHCHECK_S - 3 <= lasted[-1] <= STALL_S + HEALTHCHECK_S + 5


async def is_suspect_without_reports_whatever_it_declared(dc: SilentWork) -> None:
    """A worker that is killed in a declared silence of 900 s is evicted 30 s after its last report."""
    cast = await dc.begin(quiet_s=DECLARED_S + STALL_S)
    await dc.silent(cast, 100)
    assert cast.evicted == []
    [standing] = dc.leader.worker_reports.fleet.standings(dc.engine.now())
    assert standing.node.left_s <= HEALTHCHECK_S  # people are told so, too
    await dc.kill("w-1")
    killed = dc.clock.boottime()
    await dc.until(lambda: dc.book.state.workers["w-1"].verdict == "evict", seconds=60)
    assert HEALTHCHECK_S - 3 <= dc.clock.boottime() - killed <= HEALTHCHECK_S + 3


Story = Callable[[SilentWork], Any]
STORIES: list[Story] = [
    asks_is_granted_and_lives,
    is_evicted_when_the_silence_has_lasted_too_long,
    is_suspect_without_reports_whatever_it_declared,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_worker_with_silent_work(story: Story) -> None:
    run(story, SilentWork)


def silence_as_progress(window: ProgressWindow, now: float) -> ProgressCounts:
    found = sound_counts(window, now)
    return changed(found, advancing=found.advancing + found.silent, silent=0)


sound_counts = ProgressWindow.counts
Broken = tuple[Any, str, Any]
"""An owner, a name of it, and the broken thing that the name stands for."""
SILENCE_WITHOUT_REPORTS: Broken = (
    WorkerHealthManager,
    "_ends",
    lambda manager, worker: max(worker.deadline, worker.allowed_until),
)
MUTANTS: dict[str, tuple[Story, list[Broken]]] = {
    "silence counts as progress": (STORIES[0], [(ProgressWindow, "counts", silence_as_progress)]),
    "silence costs a life": (STORIES[0], [(WorkerHealthManager, "_ends", lambda manager, worker: worker.deadline)]),
    "a denial changes nothing": (STORIES[0], [(WorkerHealthManager, "without_excuse", lambda manager, state: state)]),
    "silence is well": (STORIES[0], [(WorkerHealthState, "proven", property(lambda state: True))]),
    "nobody asks": (STORIES[0], [(Earning, "_may_ask", lambda earning, view, now: False)]),
    "each report renews the silence": (
        STORIES[1],
        [(AttemptReport, "allowed_silence_s", property(lambda one: STALL_S))],
    ),
    "people are told the whole silence": (STORIES[2], [SILENCE_WITHOUT_REPORTS]),
    # The deadline and the liveness timeout each end such a worker, so both have to be broken.
    "a declared silence excuses its supervisor": (
        STORIES[2],
        [
            SILENCE_WITHOUT_REPORTS,
            (FleetSettings, "health", property(lambda settings: HealthConfig(liveness_timeout_s=DECLARED_S))),
        ],
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    story, rules = MUTANTS[mutant]
    for owner, name, broken in rules:
        monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(story, SilentWork)

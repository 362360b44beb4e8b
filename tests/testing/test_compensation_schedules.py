"""Compensations while workers and leaders die at any moment: what was registered runs, the last first, and nothing runs again after it was recorded.

Each schedule is drawn from its seed. A rule that somebody forgot (a mutant) must be found within the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tenure import current, workflow
from tenure.jobs import endings
from tenure.jobs.model import JobInfo
from tenure.jobs.states import Undoes
from tenure.nodes.manager import ended_work
from tenure.randomness import Random
from tenure.testing import TestDatacenter
from tenure.work.compensations import Compensation, Compensations
from tenure.work.kept_compensations import KeptCompensations

SEEDS = range(8)
registered: list[str] = []
"""Those for which `ctx.compensate` has returned."""
recorded: set[str] = set()
"""Those that somebody was told are recorded as run."""
ran: list[str] = []
broken: list[str] = []
"""The promises that were not kept."""


def undo(what: str) -> None:
    if what in recorded:
        broken.append(f"{what} ran again after it was recorded")
    ran.append(what)
    current().pause(1.0, "undoing")  # type: ignore[attr-defined]


@workflow(max_attempts=3, stall=60)
def acts(ctx: Any, pauses: list[float]) -> None:
    for place, pause in enumerate(pauses):
        what = f"{place}.{ctx.attempt}.{ctx.fence.delivery}"
        if place % 2:  # the others are done again by a later attempt, and both have to be undone
            what = ctx.step("act", str, what, key=str(place))
        ctx.compensate(undo, what, key=str(place))
        if what not in registered:
            registered.append(what)
        ctx.pause(pause, "acting")
    ctx.wait_event("never")


def play(seed: int) -> list[str]:
    """Plays a schedule. Returns the promises that were not kept."""
    for noted in (registered, recorded, ran, broken):
        noted.clear()
    random = Random(f"compensations/{seed}")
    with TestDatacenter(seed=seed) as datacenter:
        job = datacenter.submit(acts, pauses=[random.uniform(0.5, 3.0) for _ in range(4)], job_id="trip")
        faults: list[Callable[[], object]] = [datacenter.crash_worker, datacenter.crash_manager]
        ends = [(random.uniform(0.0, 14.0), partial(job.cancel, "enough"))]
        for at, act in sorted(
            ends + [(random.uniform(0.0, 22.0), random.choice(faults)) for _ in range(3)], key=lambda one: one[0]
        ):
            datacenter.advance(seconds=max(0.0, at - (datacenter.now - started(datacenter))))
            act()
        datacenter.advance(minutes=15)
        if not job.status().ended:
            broken.append("it did not end")
    missing = [what for what in registered if what not in ran]
    firsts = list(dict.fromkeys(ran))
    wanted = sorted(firsts, key=lambda what: -registered.index(what) if what in registered else 1)
    if missing:
        broken.append(f"never undone: {missing}")
    if [one for one in firsts if one in registered] != [one for one in wanted if one in registered]:
        broken.append(f"undone in this order: {ran}, registered in this: {registered}")
    return list(broken)


def started(datacenter: TestDatacenter) -> float:
    return datacenter.manager.ledger.book.jobs["trip"].job.submitted_at - datacenter.manager.now() + datacenter.now


def noting(done: Callable[..., None]) -> Callable[..., None]:
    def noted(self: KeptCompensations, message: Any, job_id: str, workflow_id: str, place: int) -> None:
        done(self, message, job_id, workflow_id, place)
        recorded.add(ran[-1])

    return noted


@pytest.fixture(autouse=True)
def _observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptCompensations, "done", noting(KeptCompensations.done))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_registered_runs_the_last_first_and_not_again_once_it_was_recorded(seed: int) -> None:
    assert play(seed) == []


def forgets_what_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptCompensations, "done", noting(lambda self, message, *_: message.extend_visibility(0)))


def believes_only_what_attempts_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_have(info: JobInfo) -> bool:
        said = any(one.undoes is Undoes.REGISTERED for one in info.workflows.values())
        return said or bool(info.job.submission.undo_of)

    for module in (endings, ended_work):
        monkeypatch.setattr(module, "may_have_compensations", may_have)


def runs_them_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Compensations.left

    def left(self: Compensations) -> list[tuple[int, Compensation]]:
        return plain(self)[::-1]

    monkeypatch.setattr(Compensations, "left", left)


def begins_its_list_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Compensations.opened

    def opened(self: Compensations) -> list[Compensation]:
        if self._list is None and not self._handle.delivery.item.undo_of:
            self._list = []
        return plain(self)

    monkeypatch.setattr(Compensations, "opened", opened)


@pytest.mark.parametrize(
    "mutant", [forgets_what_was_run, believes_only_what_attempts_said, runs_them_as_they_came, begins_its_list_anew]
)
def test_a_forgotten_rule_is_found_within_these_seeds(monkeypatch: pytest.MonkeyPatch, mutant: Any) -> None:
    mutant(monkeypatch)
    assert any(play(seed) for seed in SEEDS)

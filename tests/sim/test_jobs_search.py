"""Every state of the small world keeps every promise, and each ruling is needed."""

from __future__ import annotations

import time

import pytest
from tests.soak import sized
from tests.worlds.jobs.cast import Cast
from tests.worlds.jobs.liveness import Liveness
from tests.worlds.jobs.mutants import MUTANTS
from tests.worlds.jobs.scene import DATACENTERS, FIRST_EPOCH, HIGHEST_EPOCH, JOB, Letter
from tests.worlds.jobs.search import counterexample, search
from tests.worlds.jobs.small_world import SmallWorld

from tenure.jobs.decisions import Rules
from tenure.jobs.messages import JobProgressReport, JobStatusCorrection

STEPS = sized("steps from the start of the small world, in all orders", short=10, long=1_000)
"""All 24 are in `make soak`. The longest story that harm needs without a ruling has 6 (`MUTANTS`)."""


@pytest.mark.slow
def test_every_state_keeps_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.process_time()
    found = search(steps=STEPS)
    spent = time.process_time() - begun
    with capsys.disabled():
        print(f"\n{found}; {spent:.1f} s of CPU")
    assert not found.broken, str(found)
    assert found.states > 100_000
    # It really went through what it is about: replaced leaders and gates, and more messages at once than eight.
    assert found.most_sent > 8


@pytest.mark.slow
def test_a_users_cancel_at_any_moment_breaks_nothing_either(capsys: pytest.CaptureFixture[str]) -> None:
    found = search(leaders=1, cancel=True)
    with capsys.disabled():
        print(f"\nwith cancels: {found}")
    assert not found.broken, str(found)


HARM = {
    "echoed token": "it always settles",
    "final decision": "no accepted decision is forgotten",
    "write-once terminal": "none ends twice",
    "stale report ignored": "no stale report is believed",
    "re-report after transfer": "it always settles: a reported timeout is decided",
    "stale token refused": "no stale decision is obeyed: it echoed token 1",
    "stale gate refused": "no stale decision is obeyed: gate epoch 2",
}


@pytest.mark.parametrize("ruling", MUTANTS)
def test_without_a_ruling_the_harm_is_found_and_told(ruling: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = counterexample(**MUTANTS[ruling])
    with capsys.disabled():
        print(f"\nWITHOUT the ruling on {ruling}: {found}")
    assert found.broken.startswith(HARM[ruling])
    assert 0 < len(found.story) < STEPS / 1.5


def test_the_mirror_of_a_mirror_is_the_world_itself() -> None:
    world = SmallWorld(Cast(Rules()))
    layer = [world.start()]
    for _ in range(4):
        layer = [after for state in layer for _, after, _ in world.moves(state)]
        for state in layer:
            assert world.mirrored(world.mirrored(state)) == state


def test_a_step_in_the_mirror_is_the_mirror_of_the_step() -> None:
    world = SmallWorld(Cast(Rules()))
    layer = {world.start()}
    for _ in range(3):
        for state in layer:
            there = {world.mirrored(after) for _, after, _ in world.moves(state)}
            here = {after for _, after, _ in world.moves(world.mirrored(state))}
            assert there == here
        layer = {after for state in layer for _, after, _ in world.moves(state)}


def test_gates_reach_no_epoch_beyond_what_the_search_reckons_with() -> None:
    assert FIRST_EPOCH < HIGHEST_EPOCH
    cast = Cast(Rules())
    world = SmallWorld(cast)
    layer = {world.start()}
    for _ in range(6):
        layer = {after for state in layer for _, after, _ in world.moves(state)}
    assert max(view.epoch for view in cast.gate_views) <= HIGHEST_EPOCH
    assert len(DATACENTERS) == 2


def test_a_correction_and_a_report_of_the_same_state_are_folded_alike_by_every_gate() -> None:
    """Why the full search may leave corrections of known jobs out: the report says the same."""
    cast = Cast(Rules())
    world = SmallWorld(cast, leaders=2)
    liveness = Liveness(world)
    reports = {
        (letter.datacenter, said.status, said.fence_token, said.gate_epoch, said.ended_by_gate): number
        for number, letter in enumerate(cast.letters)
        if isinstance(said := letter.message, JobProgressReport)
    }
    compared = 0
    for (datacenter, status, token, epoch, by_gate), report in reports.items():
        correction = cast.intern_letter(
            Letter(
                datacenter,
                True,
                JobStatusCorrection(
                    job_id=JOB,
                    datacenter=datacenter,
                    manager_id="m",
                    status=status,
                    fence_token=token,
                    gate_epoch=epoch,
                    accepted=False,
                    ended_by_gate=by_gate,
                ),
            )
        )
        for gate, tick, _ in liveness.following[2]:
            if not cast.gate_views[gate].known:
                continue  # there, a correction is nothing, and a report rebuilds the job
            by_report = cast.deliver_to_gate(gate, report, tick).state
            by_correction = cast.deliver_to_gate(gate, correction, tick).state
            assert by_correction in (by_report, gate), (datacenter, status, token, epoch)
            compared += 1
    assert compared > 5_000

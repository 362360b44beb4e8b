from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.worlds.leadership.scenario import Leadership

from tenure.errors import ConfigurationError, InvariantError
from tenure.randomness import Random
from tenure.sim import Fault, FaultKind, FaultProfile, Host, Scenario, World, run_one, run_seeds, schedule, story, table
from tenure.sim.__main__ import main
from tenure.sim.faults import SURVIVABLE
from tenure.sim.runner import shrink

ROOT = Path(__file__).resolve().parents[2]
LEADERSHIP = "tests/worlds/leadership/scenario.py:Leadership"


async def idle(host: Host) -> None:
    while True:
        await asyncio.sleep(1)
        host.record("ticks")


class Fragile(Scenario):
    """Breaks when a node crashes while another one is stalled."""

    duration_s = 30.0
    faults = FaultProfile(most=10, until_s=20.0, duration_s=(1.0, 8.0))

    def setup(self, world: World) -> None:
        for name in ("a", "b", "c"):
            world.node(name, idle).start()

    def check(self, world: World) -> None:
        down = [node.name for node in world.nodes.values() if not node.running]
        stalled = [node.name for node in world.nodes.values() if node.stalled]
        self.require(not (down and stalled), "a node is down while another is stalled")


class Quiet(Fragile):
    def check(self, world: World) -> None: ...


# Faults


def test_a_schedule_is_decided_by_its_random_numbers_and_sorted_by_time() -> None:
    profile = FaultProfile(most=20, until_s=50.0)
    once = profile.generate(Random("1"), ["a", "b", "c"])
    assert once == profile.generate(Random("1"), ["a", "b", "c"])
    assert once != profile.generate(Random("2"), ["a", "b", "c"])
    assert [fault.at_s for fault in once] == sorted(fault.at_s for fault in once)
    assert all(fault.at_s < 50 for fault in once)


def test_every_kind_of_fault_comes_up_begins_and_ends_without_a_trace_left() -> None:
    seen = set()
    for seed in range(200):
        outcome = run_one(Quiet, seed)
        assert outcome.ok, outcome.details
        seen |= {fault.kind for fault in outcome.faults}
    assert seen == set(SURVIVABLE)


@pytest.mark.parametrize("kind", list(FaultKind))
def test_a_fault_leaves_the_world_as_it_was(kind: FaultKind) -> None:
    with World() as world:
        for name in ("a", "b"):
            world.node(name, idle).start()
        profile = FaultProfile(kinds=[kind], most=1)
        (fault,) = profile.generate(Random("x"), ["a", "b"])
        schedule(world, [fault, fault])  # two at once must not undo each other
        world.run_for(fault.at_s + 0.001)
        assert "begins" in "".join(world.trace.lines())
        world.run_for(fault.duration_s + 1)
        assert world.network.link("a", "b") == world.network.default
        assert world.network.link("a", "engine") == world.network.default
        assert world.network.reachable("a", "b")
        assert world.network.reachable("b", "engine")
        assert world.backend.outages == 0
        assert world.backend.late == []
        for node in world.nodes.values():
            assert node.running
            assert not node.stalled
            assert node.clock.rate == 1.0


def test_faults_are_shown_as_a_table() -> None:
    shown = table([Fault(1.5, FaultKind.CRASH, ("a",), 2.0), Fault(3.0, FaultKind.ENGINE_OUTAGE)], numbers=[4, 7])
    assert shown.splitlines() == [
        "    4      1.500 s  crash           a                    for   2.000 s  amount 1",
        "    7      3.000 s  engine-outage   all                  for   1.000 s  amount 1",
    ]
    assert table([]) == "  (no faults)"


# Shrinking


def test_shrinking_finds_the_two_that_are_needed_among_many() -> None:
    tried: list[tuple[int, ...]] = []

    def fails(chosen: tuple[int, ...]) -> bool:
        tried.append(chosen)
        return {3, 41} <= set(chosen)

    assert shrink(range(64), fails) == (3, 41)
    assert len(tried) < 120


@pytest.mark.parametrize("needed", [(), (0,), (9,), (0, 9), (2, 3, 4), tuple(range(10))])
def test_shrinking_ends_at_a_schedule_of_which_nothing_can_be_left_out(needed: tuple[int, ...]) -> None:
    assert shrink(range(10), lambda chosen: set(needed) <= set(chosen)) == needed


def test_shrinking_stops_when_its_budget_is_spent() -> None:
    tries = 0

    def fails(chosen: tuple[int, ...]) -> bool:
        nonlocal tries
        tries += 1
        return len(chosen) >= 100

    shrink(range(200), fails, budget=30)
    assert tries < 500


# Running


def test_a_failing_run_says_its_seed_its_fewest_faults_and_how_to_replay_it() -> None:
    report = run_seeds(Fragile, range(200))
    (failure,) = report.failures
    kinds = {failure.faults[number].kind for number in failure.chosen}
    assert len(failure.chosen) == 2
    assert kinds & {FaultKind.CRASH, FaultKind.REBOOT}
    assert kinds & {FaultKind.STALL, FaultKind.SUSPEND}
    told = story(failure)
    assert f"seed {failure.seed}" in told
    assert "a node is down while another is stalled" in told
    numbers = ",".join(map(str, failure.chosen))
    command = f"python -m tenure.sim replay tests/sim/test_scenario.py:Fragile --seed {failure.seed} --faults {numbers}"
    assert f"replay: {command}" in told
    with pytest.raises(InvariantError, match="a node is down"):
        report.require_ok()


def test_the_replay_command_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    (failure,) = run_seeds(Fragile, range(200)).failures
    command = failure.command.split()
    assert command[0] == "python"
    done = subprocess.run(
        [sys.executable, *command[1:]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert failure.failure in done.stdout


def test_the_trace_of_a_failure_is_in_the_file_that_the_story_names() -> None:
    (failure,) = run_seeds(Fragile, range(200)).failures
    path = next(line.split()[1] for line in story(failure).splitlines() if line.startswith("trace:"))
    written = Path(path).read_text()
    assert failure.command in written
    assert failure.trace[-1] in written
    assert "Traceback" in written


@pytest.mark.slow
def test_seeds_run_on_several_cores_with_the_same_result() -> None:
    alone, together = run_seeds(Leadership, range(130)), run_seeds(Leadership, range(130), jobs=2)
    assert alone.summary() == together.summary()


@pytest.mark.slow
def test_a_failure_on_another_core_comes_home() -> None:
    (failure,) = run_seeds(Fragile, range(120), jobs=2).failures
    assert "a node is down while another is stalled" in failure.failure


def test_no_fault_at_all_is_a_choice_too() -> None:
    outcome = run_one(Fragile, 3, only=[])
    assert outcome.ok
    assert outcome.command.endswith("--faults none") or not outcome.faults


def test_an_error_in_setup_is_a_failure_of_that_seed() -> None:
    class Bad(Quiet):
        def setup(self, world: World) -> None:
            raise RuntimeError("no")

    outcome = run_one(Bad, 0)
    assert outcome.failure == "RuntimeError: no"
    assert outcome.chosen == ()


def test_faults_that_outlast_the_run_are_refused() -> None:
    class Short(Quiet):
        duration_s = 5.0

    with pytest.raises(ConfigurationError, match="Lengthen duration_s"):
        run_one(Short, 0)


# The command line


def test_the_command_line_lists_runs_replays_and_hashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "tests/worlds/leadership/scenario.py"]) == 0
    assert capsys.readouterr().out.startswith(f"{LEADERSHIP}  ")
    assert main(["list", "tests.worlds.leadership.scenario"]) == 0
    assert "tests.worlds.leadership.scenario:Leadership" in capsys.readouterr().out
    assert main(["run", LEADERSHIP, "--seeds", "0:5", "--jobs", "1"]) == 0
    assert "5 seeds" in capsys.readouterr().out
    assert main(["replay", LEADERSHIP, "--seed", "3", "--trace"]) == 0
    shown = capsys.readouterr().out
    assert "every promise held" in shown
    assert "leads epoch 1" in shown
    assert main(["hash", LEADERSHIP, "--seeds", "3"]) == 0
    digest = capsys.readouterr().out.split()[1]
    assert f"trace hash {digest}" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nonsense"], "'nonsense' names no scenario"),
        (["run", "tenure.sim.world:World"], "is no Scenario"),
        (["run", "nowhere.py:X"], "there is no file"),
        (["run", "nowhere.at_all:X"], "Give the path of a file"),
        (["run", LEADERSHIP, "--seeds", "x"], "FROM:TO"),
    ],
)
def test_a_wrong_command_says_what_is_right(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err

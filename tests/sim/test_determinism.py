"""One seed, one run: in one process, in another with another hash seed, and on every Python that can be found."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tools.pythons import PROMISED, interpreter

from tenure.sim import Scenario, find, run_one

ROOT = Path(__file__).resolve().parents[2]
CHATTER = str(ROOT / "tests" / "sim" / "chatter.py") + ":Chatter"
LEADERSHIP = "tests/worlds/leadership/scenario.py:Leadership"
DATACENTER = "tests/worlds/datacenter/scenario.py:Datacenter"
GATES = "tests/worlds/gates/scenario.py:Gates"


PACKAGES = ("msgspec", "h11")


@cache
def packages(version: str) -> tuple[Path | None, str]:
    """A folder with the packages that nodes need, for a Python of this version; or why there is none.

    Our own pip fetches the wheel for the other version, so that no environment has to be made for it.
    """
    folder = ROOT / ".tenure" / "pythons" / version
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:  # several test processes may come at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((folder / package).exists() for package in PACKAGES):
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--retries",
                "1",
            ]
            command += ["--target", str(folder), "--python-version", version, "--only-binary", ":all:", "--no-deps"]
            command += ["-c", str(ROOT / "requirements" / "constraints.txt"), *PACKAGES]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            if done.returncode != 0:
                return None, (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return folder, ""


def python_with_packages(version: str) -> tuple[str, Path | None]:
    """A Python of this version, and the folder that it needs beside its own packages, if any."""
    if (python := interpreter(version, ", ".join(PACKAGES))) is not None:
        return python, None
    if (python := interpreter(version, "sys")) is None:
        pytest.skip(f"no Python {version} was found to compare the simulator's traces with")
    more, why = packages(version)
    if more is None:
        pytest.skip(
            f"no {PACKAGES} for Python {version}, to compare traces of election, journal and datacenter with: {why}"
        )
    return python, more


def hashes(python: str, scenario: str, seeds: str, hash_seed: int, more: Path | None = None) -> list[str]:
    path = str(ROOT / "src") + (f":{more}" if more else "")
    done = subprocess.run(
        [python, "-W", "error", "-m", "tenure.sim", "hash", scenario, "--seeds", seeds],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@cache
def expected_traces(scenario: str, seeds: int) -> list[str]:
    """Plays them here once, for all versions to compare with."""
    return here(find(scenario), range(seeds))


def here(scenario: type[Scenario], seeds: range) -> list[str]:
    found = [(seed, run_one(scenario, seed)) for seed in seeds]
    return [f"{seed} {outcome.digest} {outcome.steps} {outcome.failure}".strip() for seed, outcome in found]


@pytest.mark.parametrize("scenario", [CHATTER, LEADERSHIP])
def test_a_seed_gives_the_same_trace_twice_and_another_seed_another_one(scenario: str) -> None:
    once, again = here(find(scenario), range(5)), here(find(scenario), range(5))
    assert once == again
    assert len({line.split()[1] for line in once}) == 5


def test_what_went_before_in_the_process_changes_nothing() -> None:
    alone = here(find(LEADERSHIP), range(7, 8))
    here(find(CHATTER), range(3))
    assert here(find(LEADERSHIP), range(5, 8))[2:] == alone


@pytest.mark.slow
@pytest.mark.parametrize("version", PROMISED)
def test_every_python_gives_the_same_traces_with_any_hash_seed(version: str) -> None:
    python = interpreter(version, "sys")
    if python is None:
        pytest.skip(f"no Python {version} was found to compare the simulator's traces with")
    expected = expected_traces(CHATTER, 8)
    assert not any(len(line.split()) > 3 for line in expected), "the scenario itself failed"
    assert hashes(python, CHATTER, "0:8", hash_seed=int(version.replace(".", ""))) == expected


@pytest.mark.slow
@pytest.mark.parametrize("version", PROMISED)
def test_every_python_with_our_packages_elects_the_same_leaders(version: str) -> None:
    python, more = python_with_packages(version)
    expected = expected_traces(LEADERSHIP, 15)
    assert hashes(python, LEADERSHIP, "0:15", int(version.replace(".", "")), more) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "seeds"), [(DATACENTER, 6), (GATES, 2)])
@pytest.mark.parametrize("version", PROMISED)
def test_every_python_with_our_packages_sees_the_same_datacenters(version: str, scenario: str, seeds: int) -> None:
    """The traces; how many callbacks asyncio needs for them differs between its versions."""
    python, more = python_with_packages(version)
    expected = [line.split()[:2] for line in expected_traces(scenario, seeds)]
    found = hashes(python, scenario, f"0:{seeds}", int(version.replace(".", "")), more)
    assert [line.split()[:2] for line in found] == expected

"""Time that is earned past a job's deadline, with real processes: two gates, and a datacenter with two managers.

Every duration but two is the default: terms are 3 s, so that a change of leaders fits into a test, and `grace` is the shortest that a job may
have, 9 s. `tests/sim/test_earned_time.py` tells the same stories with 30 s and terms of 10 s, in virtual time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.demo.cluster import Cluster, Tempo
from tests.patience import wait_until
from tests.process.gates.play import leading
from tests.process.stillness import Stillness

from tenure.control.messages.jobs import JobView
from tenure.jobs import JobState

APP = str(Path(__file__).parent / "earned_app.py")
GRACE_S = 9.0
GRANTS = ("9 s", "4.5 s", "2.2 s", "1.1 s", "0.6 s")
SURE = 3
TIMEOUT_S = 10.0
LATE_S = 60.0
"""How much later than its time a job may end on a busy machine: 0.04 s on a quiet one, 3.7 s were seen on one that had six of these tests at once, because
a gate waits for a report that is younger than the deadline. That it is never earlier holds everywhere. The exact bound is held in virtual time
(`tests/sim/test_earned_time.py`).

A gate that dies must not add to it: its datacenter asks for the next one each second (`gate_reports.QUICK_TRIES`)."""


class DefaultTimes(Tempo):
    """Nothing but the term is set."""

    def manager(self) -> list[str]:
        return ["--term", "3"]

    gate = manager


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        folder = tmp_path_factory.mktemp("earned")
        with Cluster(
            folder, APP, datacenters=("a",), managers=2, gates=2, slots=8, tempo=DefaultTimes(), lease_s=60.0
        ) as world:
            yield world


@pytest.fixture
def asked(world: Cluster) -> Iterator[dict[str, Any]]:
    """Clients of the gates, and of the datacenter's managers."""
    with world.client() as gate, world.client_in("a") as local:
        wait_until(lambda: len(local.nodes().workers) == 1, "the worker reports")
        yield {"gate": gate, "local": local}


def submit(client: Any, function: str, job_id: str, timeout_s: float = TIMEOUT_S, **arguments: Any) -> float:
    client.submit(function, arguments, job_id=job_id, timeout=timeout_s, grace=GRACE_S, max_attempts=1)
    return time.monotonic()


def ended(client: Any, job_id: str) -> JobView:
    wait_until(lambda: client.job(job_id).ended, f"{job_id} ends")
    view: JobView = client.job(job_id)
    return view


def took(view: JobView) -> float:
    return view.ended_at - view.submitted_at


def earned_s(why: str) -> float:
    """Returns the seconds that the job was granted, one grant after the other, each half of the last: all five, 1.9375 x the first, on a quiet machine.

    The fourth is asked for within two seconds, the fifth within one: on a busy machine a worker may come too late for them, and then they are not given.
    """
    count = why.count("the job was granted")
    assert SURE <= count <= len(GRANTS), why
    for number, seconds in enumerate(GRANTS[:count], start=1):
        assert f"the job was granted {seconds} past its deadline (grant {number} of 5" in why
    return GRACE_S * (2 - 2.0 ** (1 - count))


def ends_in_time(view: JobView, expected_s: float, machine: Stillness) -> None:
    """Neither a second earlier than it may, nor much later."""
    assert -0.1 <= took(view) - expected_s <= LATE_S or machine.excuses(0.5), took(view)


@pytest.mark.slow
def test_a_job_that_advances_is_granted_time_and_one_that_only_seems_to_is_not(asked: dict[str, Any]) -> None:
    with Stillness() as machine:
        for where, client in asked.items():
            submit(client, "only_beats", f"{where}-beats")
            submit(client, "stays_at_item_7", f"{where}-stays")
            submit(client, "counts", f"{where}-counts", seconds=TIMEOUT_S + 8)
        for where, client in asked.items():
            stays, counts, beats = (ended(client, f"{where}-{name}") for name in ("stays", "counts", "beats"))
            # Neither fraction nor item rose: it is denied, and ends at its deadline.
            why = asked["local"].why(f"{where}-stays").text
            assert stays.state is JobState.TIMED_OUT, why
            assert "the job was granted" not in why
            assert "was denied it: No progress since its deadline came near" in why
            ends_in_time(stays, TIMEOUT_S, machine)
            # It needed 8 s more, and earned them.
            why = asked["local"].why(f"{where}-counts").text
            assert counts.state is JobState.COMPLETED, why
            assert f"the job was granted {GRANTS[0]} past its deadline (grant 1 of 5" in why
            # Work that only beats is judged by its beats; all that it can earn is 1.9375 x the first grant.
            why = asked["local"].why(f"{where}-beats").text
            assert beats.state is JobState.TIMED_OUT, why
            ends_in_time(beats, TIMEOUT_S + earned_s(why), machine)


@pytest.mark.slow
def test_neither_a_dead_leader_nor_a_dead_gate_costs_a_job_its_grants_or_gives_it_more(
    world: Cluster, asked: dict[str, Any]
) -> None:
    """The leader dies 2 s before the deadline of two jobs, and the leading gate 2 s before that of a third, while those earn their last."""
    late_s = TIMEOUT_S + 12.0
    leader, gate = leading(lambda: world.leading_manager("a")), leading(world.leading_gate)
    with Stillness() as machine:
        begun = submit(asked["local"], "only_beats", "local-survivor")
        submit(asked["gate"], "only_beats", "gate-survivor")
        submit(asked["gate"], "only_beats", "gate-late", late_s)
        time.sleep(max(0.0, begun + TIMEOUT_S - 2 - time.monotonic()))
        world.managers["a"][leader].kill()
        time.sleep(max(0.0, begun + late_s - 2 - time.monotonic()))
        world.gates[gate].kill()
        found = {name: ended(asked["gate"], name) for name in ("gate-survivor", "gate-late")}
        found["local-survivor"] = ended(asked["local"], "local-survivor")
    for name, view in found.items():
        why = asked["local"].why(name).text
        assert view.state is JobState.TIMED_OUT, why
        ends_in_time(view, (late_s if name == "gate-late" else TIMEOUT_S) + earned_s(why), machine)
    assert leading(lambda: world.leading_manager("a")) != leader
    assert leading(world.leading_gate) != gate

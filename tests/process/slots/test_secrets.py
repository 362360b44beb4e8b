"""The secrets of a worker are out of reach for the code that its slots run, and what the worker does for its slots is as before."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.process.slots.conftest import Desk

from tenure.work.delivery import Cause

SPY = str(Path(__file__).parent / "spy_app.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux can hide the memory of a process"),
]


def as_in_a_container() -> tuple[str, ...]:
    """Returns the words that start a worker without the rights that let root read every process. Containers have none of them."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("this is root, and there is no setpriv")
    return (
        "setpriv",
        "--bounding-set=-sys_ptrace,-perfmon,-sys_admin",
        "--inh-caps=-sys_ptrace,-perfmon,-sys_admin",
        "--",
    )


def start(desk: Desk, *options: str) -> None:
    secrets = {"TENURE_TOKEN": "hush-token", "TENURE_GATE_ENGINE": "postgresql://u:hush-gate@h/d"}
    desk.start("--slots", "1", *options, modules=(SPY,), below=as_in_a_container(), **secrets)


def spied(desk: Desk) -> dict[str, Any]:
    desk.send("spy")
    return msgspec.json.decode(desk.answer().result, type=dict[str, Any])


def test_the_code_of_a_workflow_finds_no_secret_of_its_worker(desk: Desk) -> None:
    start(desk, "--token", "hush-shown", "--grace", "0.5")
    said = spied(desk)
    assert said["found"] == []
    assert set(said["refused"]) == {"environment", "memory", "memory file", "open files"}
    # The worker still takes the stacks of its slots, which are processes as any other.
    desk.send("hangs", managed=True)
    failure = desk.answer().failure
    assert failure is not None
    assert (failure.cause, failure.evidence["place"].endswith(", in hangs")) == (Cause.STALL, True)


def test_a_worker_that_may_be_debugged_says_what_that_costs(desk: Desk) -> None:
    start(desk, "--debuggable")
    assert {"environment", "memory"} <= set(spied(desk)["found"])

"""Agents in real slot processes: one is killed with kill -9, one hangs; both are finished by the next attempt from their sessions."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.slots.conftest import Desk

ROOT = Path(__file__).parents[3]
APP = str(Path(__file__).with_name("agents_app.py"))


def lines(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.slow
def test_agents_in_slots_that_are_killed_or_hang_are_resumed_from_their_sessions_and_finished(
    desk: Desk, tmp_path: Path
) -> None:
    worker = desk.start("--slots", "2", "--grace", "0.3", modules=(APP,), PYTHONPATH=f"{ROOT / 'src'}:{ROOT}")
    logs = {name: tmp_path / name for name in ("killed_agent", "hung_agent")}
    for name, log in logs.items():
        desk.send(name, log=str(log))
    wait_until(lambda: len(lines(logs["killed_agent"])) == 3, worker.said)
    os.kill(int(lines(logs["killed_agent"])[2][2]), signal.SIGKILL)
    answers = {answer.workflow: answer for answer in (desk.answer(), desk.answer())}
    for name, log in logs.items():
        answer = answers[name]
        assert answer.attempt == 2, name
        assert answer.ok, worker.said()
        assert (answer.value["output"], answer.value["tool_calls"]) == ("done", 5)
        assert answer.value["tools"]["step"]["calls"] == 5, "what the first attempt did counts"
        # The step that was cut off is made again; those before it are not. (A starved machine may end the hung one a step too early.)
        first, second = ([int(n) for attempt, n, _ in lines(log) if attempt == which] for which in "12")
        assert first == list(range(len(first)))
        assert second == list(range(second[0], 5))
        assert second[0] in (first[-1], first[-1] + 1), "resumed where the first attempt was cut off"
        assert name == "hung_agent" or (first[-1], second[0]) == (2, 2)
    killed = lines(logs["killed_agent"])
    assert killed[2][2] != killed[3][2], "another process went on"
    assert worker.end() == 0

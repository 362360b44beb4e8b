"""`python -m tenure.demo`, piped: the story comes out as promised."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_steady_job_is_delivered_once_and_the_hung_and_the_killed_one_twice() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tenure.demo", "beats"],
        capture_output=True,
        text=True,
        timeout=250,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout  # piped: no colours, no cursor movements
    assert "its watchdog ended the process" in ended.stdout
    assert "killed: kill -9" in ended.stdout
    assert "One delivery of the steady job, two of the others, nothing left in the queue." in ended.stdout


def test_an_unknown_story_is_refused_with_those_that_there_are() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tenure.demo", "fairy-tale"], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 2
    assert "beats" in ended.stderr

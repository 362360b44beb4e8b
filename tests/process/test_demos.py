"""`make demo` and `tenure demo`, piped: each story comes out as promised. `bench_answering` measures how long the first one takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE_TREE = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}


@pytest.mark.slow
def test_every_job_of_the_datacenter_ends_as_it_should() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.demo"], capture_output=True, text=True, timeout=500, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout  # piped: no colours, no cursor movements
    assert "each job ended once, and as it should" in ended.stdout
    assert "job hung: completed" in ended.stdout  # the closing `why`


def test_an_unknown_story_is_refused_with_those_that_there_are() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.demo", "fairy-tale"], capture_output=True, text=True, timeout=180
    )
    assert ended.returncode == 2
    assert "datacenter, world" in ended.stderr


def test_the_demo_of_the_installed_package_survives_its_crash_and_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tenure", "demo"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=500, stdin=subprocess.DEVNULL, env=SOURCE_TREE
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert "it returned 50" in ended.stdout
    assert "attempt 1, failed on" in ended.stdout
    assert "SIGKILL" in ended.stdout
    assert "attempt 2, completed on" in ended.stdout
    assert list(tmp_path.iterdir()) == []  # it worked in a temporary folder of its own

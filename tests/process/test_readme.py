"""The README's code, run as it is printed: a newcomer's first two minutes, the code people write, and a worker by itself."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parent.parent.parent / "README.md"
TENURE = [sys.executable, "-m", "tenure"]
STAND_INS = """
import asyncio
from types import SimpleNamespace

frames = lambda path: range(4)
work = lambda frame: frame

async def hang():
    await asyncio.sleep(10**9)

async def plan(pr):
    return SimpleNamespace(steps=[SimpleNamespace(run=hang, state=1)], summary="fine")

llm = SimpleNamespace(plan=plan)
"""
"""What the printed code leaves to its reader: frames to work on, and a model whose plan hangs."""


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def lines(pattern: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(rf"^    tenure ({pattern})$", README.read_text(), re.MULTILINE)]


@pytest.fixture(autouse=True)
def _source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.delenv("TENURE_ENGINE", raising=False)


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """`tenure dev app.py` as printed, on a free port."""
    (tmp_path / "app.py").write_text(blocks()[1])
    [line] = lines(r"dev app\.py")
    with (tmp_path / "dev.log").open("wb") as log:
        dev = subprocess.Popen(
            [*TENURE, *line, "--port", "0"], cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
        )
    try:
        begun = time.monotonic()
        while not (found := re.search(r"ready at (\S+);", (tmp_path / "dev.log").read_text())):
            assert dev.poll() is None, (tmp_path / "dev.log").read_text()
            assert time.monotonic() - begun < 180, (tmp_path / "dev.log").read_text()
            time.sleep(0.1)
        monkeypatch.setenv("TENURE_ADDRESS", found[1])
        yield dev
    finally:
        dev.send_signal(signal.SIGINT)
        assert dev.wait(180) == 0, (tmp_path / "dev.log").read_text()


def tenure(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*TENURE, *arguments], cwd=folder, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_newcomers_first_job_runs_and_a_change_of_the_code_is_served(
    dev: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    [run] = lines(r"run .*")
    assert tenure(tmp_path, *run) == "200\n"
    listed = tenure(tmp_path, "ps")
    job = re.search(r"encode-\w+", listed)
    assert job is not None, listed
    assert "completed" in tenure(tmp_path, "why", job[0])
    (tmp_path / "app.py").write_text(blocks()[1].replace("return frames", "return -frames"))
    begun = time.monotonic()
    while tenure(tmp_path, *run, "frames=2") != "-2\n":
        assert time.monotonic() - begun < 180
    # It is said a moment after the first job was served.
    while "the new code serves" not in (tmp_path / "dev.log").read_text():
        assert time.monotonic() - begun < 180
        time.sleep(0.1)


def test_the_first_screen_runs_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(blocks()[0])
    done = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.stdout, done.returncode) == ("200\n", 0), done.stderr


def test_the_code_people_write_runs_as_printed(tmp_path: Path) -> None:
    (tmp_path / "test_story.py").write_text(STAND_INS + blocks()[2])
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-W", "ignore", "test_story.py"]
    command += [f"-pno:{plugin}" for plugin in ("cacheprovider", "schemathesis", "anyio")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6\n" in done.stdout  # what the embedded datacenter printed
    assert "1 passed" in done.stdout


def test_a_worker_by_itself_answers_who_sends_to_its_queue(tmp_path: Path) -> None:
    _, app, _, send = blocks()
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "send.py").write_text(send)
    [line] = lines(r"worker app\.py .*--slots \d+")
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen([*TENURE, *line], cwd=tmp_path, stdout=log, stderr=log)
    try:
        done = subprocess.run(
            [sys.executable, "send.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
        )
        assert (done.stdout, done.returncode) == ("100 None\n", 0), done.stderr + (tmp_path / "worker.log").read_text()
    finally:
        worker.terminate()
        assert worker.wait(180) == 0

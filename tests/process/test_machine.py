"""Real slots with the fallbacks of `tenure.machine` alone, and under a user who may do little."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

APP = Path(__file__).parent / "machine_app.py"
pytestmark = pytest.mark.slow


def run(
    folder: Path, environment: dict[str, str], before: Callable[[], None] | None = None, cwd: str = "/"
) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(APP), str(folder)],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        preexec_fn=before,
    )
    assert done.returncode == 0, done.stderr + "".join(path.read_text() for path in folder.glob("*.log"))
    return done.stdout.splitlines()


def narrow() -> None:
    os.umask(0o077)


def test_slots_run_end_and_clean_up_with_the_fallbacks_alone(tmp_path: Path) -> None:
    """As on macOS: no /proc, no prctl, no posix_fallocate, no /dev/shm, no boot id."""
    said = run(tmp_path / "dc", {**os.environ, "TENURE_MACHINE": "portable", "TMPDIR": str(tmp_path)})
    assert said == ["left False", "the second attempt ended", "portable"]
    assert list(tmp_path.glob("tenure-*/*")) == [], "nor is anything left in the temporary folder"


def test_a_process_without_home_or_shared_memory_and_with_a_narrow_umask_runs_jobs(tmp_path: Path) -> None:
    """umask 077, no HOME, no /dev/shm, and nothing is written outside of the two folders that it was given."""
    here = tmp_path / "here"
    here.mkdir(mode=0o500)
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    environment |= {"TENURE_MACHINE": "portable", "TMPDIR": str(tmp_path)}
    said = run(tmp_path / "dc", environment, narrow, cwd=str(here))
    assert said == ["left False", "the second attempt ended", "portable"]
    assert list(here.iterdir()) == []
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "dc").rglob("*")} == {0}

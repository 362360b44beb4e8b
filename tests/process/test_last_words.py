"""A failing test of processes says what they said last, on the terminal and in the report that CI's last lines come from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAILING = """
def test_it(tmp_path):
    lines = [f"manager m: audit {{'audit':'wrote'}}".replace("'", '"')] * 50
    (tmp_path / "m.log").write_text("\\n".join(["manager m: leads with epoch 7", *lines]))
    assert False
"""


@pytest.mark.slow
def test_the_last_words_of_each_process_are_shown_and_routine_is_not(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests/process/conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(FAILING)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    options = [f"--junitxml={report}", "-o", "junit_logging=all", str(tmp_path)]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for text in (ended.stdout, report.read_text()):
        assert "--- m" in text
        assert "leads with epoch 7" in text
        assert "audit" not in text.split("--- m")[1].split("===")[0]

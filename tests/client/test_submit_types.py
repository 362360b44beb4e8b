"""Type checkers accept right submissions and refuse wrong ones: `typed/submissions.py` marks which line is which."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typed"
FILE = HERE / "submissions.py"
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def marked() -> set[int]:
    lines = FILE.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("  # error")}


def refused_by_mypy(cache: Path) -> set[int]:
    command = [
        str(BIN / "mypy"),
        "--strict",
        "--config-file=",
        f"--cache-dir={cache}",
        "--python-version=3.11",
        str(FILE),
    ]
    done = subprocess.run(
        command,
        cwd=HERE,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^(\S+?):(\d+): error: ", done.stdout, re.MULTILINE)
    assert {Path(name).name for name, _ in found} <= {FILE.name}, done.stdout
    return {int(line) for _, line in found}


def refused_by_pyright() -> set[int]:
    command = [str(BIN / "pyright"), "--outputjson", "--pythonpath", sys.executable, str(FILE)]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    return {one["range"]["start"]["line"] + 1 for one in found}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_type_checker_refuses_exactly_the_wrong_submissions(checker: str, tmp_path: Path) -> None:
    wrong = marked()
    assert len(wrong) >= 42
    assert (refused_by_mypy(tmp_path) if checker == "mypy" else refused_by_pyright()) == wrong

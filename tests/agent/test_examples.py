"""The examples run as they stand, offline, against the local model server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "code_review_agent": [
        "2 files, 2 problems",
        "billing.py:4: A bare except hides every error.",
        "config.py:4: eval() runs whatever the text says.",
        "(5 tool calls",
    ],
    "research_agent": ["notes: 2", "The Jeddah Light is 133 metres tall.", "(2 sources, 5 tool calls)"],
    "eval_batch": [
        "sent 6 samples; sent again after a crash: 0",
        "6 of 6 samples, mean score 0.667, 67% passed, 0 failed",
        "7x8: passed, 1 tool calls",
        "9x4: FAILED",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_does_what_it_says(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in EXPECTED[name]:
        assert line in done.stdout, done.stdout
    assert done.stderr == ""

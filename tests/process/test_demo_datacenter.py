"""`python -m tenure.demo`, piped: the datacenter's story comes out as promised. How long it takes, `bench_answering` measures."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_every_job_of_the_datacenter_ends_as_it_should() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tenure.demo"], capture_output=True, text=True, timeout=250, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout  # piped: no colours, no cursor movements
    assert "each job ended once, and as it should" in ended.stdout
    assert "job hung: completed" in ended.stdout  # the closing `why`

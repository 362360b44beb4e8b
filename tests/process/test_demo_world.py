"""`make demo-world`, piped: the story of three datacenters and two gates comes out as promised."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_cut_link_a_dead_gate_and_a_global_timeout_end_every_job_as_it_should() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.demo", "world"],
        capture_output=True,
        text=True,
        timeout=500,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout  # piped: no colours, no cursor movements
    assert "each job ended once, everywhere, and as it should" in ended.stdout
    assert "job endless: timed_out (a timed_out, b timed_out, c timed_out)" in ended.stdout  # the closing `why`

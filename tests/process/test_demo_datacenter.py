"""`python -m tenure.demo`, piped: the datacenter's story comes out as promised, in time."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest


@pytest.mark.slow
def test_every_job_of_the_datacenter_ends_as_it_should_within_a_minute() -> None:
    begun = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "tenure.demo"], capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout  # piped: no colours, no cursor movements
    assert "each job ended once, and as it should" in ended.stdout
    assert "job hung: completed" in ended.stdout  # the closing `why`
    assert time.monotonic() - begun < 60

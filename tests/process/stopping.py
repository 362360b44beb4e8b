"""Stops a real process at a moment at which everybody else can go on."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until

from tenure.work.slots.processes import read_stat


def stop_between_transactions(process: subprocess.Popen[bytes], database: Path) -> None:
    """Sends SIGSTOP, but not while the process holds SQLite's write lock: nobody else could write then (docs/decisions/0090)."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: (stat := read_stat(process.pid)) is not None and stat.state == "T", "it stops")
        # Others may hold the lock for a moment, too. One who is stopped holds it for ever.
        with closing(sqlite3.connect(database, timeout=2.0, isolation_level=None)) as probe:
            try:
                probe.execute("BEGIN IMMEDIATE")
                probe.execute("ROLLBACK")
                return
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    pytest.fail("it always holds the lock")

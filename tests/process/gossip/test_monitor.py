"""`tenure gossip monitor` as a real process: joins, prints what happens, leaves when it is told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.gossip import format_key

ROOT = Path(__file__).resolve().parents[3]


class Monitor:
    def __init__(self, name: str, *options: str) -> None:
        command = [sys.executable, "-m", "tenure", "gossip", "monitor", "--name", name, "--json", *options]
        if not (ROOT / "src" / "tenure" / "__main__.py").exists():
            command[1:3] = ["-c", "from tenure.cli import main; main()"]
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        self.lines: list[dict] = []
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._arrived:
                self.lines.append(json.loads(line))
                self._arrived.notify_all()

    def wait(self, event: str, node: str, seconds: float = 180.0) -> dict:
        def found() -> dict | None:
            return next((line for line in self.lines if (line["event"], line["node"]) == (event, node)), None)

        with self._arrived:
            assert self._arrived.wait_for(lambda: found() is not None, seconds), (event, node, self.lines)
            return found()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._thread.join()
        self.process.stdout.close()


@pytest.fixture
def monitor() -> Iterator:
    started: list[Monitor] = []

    def start(name: str, *options: str) -> Monitor:
        started.append(Monitor(name, *options))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.mark.slow
def test_monitors_see_each_other_join_leave_and_die(monitor, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(format_key(bytes(32)) + "\n")
    options = ("--preset", "local", "--key-file", str(keys))
    first = monitor("first", *options)
    address = first.wait("listening", "first")["address"]
    leaver = monitor("leaver", "--join", address, "--tag", "role=web", *options)
    victim = monitor("victim", "--join", address, *options)
    for name in ("leaver", "victim"):
        first.wait("joined", name)
    victim.wait("joined", "leaver")
    leaver.process.send_signal(signal.SIGTERM)
    first.wait("left", "leaver")
    assert leaver.process.wait(180) == 0
    victim.process.kill()
    first.wait("failed", "victim")


def test_a_monitor_whose_seed_is_not_there_says_so_and_fails(monitor) -> None:
    lonely = monitor("lonely", "--join", "127.0.0.1:1")
    assert lonely.process.wait(180) == 1

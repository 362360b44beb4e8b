"""Real `tenure` processes under a service manager: a Unix socket that the test reads, as systemd would."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import wait_until

APP = "from tenure import workflow\n\n\n@workflow\ndef nothing(ctx) -> int:\n    return 1\n"


class Listener:
    """Reads the notifications of one process."""

    def __init__(self, folder: Path, arguments: list[str], watchdog_s: float) -> None:
        path = str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        environment = {**os.environ, "NOTIFY_SOCKET": path, "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}
        environment.pop("WATCHDOG_PID", None)
        with (folder / "log").open("wb") as log:
            command = [sys.executable, "-m", "tenure", *arguments]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)

    def hear(self, within_s: float) -> str:
        """Returns the next notification; an empty text when none came."""
        self._socket.settimeout(within_s)
        try:
            return self._socket.recv(4_096).decode()
        except TimeoutError:
            return ""

    def until(self, word: str, within_s: float = 180.0) -> str:
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            if word in (text := self.hear(end - time.monotonic())):
                return text
        raise AssertionError(f"{word} was not said; exit code {self.process.poll()}")

    def drain(self) -> None:
        while self.hear(0.01):
            pass

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._socket.close()


def read_state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture(params=["manager", "worker"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    (tmp_path / "app.py").write_text(APP)
    options = {
        "manager": ["manager", "--engine", "sqlite:///t.db", "--port", "0"],
        "worker": ["worker", "app.py", "--engine", "sqlite:///t.db", "--slots", "1"],
    }
    made = Listener(tmp_path, options[request.param], watchdog_s=0.6)
    yield made
    made.close()


def test_systemd_hears_that_a_node_is_ready_that_its_loop_turns_and_that_it_stops(listener: Listener) -> None:
    assert "STATUS=" in listener.until("READY=1")
    listener.until("WATCHDOG=1")
    listener.until("WATCHDOG=1")

    pid = listener.process.pid
    listener.process.send_signal(signal.SIGSTOP)
    # Each of its threads stops when it gets a core.
    wait_until(lambda: all(read_state(task) == "T" for task in Path(f"/proc/{pid}/task").iterdir()), "it stops")
    listener.drain()
    assert listener.hear(1.0) == "", "a stopped loop gives no sign of life: systemd may end it"
    listener.process.send_signal(signal.SIGCONT)
    listener.until("WATCHDOG=1")

    listener.process.send_signal(signal.SIGTERM)
    listener.until("STOPPING=1")
    assert listener.process.wait(180) == 0

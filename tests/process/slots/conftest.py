from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S, wait_until

from tenure.beat.board import BeatBoard, board_folder
from tenure.engines import Engine, Mailbox
from tenure.work.delivery import WorkItem, WorkResult
from tenure.work.slots.fork_messages import SLOT_NAME
from tenure.work.slots.interpreters import MARK
from tenure.work.slots.processes import all_processes, read_stat

APP = Path(__file__).parent / "app.py"


class Worker:
    """A real `tenure worker` process and the queue that it serves."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        modules: tuple[str, ...] = (str(APP),),
        below: tuple[str, ...] = (),
        program: str = "",
        **env: str,
    ) -> None:
        """`below` is the command that starts the worker, such as one that gives it a PID namespace of its own; `program` is run as `tenure`."""
        self.log = folder / f"worker-{time.monotonic_ns()}.log"
        command = [
            *below,
            sys.executable,
            *([program] if program else ["-m", "tenure"]),
            "worker",
            *modules,
            "--engine",
            f"sqlite:///{folder}/t.db",
            *options,
        ]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stderr=output, stdout=output, env={**os.environ, **env})

    def said(self) -> str:
        return self.log.read_text()

    def incarnation(self) -> str:
        return self.said().split("incarnation ", 1)[1].split(":", 1)[0]

    def slots(self) -> list[int]:
        """The pids of the slot processes."""
        return [pid for pid in self._below() if not is_fork_server(pid)]

    def fork_servers(self) -> list[int]:
        """The pids of the processes from which slots are forked: at most one lives."""
        return [pid for pid in self._below() if is_fork_server(pid)]

    def _below(self) -> list[int]:
        return [p.pid for p in all_processes() if p.parent == self.process.pid and p.state != "Z"]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Drain it, and wait."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """The exit code, when it has ended."""
        return self.process.wait(PATIENCE_S)


def is_fork_server(pid: int) -> bool:
    """A slot that was forked has the server's command line, too, and a name of its own."""
    return "fork_server" in shown(pid, "cmdline") and shown(pid, "comm") != SLOT_NAME


def is_running(pid: int) -> bool:
    """Returns False also for a process that ended and that nobody has taken notice of: other tests run a supervisor in this process, which adopts orphans from then on."""
    found = read_stat(pid)
    return found is not None and found.state not in "ZX"


def shown(pid: int, what: str) -> str:
    """Returns what /proc shows of a process."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text().strip()
    except OSError:
        return ""


class Desk:
    """Where a test sends work and waits for answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = Engine.open(f"sqlite:///{folder}/t.db")
        self.work: Mailbox[WorkItem, WorkResult] = self.engine.mailbox("work", WorkItem, WorkResult)
        self.replies: Mailbox[WorkResult, Any] = self.engine.mailbox("replies", WorkResult)
        self.workers: list[Worker] = []

    def start(self, *options: str, **rest: Any) -> Worker:
        worker = Worker(self.folder, *options, **rest)
        self.workers.append(worker)
        return worker

    def send(self, workflow: str, *, job: str = "", managed: bool = False, **args: Any) -> str:
        item = WorkItem(workflow=workflow, args=args, job_id=job or workflow, managed=managed)
        return self.work.send(item, reply_to="replies")

    def answer(self, seconds: float = PATIENCE_S) -> WorkResult:
        """The next reply, or a failure of the test that shows what the worker said."""
        found = self.replies.receive(1, 60, seconds)
        if not found:
            pytest.fail("no answer; the workers said:\n" + "\n".join(worker.said() for worker in self.workers))
        [message] = found
        message.acknowledge()
        assert message.failure is None, message.failure
        return message.body

    def failure(self) -> Any:
        [message] = self.replies.receive(1, 60, PATIENCE_S)
        message.acknowledge()
        return message.failure

    def seen_running(self) -> int:
        """How many deliveries were extended at least once: from there on, a delivery counts."""
        with closing(sqlite3.connect(self.folder / "t.db", timeout=PATIENCE_S)) as connection:
            (count,) = connection.execute(
                "SELECT count(*) FROM message WHERE mailbox = 'work' AND state = 3"
            ).fetchone()
        return int(count)

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
        self.engine.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    try:
        yield desk
    finally:
        desk.close()
    # Whatever a test did to its workers, nothing of them may be left.
    wait_until(lambda: not marked_processes(tmp_path), lambda: f"left behind: {marked_processes(tmp_path)}")
    for path in board_folder().glob("board-*"):
        try:
            board = BeatBoard.open(path)
        except Exception:
            continue
        mine = str(tmp_path) in board.identity.engine
        board.close()
        if mine:
            path.unlink(missing_ok=True)  # of a worker that this test killed with -9: the next worker would clear it
            shutil.rmtree(path.with_name(board.identity.incarnation), ignore_errors=True)


def marked_processes(folder: Path) -> list[int]:
    """Slots, and everything that came out of them, of workers whose engine is in this folder."""
    found = []
    for process in all_processes():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if MARK.encode() in environment and f"PYTEST_FOLDER={folder}".encode() in environment:
            found.append(process.pid)
    return found


@pytest.fixture(autouse=True)
def _name_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_FOLDER", str(tmp_path))

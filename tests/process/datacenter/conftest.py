from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.process.stopping import stop_between_transactions

from tenure.beat.board import BeatBoard, board_folder
from tenure.client.client import Client
from tenure.engines import Engine
from tenure.errors import NodeUnavailableError
from tenure.work.slots.processes import read_stat
from tools.servers import Nats, Postgres, Valkey

APP = Path(__file__).parent / "app.py"
TERM_S = 2.0
MISSES_ENGINE = ("could not be renewed yet", "was not answered in time", "the engine is out of reach")

ENGINES: dict[str, Callable[[], Any] | None] = {
    "sqlite": None,
    "postgres": Postgres,
    "valkey": lambda: Valkey({"appendonly": "yes"}),
    "nats": Nats,
}
"""The server of each engine; None where a file is enough."""


class Node:
    """A real `tenure` process, and what it said."""

    def __init__(self, folder: Path, name: str, *arguments: str, program: tuple[str, ...] = ("-m", "tenure")) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        command = [sys.executable, *program, *arguments]
        with self.log.open("wb") as output:
            # With it, SIGABRT writes the stacks of all threads into the log (`autopsy`).
            environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def autopsy(self) -> str:
        """The end of its log, the state of its process, and where each of its threads is. It ends the process."""
        stat, ended = read_stat(self.process.pid), self.process.poll()
        state = f"exited with {ended}" if ended is not None else f"in state {stat.state if stat else '?'}"
        if ended is None:
            self.signal(signal.SIGABRT)
            self.signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        return f"--- {self.name}, pid {self.process.pid}, {state}:\n{self.said()[-12_000:]}"

    def said(self) -> str:
        return self.log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Datacenter:
    """Managers and workers on one SQLite file, as users start them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/t.db"
        self.managers: dict[str, Node] = {}
        self.addresses: dict[str, str] = {}
        self.workers: list[Node] = []
        self.clients: list[Client] = []

    def manager(self, name: str, *options: str) -> Node:
        arguments = ("--engine", self.url, "--name", name, "--port", "0", "--term", str(TERM_S), *options)
        return self.joined(name, Node(self.folder, name, "manager", *arguments))

    def joined(self, name: str, node: Node) -> Node:
        """A manager that was started, once it listens."""
        self.managers[name] = node
        wait_until(lambda: "listens on" in node.said() or node.process.poll() is not None, why=node.said)
        found = re.search(r"listens on ([^\s\"]+)", node.said())
        assert found is not None, node.said()
        self.addresses[name] = found[1]
        return node

    def worker(self, *options: str) -> Node:
        arguments = (str(APP), "--engine", self.url, "--managed", "--grace", "0.5", *options)
        node = Node(self.folder, f"worker-{len(self.workers)}", "worker", *arguments)
        self.workers.append(node)
        return node

    @property
    def client(self) -> Client:
        return self.clients[0] if self.clients else self.new_client()

    def new_client(self, *, first: str = "", **options: Any) -> Client:
        """One that asks the manager of that name first."""
        names = sorted(self.addresses, key=lambda name: name != first)
        self.clients.append(Client([self.addresses[name] for name in names], **options))
        return self.clients[-1]

    def leader(self) -> str:
        """The name of the manager that says of itself that it leads."""
        for name, address in self.addresses.items():
            if self.managers[name].process.poll() is not None:
                continue
            with Client([address], patience_s=3) as client, suppress(NodeUnavailableError):
                if client.leader().leads:
                    return name
        return ""

    def until_led(self) -> str:
        return wait_until(self.leader, self.said)

    def change_leaders(self) -> Client:
        """Kills the leader. Another one follows, and a new standby comes. Returns a client that knows both."""
        self.managers[self.until_led()].kill()
        self.until_led()
        self.manager(f"m-{len(self.managers) + 1}")
        return self.new_client()

    def stop_between_transactions(self, node: Node) -> None:
        stop_between_transactions(node.process, self.folder / "t.db")

    def said(self) -> str:
        return "\n".join(node.said() for node in [*self.managers.values(), *self.workers])

    def autopsy(self) -> str:
        """What each node said, and where it hangs. For a test that fails: it ends the nodes."""
        return "\n".join(node.autopsy() for node in [*self.managers.values(), *self.workers])

    def misses_its_engine(self) -> int:
        """How often managers have said that the engine refuses them or does not answer."""
        return sum(self.said().count(words) for words in MISSES_ENGINE)

    def epochs(self) -> list[int]:
        """Of the entries that the journal still has, in their order."""
        with Engine.open(self.url) as engine:
            journal = engine.journal("jobs")
            snapshot = journal.latest_snapshot()
            after, found = snapshot.seq if snapshot else 0, []
            while entries := journal.read(after):
                found += [entry.epoch for entry in entries]
                after = entries[-1].seq
        return found

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for node in [*self.managers.values(), *self.workers]:
            if node.process.poll() is None:
                node.signal(signal.SIGCONT)
                node.kill()


@pytest.fixture
def datacenter(tmp_path: Path) -> Iterator[Datacenter]:
    datacenter = Datacenter(tmp_path)
    with closed(datacenter):
        yield datacenter


@pytest.fixture(params=list(ENGINES))
def on_every_engine(
    request: pytest.FixtureRequest, own_server: Callable[[Any], Any], datacenter: Datacenter
) -> Iterator[Datacenter]:
    """A datacenter on each engine in turn."""
    if (server := ENGINES[request.param]) is not None:
        datacenter.url = own_server(server()).url
    yield datacenter
    datacenter.close()  # before its server goes


@contextmanager
def closed(datacenter: Datacenter) -> Iterator[None]:
    """Ends all of its processes afterwards, and clears away what they left on this machine."""
    try:
        yield
    finally:
        datacenter.close()
        for path in board_folder().glob("board-*"):
            try:
                board = BeatBoard.open(path)
            except Exception:
                continue
            mine = datacenter.url in board.identity.engine or str(datacenter.folder) in board.identity.engine
            board.close()
            if mine:
                path.unlink(missing_ok=True)  # of a worker that was killed with -9: the next worker would clear it


@pytest.fixture(autouse=True)
def _source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that we start find the code that we test."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))

"""Several datacenters and gates on one machine, each node a real `tenure` process: for demos, tests and `tenure dev --datacenters`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tenure.clock import SystemClock
from tenure.demo.switchboard import Relay, Switchboard
from tenure.errors import NodeUnavailableError
from tenure.nodes.client import Client

GATES_HOME = "127.0.77.1"


def home_of(number: int) -> str:
    """The loopback address that all nodes of one datacenter share."""
    return f"127.0.77.{number + 10}"


@dataclass(frozen=True, slots=True)
class Tempo:
    """One factor scales every duration; 1.0 is what document 002 says."""

    factor: float = 1.0
    gate_stuck_s: float = 180.0
    """Before the factor."""

    def manager(self) -> list[str]:
        stuck, report, fallback = 120 * self.factor, 10 * self.factor, 300 * self.factor
        return [*self._term(), "--stuck", f"{stuck:g}", "--report", f"{report:g}", "--fallback", f"{fallback:g}"]

    def gate(self) -> list[str]:
        times = {
            "--check": 15,
            "--stuck": self.gate_stuck_s,
            "--probe": 2,
            "--probe-timeout": 5,
            "--suspicion": 30,
        }
        options = [f"{max(0.2, seconds * self.factor):g}" for seconds in times.values()]
        return [*self._term(), *(part for pair in zip(times, options, strict=True) for part in pair)]

    def _term(self) -> list[str]:
        return ["--term", f"{max(1.5, 10 * self.factor):g}"]


@dataclass
class Node:
    """One process, what it said, and the relay that stands for it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    relay: Relay | None = None
    command: Sequence[str] = field(default_factory=list)

    def said(self, pattern: str) -> str:
        """The first group of the first match; empty while there is none."""
        found = re.search(pattern, self.log.read_text(errors="replace"))
        return found[1] if found else ""

    def kill(self) -> None:
        """As by `kill -9`."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


class Cluster:
    """Starts the processes, cuts their links, and ends them."""

    def __init__(
        self,
        folder: Path,
        app: str,
        *,
        datacenters: Sequence[str] = ("a", "b", "c"),
        gates: int = 2,
        managers: int = 1,
        workers: int = 1,
        slots: int = 2,
        tempo: Tempo | None = None,
        lease_s: float = 10.0,
    ) -> None:
        self.folder, self.app, self.datacenters = folder, app, tuple(datacenters)
        self.tempo, self.lease_s, self.slots = tempo or Tempo(), lease_s, slots
        self._counts = (gates, managers, workers)
        self._board = Switchboard()
        self._clock = SystemClock()
        self.managers: dict[str, list[Node]] = {}
        self.workers: dict[str, list[Node]] = {}
        self.gates: list[Node] = []
        self._relays: dict[str, list[Relay]] = {}
        self._gate_relays: list[Relay] = []

    def __enter__(self) -> Self:
        self._board.__enter__()
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for node in self.nodes():
            node.end()
        self._board.__exit__()

    def nodes(self) -> list[Node]:
        return [
            *(node for nodes in self.workers.values() for node in nodes),
            *self.gates,
            *(node for nodes in self.managers.values() for node in nodes),
        ]

    def _start(self) -> None:
        gates, managers, workers = self._counts
        for number, name in enumerate(self.datacenters):
            self._relays[name] = [self._board.relay("127.0.0.1", home_of(number)) for _ in range(managers)]
        self._gate_relays = [self._board.relay("127.0.0.1", GATES_HOME) for _ in range(gates)]
        for name in self.datacenters:
            self.managers[name] = [self.manager(name, number) for number in range(managers)]
            self.workers[name] = [self.worker(name, number) for number in range(workers)]
        self.gates = [self.gate(number) for number in range(gates)]
        self.wait(lambda: all(node.said(r"listens on (\S+)") for node in self._listening()), "the nodes listen")
        self.wait(lambda: any(node.said("(leads) with") for node in self.gates), "a gate leads")
        self.wait(
            lambda: all(any(node.said("(leads) with") for node in nodes) for nodes in self.managers.values()),
            "every datacenter has a leader",
        )
        self.wait(
            lambda: all(node.said(r"worker (\w+):") for nodes in self.workers.values() for node in nodes),
            "the workers are there",
        )

    def _listening(self) -> list[Node]:
        return [*self.gates, *(node for nodes in self.managers.values() for node in nodes)]

    # Nodes

    def engine_of(self, datacenter: str) -> str:
        return f"sqlite:///{self.folder / datacenter}.db"

    def manager(self, datacenter: str, number: int) -> Node:
        """Start it, or start it again."""
        home = home_of(self.datacenters.index(datacenter))
        relay = self._relays[datacenter][number]
        options = ["--engine", self.engine_of(datacenter), "--datacenter", datacenter, *self.tempo.manager()]
        return self._listener(f"{datacenter}-manager-{number + 1}", "manager", home, relay, options)

    def worker(self, datacenter: str, number: int) -> Node:
        options = ["--engine", self.engine_of(datacenter), "--managed", "--slots", str(self.slots)]
        options += ["--lease", f"{self.lease_s:g}", "--grace", "0.5"]
        return self._process(f"{datacenter}-worker-{number + 1}", "worker", self.app, *options)

    def gate(self, number: int) -> Node:
        known = [
            f"--datacenter={name}={','.join(relay.address for relay in relays)}"
            for name, relays in self._relays.items()
        ]
        relay = self._gate_relays[number]
        peers = [f"--peer={other.address}" for other in self._gate_relays if other is not relay]
        options = ["--engine", f"sqlite:///{self.folder / 'gates'}.db", *known, *peers, *self.tempo.gate()]
        return self._listener(f"gate-{number + 1}", "gate", GATES_HOME, relay, options)

    def _listener(self, name: str, kind: str, home: str, relay: Relay, options: Sequence[str]) -> Node:
        relay.target = None
        node = self._process(
            name, kind, "--name", name, "--host", home, "--port", "0", "--advertise", relay.address, *options
        )
        node.relay = relay
        self.wait(lambda: bool(node.said(r"serves (\S+)")), f"{name} serves")
        host, _, port = node.said(r"serves (\S+)").rpartition(":")
        relay.target = (host, int(port))
        return node

    def _process(self, name: str, *arguments: str) -> Node:
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", "tenure", *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603  our own commands
        return Node(name, process, log, command=command)

    # What a story needs

    @property
    def gate_addresses(self) -> list[str]:
        return [relay.address for relay in self._gate_relays]

    def client(self, patience_s: float = 60.0) -> Client:
        return Client(self.gate_addresses, patience_s=patience_s)

    def leading_gate(self) -> int:
        """The number of the gate that says of itself that it leads; -1 while none does."""
        for number, node in enumerate(self.gates):
            if node.process.poll() is None and node.relay is not None:
                try:
                    with Client([node.relay.address], patience_s=1) as client:
                        if client.leader().leads:
                            return number
                except NodeUnavailableError:
                    continue
        return -1

    def cut(self, datacenter: str) -> None:
        """The datacenter works on; nothing passes between it and the gates."""
        self._board.cut(home_of(self.datacenters.index(datacenter)), GATES_HOME)

    def mend(self, datacenter: str) -> None:
        self._board.mend(home_of(self.datacenters.index(datacenter)), GATES_HOME)

    def wait(self, true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        until = self._clock.monotonic() + seconds
        while not true():
            for node in self.nodes():
                if node.process.poll() not in (None, -signal.SIGKILL):
                    raise NodeUnavailableError(f"{node.name} ended: {node.log.read_text(errors='replace')[-2000:]}")
            if self._clock.monotonic() > until:
                raise NodeUnavailableError(f"within {seconds:g} s it did not happen that {what}")
            self._clock.sleep(0.05)

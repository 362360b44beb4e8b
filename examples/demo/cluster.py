"""Several datacenters and gates on one machine, each node a real `tenure` process: for the demo of the world, for tests and for benchmarks."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from examples.demo.switchboard import Relay, Switchboard
from tenure.client.client import Client
from tenure.clock import SystemClock
from tenure.errors import NodeUnavailableError

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
    shortest_term_s: float = 1.5
    """Of leaders, whatever the factor: on a busy machine a short one is lost now and then."""

    def manager(self) -> list[str]:
        stuck, report, fallback = 120 * self.factor, 10 * self.factor, 300 * self.factor
        return [*self._term(), "--stuck", f"{stuck:g}", "--report", f"{report:g}", "--fallback", f"{fallback:g}"]

    def gate(self) -> list[str]:
        # How long an answer takes depends on the network, not on us: these two are not scaled below what a slow link needs.
        times = {
            "--check": 15 * self.factor,
            "--stuck": self.gate_stuck_s * self.factor,
            "--probe": max(0.2, 2 * self.factor),
            "--probe-timeout": max(2.0, 5 * self.factor),
            "--suspicion": max(4.0, 30 * self.factor),
        }
        return [*self._term(), *(part for name, value in times.items() for part in (name, f"{value:g}"))]

    def _term(self) -> list[str]:
        return ["--term", f"{max(self.shortest_term_s, 10 * self.factor):g}"]


@dataclass
class Node:
    """One process, what it said, and the relay that stands for it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

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


def _serves(node: Node) -> bool:
    return bool(node.said(r"serves (\S+)"))


class Cluster:
    """Starts the processes, cuts their links, and ends them."""

    def __init__(
        self,
        folder: Path,
        app: str | Sequence[str],
        *,
        datacenters: Sequence[str] = ("a", "b", "c"),
        gates: int = 2,
        managers: int = 1,
        workers: int = 1,
        slots: int = 2,
        tempo: Tempo | None = None,
        lease_s: float = 10.0,
        port: int = 0,
    ) -> None:
        self.folder, self.datacenters, self.port = folder, tuple(datacenters), port
        self.modules = (app,) if isinstance(app, str) else tuple(app)
        self.tempo, self.lease_s, self.slots = tempo or Tempo(), lease_s, slots
        self.counts = (gates, managers, workers)
        """Gates; managers and workers of each datacenter."""
        self._board = Switchboard()
        self._clock = SystemClock()
        self.managers: dict[str, list[Node]] = {}
        self.workers: dict[str, list[Node]] = {}
        self.gates: list[Node] = []
        self._relays: dict[str, list[Relay]] = {}
        self._waiting: list[tuple[Node, Relay]] = []
        self._together = False
        self.started_in_s = 0.0
        """How long it took until all of them served: a measure of how busy the machine is."""

    def __enter__(self) -> Self:
        self._board.__enter__()
        begun = self._clock.monotonic()
        try:
            self._start()
            self.started_in_s = self._clock.monotonic() - begun
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
        gates, managers, workers = self.counts
        self._prepare()
        self._together = True  # they start side by side, and are reached when all of them serve
        for name in self.datacenters:
            self.managers[name] = [self.manager(name, number) for number in range(managers)]
            self.workers[name] = [self.worker(name, number) for number in range(workers)]
        self.gates = [self.gate(number) for number in range(gates)]
        self._together = False
        self._connect()
        self.wait(lambda: all(node.said(r"listens on (\S+)") for node in self._listening()), "the nodes listen")
        self.wait(lambda: any(node.said("(leads) with") for node in self.gates), "a gate leads")
        self.wait(
            lambda: all(any(node.said("(leads) with") for node in nodes) for nodes in self.managers.values()),
            "every datacenter has a leader",
        )
        self.wait(
            lambda: all(node.said(r"incarnation (\w+):") for nodes in self.workers.values() for node in nodes),
            "the workers are there",
        )

    def _prepare(self) -> None:
        """Where each node will be reached, before any of them runs."""
        gates, managers, _ = self.counts
        for number, name in enumerate(self.datacenters):
            self._relays[name] = [self._board.relay("127.0.0.1", home_of(number)) for _ in range(managers)]
        ports = [self.port, *[0] * (gates - 1)]
        self._relays["gates"] = [self._board.relay("127.0.0.1", GATES_HOME, port) for port in ports]

    def _listening(self) -> list[Node]:
        return [*self.gates, *(node for nodes in self.managers.values() for node in nodes)]

    # Nodes

    def engine_of(self, datacenter: str) -> str:
        return f"sqlite:///{self.folder / datacenter}.db"

    def manager(self, datacenter: str, number: int) -> Node:
        """Start it, or start it again."""
        options = ["--engine", self.engine_of(datacenter), "--datacenter", datacenter, *self.tempo.manager()]
        return self._listener(f"{datacenter}-manager-{number + 1}", "manager", datacenter, number, options)

    def worker(self, datacenter: str, number: int) -> Node:
        options = ["--engine", self.engine_of(datacenter), "--managed", "--slots", str(self.slots)]
        options += ["--lease", f"{self.lease_s:g}", "--grace", "0.5"]
        return self.start_process(f"{datacenter}-worker-{number + 1}", datacenter, "worker", *self.modules, *options)

    def gate(self, number: int) -> Node:
        known = [f"--datacenter={name}={','.join(self._manager_addresses(name))}" for name in self.datacenters]
        peers = [f"--peer={address}" for other, address in enumerate(self.gate_addresses) if other != number]
        options = ["--engine", self.engine_of("gates"), *known, *peers, *self.tempo.gate()]
        return self._listener(f"gate-{number + 1}", "gate", "gates", number, options)

    def _manager_addresses(self, datacenter: str) -> list[str]:
        return [relay.address for relay in self._relays[datacenter]]

    @property
    def gate_addresses(self) -> list[str]:
        return [relay.address for relay in self._relays["gates"]]

    def _listener(self, name: str, kind: str, place: str, number: int, options: Sequence[str]) -> Node:
        """A node that others reach, through the relay that stands for it."""
        relay = self._relays[place][number]
        relay.target = None
        listen = ["--name", name, "--host", relay.home, "--port", "0", "--advertise", relay.address]
        node = self.start_process(name, place, kind, *listen, *options)
        self._waiting.append((node, relay))
        if not self._together:
            self._connect()
        return node

    def _connect(self) -> None:
        """Tell the relays where their nodes are, once they say so."""
        while self._waiting:
            node, relay = self._waiting.pop()
            self.wait(partial(_serves, node), f"{node.name} serves")
            host, _, port = node.said(r"serves (\S+)").rpartition(":")
            relay.target = (host, int(port))

    def start_process(self, name: str, place: str, *arguments: str) -> Node:
        log = self.folder / f"{name}.log"
        command = [*self.command_prefix(place), sys.executable, "-m", "tenure", *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        return Node(name, process, log)

    def command_prefix(self, place: str) -> list[str]:
        """What stands before a command in that place."""
        return []

    # What a story needs

    def client(self, patience_s: float = 180.0, addresses: Sequence[str] = ()) -> Any:
        """A `Client` of the gates, or of these addresses."""
        return Client(addresses or self.gate_addresses, patience_s=patience_s)

    def client_in(self, datacenter: str) -> Any:
        """A `Client` inside a datacenter: it reaches the managers there whatever is cut."""
        return Client(self._manager_addresses(datacenter), patience_s=180.0)

    def leading_gate(self) -> int:
        """The number of the gate that says of itself that it leads; -1 while none does."""
        return self._leading(self.gates, self.gate_addresses)

    def leading_manager(self, datacenter: str) -> int:
        return self._leading(self.managers[datacenter], self._manager_addresses(datacenter))

    def _leading(self, nodes: Sequence[Node], addresses: Sequence[str]) -> int:
        for number, (node, address) in enumerate(zip(nodes, addresses, strict=True)):
            if node.process.poll() is None:
                try:
                    with self.client(1.0, [address]) as client:
                        if client.leader().leads:
                            return number
                except NodeUnavailableError:
                    continue
        return -1

    def cut(self, datacenter: str) -> None:
        """The datacenter works on; nothing passes between it and the gates."""
        self._board.cut(home_of(self.datacenters.index(datacenter)), GATES_HOME)

    def deafen(self, datacenter: str, number: int) -> None:
        """This manager hears no gate any more, and goes on to report."""
        self._board.deafen(GATES_HOME, self._relays[datacenter][number])

    def hush(self, datacenter: str) -> None:
        """The datacenter answers gates, and no report of its own gets through."""
        self._board.hush(home_of(self.datacenters.index(datacenter)), GATES_HOME)

    def slow(self, datacenter: str, seconds: float) -> None:
        """Every word between the gates and the datacenter takes so long, each way."""
        self._board.slow(home_of(self.datacenters.index(datacenter)), GATES_HOME, seconds)

    def mend(self, datacenter: str) -> None:
        self._board.mend(home_of(self.datacenters.index(datacenter)), GATES_HOME)

    def wait(self, true: Callable[[], bool], what: str, seconds: float = 180.0) -> None:
        until = self._clock.monotonic() + seconds
        while not true():
            for node in self.nodes():
                if node.process.poll() not in (None, -signal.SIGKILL):
                    raise NodeUnavailableError(f"{node.name} ended: {node.log.read_text(errors='replace')[-2000:]}")
            if self._clock.monotonic() > until:
                raise NodeUnavailableError(f"within {seconds:g} s it did not happen that {what}")
            self._clock.sleep(0.05)

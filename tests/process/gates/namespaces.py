"""A cluster in network namespaces: the gates and each datacenter on a machine of their own, as far as the network goes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from examples.demo.cluster import Cluster, Node
from tests.process.gates import wire

from tenure.client.client import Client

TOKEN = "only for this test"
_numbers = itertools.count()


def why_not() -> str:
    """Empty where this machine gives us network namespaces and TUN devices."""
    if os.environ.get("TENURE_NO_NAMESPACES") == "1":
        return "TENURE_NO_NAMESPACES is set"
    name = f"tenure-try-{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
        if made.returncode:
            return f"no network namespaces: {made.stderr.strip()}"
        tried = subprocess.run(
            [sys.executable, str(Path(wire.__file__)), f"{name}=10.77.0.1"],
            input="",
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        return "" if "ready" in tried.stdout else f"no TUN devices: {tried.stderr.strip()[-200:]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no network namespaces: {error}"
    finally:
        if Path("/run/netns", name).exists():
            subprocess.run(["ip", "netns", "del", name], check=False)


class Inside:
    """A client whose calls are made in the gates' namespace: a thread may live in a network of its own."""

    def __init__(self, namespace: str, addresses: Sequence[str], patience_s: float) -> None:
        self._thread = ThreadPoolExecutor(1, initializer=wire.enter, initargs=(namespace,))
        self._client = Client(addresses, token=TOKEN, patience_s=patience_s)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *given, **options: self._thread.submit(method, *given, **options).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.submit(self._client.close).result()
        self._thread.shutdown()


class NamespaceCluster(Cluster):
    """Fixed ports, real addresses, and a wire in the middle that loses what it is told to lose."""

    def __enter__(self) -> Self:
        prefix = f"tn{os.getpid()}-{next(_numbers)}"
        self._places = {"gates": f"{prefix}-g", **{name: f"{prefix}-{name}" for name in self.datacenters}}
        self._addresses = {name: f"10.77.0.{number + 2}" for number, name in enumerate(self._places)}
        for namespace in self._places.values():
            subprocess.run(["ip", "netns", "add", namespace], check=True)
        tied = [f"{self._places[name]}={address}" for name, address in self._addresses.items()]
        self._wire = subprocess.Popen(
            [sys.executable, str(Path(wire.__file__)), *tied], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._wire.stdout is not None
        assert self._wire.stdout.readline().strip() == "ready"
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._wire.kill()
        self._wire.wait()
        assert self._wire.stdin is not None
        assert self._wire.stdout is not None
        self._wire.stdin.close()
        self._wire.stdout.close()
        for namespace in self._places.values():
            subprocess.run(["ip", "netns", "del", namespace], check=False)

    def tell_wire(self, do: str, one: str, other: str = "gates", **details: float) -> None:
        assert self._wire.stdin is not None
        assert self._wire.stdout is not None
        command = {"do": do, "one": self._places[one], "other": self._places[other], **details}
        self._wire.stdin.write(json.dumps(command) + "\n")
        self._wire.stdin.flush()
        assert self._wire.stdout.readline().strip() == "done"

    def cut(self, datacenter: str) -> None:
        self.tell_wire("cut", datacenter)

    def deafen(self, datacenter: str, number: int) -> None:
        self.tell_wire("block", "gates", datacenter, port=8470 + number)

    def hush(self, datacenter: str) -> None:
        for number in range(self.counts[0]):
            self.tell_wire("block", datacenter, port=8480 + number)

    def slow(self, datacenter: str, seconds: float) -> None:
        self.tell_wire("weather", datacenter, delay_s=seconds, loss=0.0)

    def mend(self, datacenter: str) -> None:
        self.tell_wire("heal", datacenter)

    # Nodes, each in its place

    def _prepare(self) -> None:
        """Addresses are known before anything runs."""

    def _manager_addresses(self, datacenter: str) -> list[str]:
        return [f"{self._addresses[datacenter]}:{8470 + number}" for number in range(self.counts[1])]

    @property
    def gate_addresses(self) -> list[str]:
        return [f"{self._addresses['gates']}:{8480 + number}" for number in range(self.counts[0])]

    def _listener(self, name: str, kind: str, place: str, number: int, options: Sequence[str]) -> Node:
        port = (8480 if place == "gates" else 8470) + number
        listen = ["--name", name, "--host", self._addresses[place], "--port", str(port), "--token", TOKEN]
        return self.start_process(name, place, kind, *listen, *options)

    def start_process(self, name: str, place: str, *arguments: str) -> Node:
        if arguments[0] == "worker":
            arguments = (*arguments, "--token", TOKEN)
        return super().start_process(name, place, *arguments)

    def command_prefix(self, place: str) -> list[str]:
        return ["ip", "netns", "exec", self._places[place]]

    def client_in(self, datacenter: str) -> Any:
        return Inside(self._places[datacenter], self._manager_addresses(datacenter), 180.0)

    def client(self, patience_s: float = 180.0, addresses: Sequence[str] = ()) -> Any:
        return Inside(self._places["gates"], addresses or self.gate_addresses, patience_s)

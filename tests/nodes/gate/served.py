"""Two datacenters and two gates on real ports, in a thread of their own: what clients and operators of gates meet."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.client.one_datacenter import datacenter
from tests.nodes.served import Answer, Served
from tests.patience import wait_until

from tenure.logs import log_to
from tenure.nodes.gate.probes import ProbeSettings
from tenure.nodes.gate.serving import GateNodeSettings, serve_gate

PROBES = ProbeSettings(interval_s=0.2, timeout_s=5.0, suspicion_s=30.0)
START_S = 60.0


class ServedGate:
    """One gate that is served."""

    def __init__(self, settings: GateNodeSettings, said: list[str]) -> None:
        self.settings, self.said, self.address = settings, said, ""
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        ready = asyncio.get_running_loop().create_future()
        serving = serve_gate(self.settings, self._stop, log=log_to(self.said.append), on_ready=ready.set_result)
        self._task = asyncio.create_task(serving)
        await asyncio.wait([self._task, ready], timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        self.address = await asyncio.wait_for(ready, START_S)

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task


class LoneGate(Served):
    """`with LoneGate({"a": [address]}) as gate:` until it leads: a gate of datacenters that the test keeps."""

    def __init__(self, datacenters: dict[str, list[str]], **settings: Any) -> None:
        super().__init__()
        given = {"engine_url": "memory://", "name": "g-1", "port": 0, "probes": PROBES, **settings}
        self._gate = GateNodeSettings(datacenters=datacenters, **given)

    async def _serve(self, stop: asyncio.Event) -> None:
        await serve_gate(self._gate, stop, log=log_to(self.said.append), on_ready=self._listens)


class World:
    """`with World(folder) as world:` until a gate leads and has heard of both datacenters."""

    def __init__(
        self, folder: Path, *, gates: int = 2, datacenters: tuple[str, ...] = ("a", "b"), **settings: Any
    ) -> None:
        self._folder, self._count, self._names, self._settings = folder, gates, datacenters, settings
        self.gates: list[ServedGate] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            self._failed = error
            self._ready.set()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            places = {name: [await stack.enter_async_context(datacenter(name))] for name in self._names}
            for number in range(self._count):
                settings = GateNodeSettings(
                    engine_url=f"sqlite:///{self._folder / 'gates.db'}",
                    name=f"g-{number + 1}",
                    datacenters=places,
                    peers=[gate.address for gate in self.gates],
                    port=0,
                    term_s=20.0,  # a machine that stands still for seconds deposes nobody; who stops, resigns
                    **{"probes": PROBES, **self._settings},
                )
                gate = ServedGate(settings, [])
                await gate.start()
                self.gates.append(gate)
                stack.push_async_callback(gate.stop)
            self._ready.set()
            await self._over.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_S)
        if self._failed is not None:
            raise self._failed
        self.until(lambda: self.leader() is not None)
        self.until(lambda: not {place["health"] for place in self.places().values()} & {"UNKNOWN"})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(START_S)
        assert not self._thread.is_alive()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """In the loop of the nodes."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S)

    def leader(self) -> ServedGate | None:
        for gate in self.gates:
            try:
                if self.ask("/v1/leader", gate=gate).body["leads"]:
                    return gate
            except OSError:
                continue
        return None

    def leading(self) -> ServedGate:
        """The gate that leads, once there is one: on a busy machine a term of two seconds may end unrenewed."""
        self.until(lambda: self.leader() is not None)
        return self.leader() or self.leading()

    def other(self) -> ServedGate:
        leader = self.leader()
        return next(gate for gate in self.gates if gate is not leader)

    def places(self) -> dict[str, Any]:
        gate = self.leader() or self.gates[0]
        return {place["name"]: place for place in self.ask("/v1/gate", gate=gate).body["datacenters"]}

    def ask(
        self, path: str, body: Any = None, *, gate: ServedGate | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """A POST where there is a body."""
        with self.connection(gate) as connection:
            data = None if body is None else json.dumps(body).encode()
            given = {**({} if data is None else {"Content-Type": "application/json"}), **(headers or {})}
            connection.request("GET" if data is None else "POST", path, data, given)
            answer = connection.getresponse()
            text = answer.read()
            kind = answer.headers.get("Content-Type", "")
            return Answer(answer.status, answer.headers, json.loads(text) if kind == "application/json" else text)

    @contextmanager
    def connection(self, gate: ServedGate | None = None) -> Iterator[http.client.HTTPConnection]:
        address = (gate or self.gates[0]).address
        connection = http.client.HTTPConnection("127.0.0.1", int(address.rpartition(":")[2]), timeout=60)
        try:
            yield connection
        finally:
            connection.close()

    def until(self, true: Callable[[], object]) -> None:
        wait_until(true, lambda: str([gate.said[-20:] for gate in self.gates]))

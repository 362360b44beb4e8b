"""Runs a gate as a process: opens its engine, serves its port, runs the gate, and stops on request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.bound_checks import check
from tenure.bounds import DatacenterName
from tenure.clock import Clock, SystemClock
from tenure.control.access_log import AccessLog, PortMetrics
from tenure.control.admission import HttpLimits
from tenure.control.async_caller import HttpCaller
from tenure.control.caller import parse_address
from tenure.control.event_feed import StreamItem
from tenure.control.messages.events import GetEvents
from tenure.control.messages.jobs import Problem, ProblemKind
from tenure.control.messages.wire import Reply, Request
from tenure.control.port_security import BARE, Front
from tenure.control.tls import ServerTls
from tenure.control.transport import HttpServer
from tenure.errors import ConfigurationError, NodeUnavailableError
from tenure.health.overload import OverloadConfig
from tenure.ids import new_id
from tenure.jobs.settings import GateSettings
from tenure.nodes.gate.gate import Gate, GateSetup
from tenure.nodes.gate.metrics import GateGauges, GateMetrics
from tenure.nodes.gate.probes import ProbeSettings
from tenure.nodes.process import Environment, check_candidate, open_engine, own_loopback, until_stopped
from tenure.randomness import fresh_random

DEFAULT_PORT = 8480


@dataclass(frozen=True, slots=True)
class GateNodeSettings:
    """The settings of one gate process."""

    engine_url: str
    name: str
    datacenters: Mapping[str, Sequence[str]]
    """The addresses of each datacenter's managers, by its name."""
    peers: Sequence[str] = ()
    """The addresses of the other gates on the same engine."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    advertise: str = ""
    """host:port under which managers, clients and peers reach it; empty: where it listens."""
    token: str = ""
    tokens_file: str = ""
    """A file of tokens with names and roles. With it, `token` is only the one that this gate shows to other nodes."""
    tls: ServerTls | None = None
    limits: HttpLimits = field(default_factory=HttpLimits)
    term_s: float = 10.0
    gate: GateSettings = field(default_factory=GateSettings)
    probes: ProbeSettings = field(default_factory=ProbeSettings)
    overload: OverloadConfig = field(default_factory=OverloadConfig)

    def __post_init__(self) -> None:
        _ = self.front  # its constructor refuses a port without protection
        check_candidate(self.name, self.term_s)
        for name in self.datacenters:
            check(name, DatacenterName, field="datacenter")
        for address in [*self.peers, *(one for addresses in self.datacenters.values() for one in addresses)]:
            parse_address(address)

    @property
    def setup(self) -> GateSetup:
        return GateSetup(self.datacenters, self.peers, self.term_s, self.gate, self.probes, self.overload)

    @property
    def front(self) -> Front:
        return Front(self.host, self.token, self.tokens_file, self.tls)


def parse_datacenters(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parses `name=host:port,host:port`, one text for each datacenter."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, addresses = text.partition("=")
        known = [address for address in addresses.split(",") if address]
        if not equals or not name or not known or name in found:
            raise ConfigurationError(
                f"{text!r} does not name a datacenter and its managers",
                remedy="Write each once, as eu=10.0.0.1:8470,10.0.0.2:8470",
            )
        for address in known:
            parse_address(address)
        found[name] = known
    return found


async def serve_gate(
    settings: GateNodeSettings,
    stop: asyncio.Event,
    *,
    say: Callable[[str], None],
    on_ready: Callable[[str], None] = lambda address: None,
    clock: Clock | None = None,
) -> None:
    """Serves until `stop` is set. Then the gate resigns, so that the next leader need not wait for the end of its term."""
    clock = clock or SystemClock()
    async with open_engine(settings.engine_url, clock) as (engine, calls):
        front, door, metrics = settings.front, GateDoor(), PortMetrics()
        server = HttpServer(
            door.answer,
            host=settings.host,
            port=settings.port,
            tokens=front.book(),
            tls=front.tls,
            limits=settings.limits,
            streams=door.streams,
            ready=door.ready,
            metrics=metrics.render,
            about={"node": "gate", "node_name": settings.name},
            log=AccessLog(lambda line: say(f"audit {line}"), metrics.answered, clock, metrics.dropped),
            clock=clock,
        )
        port = await server.start()
        say(f"serves {front.scheme}{settings.host}:{port}")
        if front.bare:
            say(BARE)
        try:
            address = settings.advertise or f"{front.scheme}{settings.host}:{port}"
            with contextlib.closing(HttpCaller(token=settings.token, source=own_loopback(settings.host))) as caller:
                door.gate = Gate(
                    settings.name,
                    address,
                    Environment(engine, calls, clock, fresh_random(), new_id, say),
                    settings.setup,
                    caller,
                    metrics=GateMetrics(metrics.registry, settings.datacenters),
                )
                metrics.registry.register(GateGauges(door.gate))
                on_ready(address)
                with front.reloading(server, say):
                    await until_stopped(stop, door.gate.run())
        finally:
            await server.stop()


class GateDoor:
    """Answers at the port before the gate exists: the gate's candidate name holds the address, so the port must be open first."""

    gate: Gate | None = None

    def ready(self) -> tuple[bool, Any]:
        """Returns the readiness and its reasons. A gate that does not lead is ready, too, when its engine answers and its link is not suspect."""
        reasons = self.gate.unready if self.gate is not None else {"node": "it is starting"}
        places = self.gate.watch.views() if self.gate is not None else ()
        seen = {place.name: {"health": place.health, "reason": place.reason} for place in places}
        found = self.gate.failures.alarms() if self.gate is not None else ()
        alarms = [{"kind": one.kind, "subject": one.subject, "text": str(one)} for one in found]
        return not reasons, {"ready": not reasons, "reasons": reasons, "alarms": alarms, "datacenters": seen}

    async def answer(self, sender: str, request: Request) -> Reply:
        if self.gate is None:
            return Problem(kind=ProblemKind.UNAVAILABLE, fact="this gate is starting", retryable=True)
        return await self.gate.answer(sender, request)

    async def streams(self, request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
        if self.gate is None:
            raise NodeUnavailableError("this gate is starting")
        async with contextlib.aclosing(self.gate.stream(request)) as stream:
            async for batch in stream:
                yield batch

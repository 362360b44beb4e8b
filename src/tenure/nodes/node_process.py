"""Runs a manager or a gate as a process: opens the engine and the port, lets the node answer there, and stops on request.

The port opens before the node exists, because the node's name in the election holds the address of the port.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tenure.clock import Clock
from tenure.control.access_log import AccessLog, LineGroups, PortMetrics
from tenure.control.admission import HttpLimits
from tenure.control.async_caller import HttpCaller
from tenure.control.messages.events import GetEvents
from tenure.control.messages.job_output import GetOutput
from tenure.control.messages.wire import Problem, ProblemKind, Reply, Request
from tenure.control.port_security import BARE, Front
from tenure.control.streams import StreamItem, output_stream
from tenure.control.tls import ServerTls
from tenure.control.tokens import TokenBook
from tenure.control.transport import HttpServer
from tenure.errors import EngineWentBackError, NodeUnavailableError
from tenure.jobs.alarms import Alarm
from tenure.logs import NodeLog, without_facts
from tenure.nodes.leadership import Leadership
from tenure.nodes.process import Environment, check_candidate, open_engine, own_loopback, until_stopped
from tenure.nodes.token_keeper import TokenKeeper
from tenure.randomness import fresh_random, new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings that the process of any node has."""

    engine_url: str
    """Where work and decisions live."""
    name: str
    """Names the node to people, in logs and in the journal."""
    host: str = "127.0.0.1"
    """Loopback by default: beyond it a token or client certificates are required."""
    port: int = 0
    """0 takes a free port, which the first line of the log names."""
    advertise: str = ""
    """The host:port under which others reach this node; empty for the address where it listens."""
    token: str = ""
    """One token that may do everything."""
    tokens_file: str = ""
    """A file of tokens with names and roles. With it, `token` is only the one that this node itself shows to others."""
    tls: ServerTls | None = None
    """Certificate and key of the port; without them the wire can be read."""
    limits: HttpLimits = field(default_factory=HttpLimits)
    """Bounds of what one caller, and all together, may ask of the port."""
    term_s: float = 10.0
    """The seconds for which the other nodes of its kind wait for a leader that fell silent."""
    waits_for_engine: bool = False
    """An engine that is away at the start is waited for. Otherwise its error ends the node, which a program that starts one wants to see."""

    def __post_init__(self) -> None:
        _ = self.front  # raises for a port that is not protected
        check_candidate(self.name, self.term_s)

    @property
    def front(self) -> Front:
        return Front(self.host, self.token, self.tokens_file, self.tls)


class AnsweringNode(NamedTuple):
    """The parts of a node that its port calls."""

    answer: Callable[[str, Request], Awaitable[Reply]]
    stream: Callable[[GetEvents], AsyncGenerator[list[StreamItem], None]]
    ready: Callable[[], tuple[bool, dict[str, Any]]]
    follow: Callable[[Request, str], Awaitable[Reply | None]] | None = None
    """Fetches the leader's answer for a caller that cannot follow a redirect."""


def readiness(reasons: Mapping[str, str], alarms: Iterable[Alarm], **more: Any) -> tuple[bool, dict[str, Any]]:
    """Returns the answer for an orchestrator: ready or not, the reasons why not, and every alarm that stands."""
    shown = [{"kind": one.kind, "subject": one.subject, "text": str(one)} for one in alarms]
    return not reasons, {"ready": not reasons, "reasons": reasons, "alarms": shown, **more}


class NodeDoor:
    """Answers at the port: that the node is starting, and from `open` on whatever the node answers."""

    def __init__(self, kind: str) -> None:
        """`kind` is the word for this node in what callers read."""
        self._kind = kind
        self._node: AnsweringNode | None = None

    def open(self, node: AnsweringNode) -> None:
        self._node = node

    async def answer(self, sender: str, request: Request) -> Reply:
        if self._node is None:
            return Problem(kind=ProblemKind.UNAVAILABLE, fact=f"this {self._kind} is starting", retryable=True)
        return await self._node.answer(sender, request)

    async def follow(self, request: Request, token: str) -> Reply | None:
        if self._node is None or self._node.follow is None:
            return None
        return await self._node.follow(request, token)

    def ready(self) -> tuple[bool, dict[str, Any]]:
        return self._node.ready() if self._node is not None else readiness({"node": "it is starting"}, ())

    async def streams(self, request: GetEvents | GetOutput) -> AsyncGenerator[list[StreamItem], None]:
        if self._node is None:
            raise NodeUnavailableError(f"this {self._kind} is starting")
        source = output_stream(self.answer, request) if isinstance(request, GetOutput) else self._node.stream(request)
        async with contextlib.aclosing(source) as stream:
            async for batch in stream:
                yield batch


class NodeProcess:
    """An open engine and an open port, for the node that the caller makes of them."""

    def __init__(
        self,
        environment: Environment,
        address: str,
        caller: HttpCaller,
        front: Front,
        server: HttpServer,
        door: NodeDoor,
    ) -> None:
        self.environment, self.caller = environment, caller

        def install(book: TokenBook) -> None:
            server.admission.tokens = book

        self.tokens = TokenKeeper(
            environment.engine, environment.calls, environment.clock, environment.log, front.book(), install
        )
        self.address = address
        """Where others reach the node."""
        self._front, self._server, self._door = front, server, door

    async def run(
        self,
        node: AnsweringNode,
        life: Callable[[], Coroutine[Any, Any, None]],
        stop: asyncio.Event,
        on_ready: Callable[[str], None],
    ) -> None:
        """Lets the node answer, and runs its `life` until `stop` is set. Raises what `life` raises."""
        await self.tokens.begin(stop)
        self._door.open(node)
        on_ready(self.address)
        with self._front.reloading(self._server, self.tokens.rebase, self.environment.log):
            try:
                await until_stopped(stop, life())
            except EngineWentBackError as error:
                self.environment.log.log(logging.ERROR, f"ALARM: this node ends: {error}")
                raise


@contextlib.asynccontextmanager
async def node_process(
    settings: NodeSettings,
    about: Mapping[str, str],
    metrics: PortMetrics,
    *,
    kind: str,
    clock: Clock,
    log: NodeLog,
    stop: asyncio.Event,
) -> AsyncIterator[NodeProcess]:
    """Opens the port and then the engine of a node, and closes both at the end. `about` is what the port tells anybody of the node. While it waits
    for its engine, callers hear that it is starting. `stop` ends that wait: then the error of the last attempt is raised."""
    front, door, audit = settings.front, NodeDoor(kind), LineGroups(partial(_audit, log))
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
        follow=door.follow,
        about={**about, "node_name": settings.name},
        log=AccessLog(audit.add, metrics.answered, clock, metrics.dropped),
        clock=clock,
    )
    served = f"{front.scheme}{settings.host}:{await server.start()}"
    log.info(f"serves {served}")
    if front.bare:
        log.warning(BARE)
    try:
        async with open_engine(settings.engine_url, clock, log, stop if settings.waits_for_engine else None) as opened:
            with contextlib.closing(HttpCaller(token=settings.token, source=own_loopback(settings.host))) as caller:
                environment = Environment(*opened, clock, fresh_random(), new_id, log)
                yield NodeProcess(environment, settings.advertise or served, caller, front, server, door)
    finally:
        await server.stop()
        audit.write()


class NodeGauges(Collector):
    """The gauges of one node, read at each scrape."""

    def __init__(self, kind: str, leadership: Leadership[Any, Any, Any]) -> None:
        """`kind`: manager or gate, as names and texts say it."""
        self._kind, self._leadership = kind, leadership

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Returns nothing. Without this method, registering the collector would already read every value."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        node, kind = self._leadership, self._kind
        epoch, leads = max(node.epoch, node.ledger.book.epoch), node.leader is not None
        yield gauge(f"tenure_{kind}_leads", f"1 on the {kind} that leads.", leads)
        yield gauge(f"tenure_{kind}_epoch", f"The newest epoch that this {kind} knows.", epoch)
        yield gauge(f"tenure_{kind}_journal_sequence", f"How far this {kind} has read the journal.", node.ledger.seq)
        yield gauge(f"tenure_{kind}_engine_answers", "0 while the engine does not answer.", node.engine_answers)
        yield gauge(f"tenure_{kind}_clock_skew_seconds", "This machine's clock minus the engine's.", node.time.skew_s)
        yield from self.shown()
        if leads:
            yield from self.led()

    @abstractmethod
    def shown(self) -> Iterator[GaugeMetricFamily]:
        """Yields the gauges that every node of this kind shows."""

    @abstractmethod
    def led(self) -> Iterator[GaugeMetricFamily]:
        """Yields the gauges that only the leader shows."""


def _audit(log: NodeLog, lines: Sequence[str]) -> None:
    """Writes audit lines. Each ends with its JSON, which names the request."""
    with without_facts():
        log.info_all([f"audit {line}" for line in lines])


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))


def gauges(name: str, text: str, labels: Sequence[str], values: Mapping[Any, float]) -> GaugeMetricFamily:
    """Returns a gauge with labels. `values` maps a label, or a tuple of labels, to its value."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else list(key), float(value))
    return family

"""Runs a manager as a process: opens the engine, serves the port, stands for election, and stops when its `stop` event is set."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tenure.bound_checks import check
from tenure.bounds import DatacenterName
from tenure.clock import Clock, SystemClock
from tenure.control.access_log import AccessLog
from tenure.control.admission import HttpLimits
from tenure.control.async_caller import HttpCaller
from tenure.control.event_feed import StreamItem
from tenure.control.messages.events import GetEvents
from tenure.control.messages.jobs import Problem, ProblemKind, Redirect
from tenure.control.messages.operations import BY_NAME
from tenure.control.messages.wire import Reply, Request
from tenure.control.port_security import BARE, Front
from tenure.control.tls import ServerTls
from tenure.control.transport import HttpServer
from tenure.errors import NodeUnavailableError
from tenure.health.piggyback import NodeType
from tenure.ids import new_id
from tenure.jobs.settings import MAX_STATE_BUDGET, STUCK_THRESHOLD_S, JobSettings, check_positive
from tenure.nodes.fleet.settings import HEALTHCHECK_S, FleetSettings
from tenure.nodes.gossip_pool import TELL_EVERY_S, Pool, PoolSettings, pooled
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.manager.metrics import NodeMetrics
from tenure.nodes.manager.node_handlers import Presence
from tenure.nodes.process import Environment, check_candidate, open_engine, own_loopback, until_stopped
from tenure.randomness import fresh_random

DEFAULT_PORT = 8470
PATIENCE_S = 10.0
"""The seconds that the leader may take for its answer, beyond the `wait_s` of the request."""


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """The settings of one manager process."""

    engine_url: str
    name: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 takes a free port, which the first line of the log names."""
    advertise: str = ""
    """The host:port under which others reach this manager; empty for the address where it listens."""
    token: str = ""
    tokens_file: str = ""
    """A file of tokens with names and roles. With it, `token` is only the one that this node itself shows to others."""
    tls: ServerTls | None = None
    limits: HttpLimits = field(default_factory=HttpLimits)
    term_s: float = 10.0
    """The seconds for which the other managers wait for a leader that fell silent."""
    stuck_s: float = STUCK_THRESHOLD_S
    """A job without progress for these seconds is stuck, unless its submission sets another threshold."""
    healthcheck_s: float = HEALTHCHECK_S
    """A worker without proof of life or progress for these seconds is suspect, and then evicted."""
    gossip: PoolSettings = field(default_factory=PoolSettings)
    datacenter: str = "local"
    """The name by which gates know the datacenter of this manager."""
    report_s: float = 10.0
    """The seconds between two reports to a gate on each of its jobs."""
    fallback_s: float = 300.0
    """A local timeout that no gate has answered for these seconds is executed here."""
    keep_finished_s: float = 3_600.0
    """The seconds for which a finished job stays in memory and in lists; fewer when its room is needed."""
    state_budget: int = MAX_STATE_BUDGET
    """The bytes of state at which the leader refuses new jobs."""

    def __post_init__(self) -> None:
        _ = self.front  # raises for a port that is not protected
        check_candidate(self.name, self.term_s)
        for name in ("stuck_s", "report_s", "fallback_s"):
            check_positive(name, getattr(self, name))
        _ = self.setup  # its parts raise by rules of their own
        check(self.datacenter, DatacenterName, field="datacenter")

    @property
    def setup(self) -> ManagerSetup:
        jobs = JobSettings(
            stuck_threshold=self.stuck_s,
            report_interval=self.report_s,
            fallback_after=self.fallback_s,
            archive_after=self.keep_finished_s,
            state_budget=self.state_budget,
        )
        fleet = FleetSettings(healthcheck_s=self.healthcheck_s)
        return ManagerSetup(self.datacenter, self.term_s, jobs, fleet)

    @property
    def front(self) -> Front:
        return Front(self.host, self.token, self.tokens_file, self.tls)


async def serve(
    settings: ManagerSettings,
    stop: asyncio.Event,
    *,
    say: Callable[[str], None],
    on_ready: Callable[[str], None] = lambda address: None,
    clock: Clock | None = None,
) -> None:
    """Runs until `stop` is set; then resigns, so that the next leader need not wait for the end of our term."""
    clock = clock or SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        engine, calls = await stack.enter_async_context(open_engine(settings.engine_url, clock))
        entering = pooled(settings.gossip, settings.name, NodeType.MANAGER, clock=clock, say=say)
        pool = await stack.enter_async_context(entering)
        front, door, metrics = settings.front, Door(), NodeMetrics()
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
            about={"node": "manager", "node_name": settings.name, "datacenter": settings.datacenter},
            log=AccessLog(lambda line: say(f"audit {line}"), metrics.answered, clock, metrics.dropped),
            clock=clock,
        )
        port = await server.start()
        say(f"serves {front.scheme}{settings.host}:{port}")
        if front.bare:
            say(BARE)
        try:
            address = settings.advertise or f"{front.scheme}{settings.host}:{port}"
            environment = Environment(engine, calls, clock, fresh_random(), new_id, say)
            with contextlib.closing(HttpCaller(token=settings.token, source=own_loopback(settings.host))) as caller:
                manager = Manager(
                    settings.name,
                    address,
                    environment,
                    settings.setup,
                    gates=caller,
                    pool=pool,
                    metrics=metrics.manager,
                )
                metrics.watch(manager)
                started = clock.wall()
                presence = Presence(
                    engine,
                    calls,
                    clock,
                    node=lambda: manager.node(settings.name, address, started),
                    now=manager.now,
                )
                door.following = Following(manager, caller)
                door.manager = manager
                on_ready(address)
                with front.reloading(server, say):
                    loops = {"manager": manager.run, "presence": presence.run}
                    if pool is not None:
                        loops["pool"] = partial(_tell_pool, manager, pool, clock)
                    await until_stopped(stop, manager.leadership.keeper.keep_all(loops))
        finally:
            await server.stop()


async def _tell_pool(manager: Manager, pool: Pool, clock: Clock) -> None:
    while True:
        workers = manager.standings()
        pool.tell_fleet(
            reads=manager.ledger.seq > 0,
            free=sum(one.free for one in workers),
            running=sum(one.running for one in workers),
            workers=len(workers),
        )
        await clock.async_sleep(TELL_EVERY_S)


class Door:
    """Answers at the port until the manager is there. The port opens first, because its address is part of the manager's name."""

    manager: Manager | None = None
    following: Following | None = None

    async def follow(self, request: Request, token: str) -> Reply | None:
        return await self.following(request, token) if self.following is not None else None

    async def answer(self, sender: str, request: Request) -> Reply:
        if self.manager is None:
            return Problem(kind=ProblemKind.UNAVAILABLE, fact="this node is starting", retryable=True)
        return await self.manager.answer(sender, request)

    def ready(self) -> tuple[bool, Any]:
        """Tells an orchestrator if this manager can answer, with the reasons if it cannot, and every alarm that stands."""
        if self.manager is None:
            return False, {"ready": False, "reasons": {"node": "it is starting"}, "alarms": []}
        reasons = self.manager.unready
        alarms = [{"kind": one.kind, "subject": one.subject, "text": str(one)} for one in self.manager.observer.alarms]
        return not reasons, {"ready": not reasons, "reasons": reasons, "alarms": alarms}

    async def streams(self, request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
        if self.manager is None:
            raise NodeUnavailableError("this node is starting")
        async with contextlib.aclosing(self.manager.events.stream(request)) as stream:
            async for batch in stream:
                yield batch


class Following:
    """Fetches the leader's answer for a caller that cannot follow a redirect: a browser sends neither tokens nor requests to another host.

    It asks in the name of the caller, with its token if it gave one: the caller may do no more through this node than at the leader.
    """

    def __init__(self, manager: Manager, caller: HttpCaller) -> None:
        self._manager, self._caller = manager, caller

    async def __call__(self, request: Request, token: str) -> Reply | None:
        """Returns the leader's answer; None when this node should answer: it leads, it knows no leader, or the leader does not answer a read."""
        address = self._manager.leader_address
        if not address:
            return None
        wait_s: float = getattr(request, "wait_s", 0.0)
        try:
            reply = await self._caller.ask(address, request, PATIENCE_S + wait_s, token=token)
        except NodeUnavailableError as error:
            if BY_NAME[str(request.__struct_config__.tag)].reads:
                return None
            return Problem(kind=ProblemKind.UNAVAILABLE, fact=error.fact, remedy="Ask again", retryable=True)
        # We ask without the header that the caller gave us, so the other node passes nothing on: a request travels once.
        return None if isinstance(reply, Redirect) else reply

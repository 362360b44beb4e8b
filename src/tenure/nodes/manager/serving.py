"""Runs a manager as a process: makes it of an open engine and port, with its entry in the list of managers and its gossip pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tenure.bound_checks import check
from tenure.bounds import DatacenterName
from tenure.clock import Clock, SystemClock
from tenure.control.async_caller import HttpCaller
from tenure.control.messages.jobs import Problem, ProblemKind, Redirect
from tenure.control.messages.operations import BY_NAME
from tenure.control.messages.wire import Reply, Request
from tenure.errors import NodeUnavailableError
from tenure.health.piggyback import NodeType
from tenure.jobs.settings import MAX_STATE_BUDGET, STUCK_THRESHOLD_S, JobSettings, check_positive
from tenure.nodes.fleet.settings import HEALTHCHECK_S, FleetSettings
from tenure.nodes.gossip_pool import TELL_EVERY_S, Pool, PoolSettings, pooled
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.manager.metrics import NodeMetrics
from tenure.nodes.manager.node_handlers import Presence
from tenure.nodes.node_process import AnsweringNode, NodeSettings, node_process, readiness

DEFAULT_PORT = 8470
PATIENCE_S = 10.0
"""The seconds that the leader may take for its answer, beyond the `wait_s` of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings(NodeSettings):
    """The settings of one manager process."""

    port: int = DEFAULT_PORT
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
        NodeSettings.__post_init__(self)  # `super()` does not find the class that `slots` makes anew
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


async def serve(
    settings: ManagerSettings,
    stop: asyncio.Event,
    *,
    say: Callable[[str], None],
    on_ready: Callable[[str], None] = lambda address: None,
    clock: Clock | None = None,
) -> None:
    """Runs until `stop` is set; then resigns, so that the next leader need not wait for the end of our term."""
    clock, metrics = clock or SystemClock(), NodeMetrics()
    about = {"node": "manager", "datacenter": settings.datacenter}
    async with (
        node_process(settings, about, metrics, kind="node", clock=clock, say=say) as process,
        pooled(settings.gossip, settings.name, NodeType.MANAGER, clock=clock, say=say) as pool,
    ):
        environment, address, started = process.environment, process.address, clock.wall()
        manager = Manager(
            settings.name,
            address,
            environment,
            settings.setup,
            gates=process.caller,
            pool=pool,
            metrics=metrics.manager,
        )
        metrics.watch(manager)
        presence = Presence(
            environment.engine,
            environment.calls,
            clock,
            node=lambda: manager.node(settings.name, address, started),
            now=manager.now,
        )
        loops = {"manager": manager.run, "presence": presence.run}
        if pool is not None:
            loops["pool"] = partial(_tell_pool, manager, pool, clock)
        life = partial(manager.leadership.keeper.keep_all, loops)
        await process.run(answering(manager, Following(manager, process.caller)), life, stop, on_ready)


def answering(manager: Manager, follow: Following | None = None) -> AnsweringNode:
    """Returns the parts of a manager that its port calls."""
    return AnsweringNode(
        manager.answer,
        manager.events.stream,
        lambda: readiness(manager.unready, manager.observer.alarms),
        follow,
    )


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

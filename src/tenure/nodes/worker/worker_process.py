"""The thread of a worker process in which its node reports to the leader. The node has an event loop and an engine of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from functools import partial

from tenure.bound_checks import check
from tenure.bounds import WorkerName
from tenure.clock import Clock
from tenure.control.async_caller import HttpCaller
from tenure.engines.aio import calling
from tenure.engines.contracts import Engine
from tenure.engines.urls import PatientOpening
from tenure.errors import EngineWentBackError, TenureError
from tenure.health.node_states import NodeType
from tenure.health.overload import OverloadState
from tenure.logs import NodeLog
from tenure.nodes.gossip_pool import EngineSeeds, Pool, pooled
from tenure.nodes.loop_keeper import LoopKeeper, ProductFailures
from tenure.nodes.pool_settings import PoolSettings
from tenure.nodes.process import Environment, await_engine
from tenure.nodes.slot_runner import SlotsView
from tenure.nodes.worker.supervised_slots import SupervisedSlots
from tenure.nodes.worker.worker import ManagedWorker, ReportSettings
from tenure.randomness import fresh_random, new_id

LEAVE_S = 2.0
"""The seconds for which a worker that ends tries to tell the leader."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker's node."""

    name: str
    engine_url: str
    token: str = ""
    version: str = ""
    gossip: PoolSettings = field(default_factory=PoolSettings)

    def __post_init__(self) -> None:
        if self.name:  # a worker that reports to no manager may have none
            check(self.name, WorkerName, field="name")


class WorkerThread:
    """The thread of a worker's node. `start` it beside the supervisor; `stop` it after the supervisor ended, so that the leader learns of it."""

    def __init__(self, settings: WorkerSettings, runner: SupervisedSlots, *, clock: Clock, log: NodeLog) -> None:
        self._settings, self._runner, self._clock, self._log = settings, runner, clock, log
        self.node: ManagedWorker | None = None
        """The node; None before the engine answered for the first time."""
        self._keeper = LoopKeeper(clock, fresh_random(), ProductFailures(clock, log))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, name="tenure-node", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Has the node tell the leader that it leaves, and ends the thread. Waits for it for `LEAVE_S` and a second at most."""
        if self._loop is None or self._stop is None:
            return
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        self._ended.wait(LEAVE_S + 1.0)

    def _live(self) -> None:
        try:
            asyncio.run(self._main())
        except EngineWentBackError as error:
            # A node without its engine would leave the slots alone, and nobody would see them.
            self._runner.engine_lost(error)
        finally:
            self._ready.set()
            self._ended.set()

    async def _main(self) -> None:
        """Starts the node again whenever it fails: without it, no leader would see that the attempts of this worker begin."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        # While the node rests, work goes on, and results wait in the engine.
        await self._keeper.keep("worker node", partial(self._life, self._stop), stop=self._stop)

    async def _life(self, stop: asyncio.Event) -> None:
        """Runs the node until `stop` is set. Raises the exception that ends the node before."""
        engine = await self._open_engine(stop)
        if engine is None:
            return
        async with calling(engine) as calls:
            environment = Environment(engine, calls, self._clock, fresh_random(), new_id, self._log)
            with contextlib.closing(HttpCaller(token=self._settings.token)) as caller:
                await self._work(environment, caller, stop)

    async def _open_engine(self, stop: asyncio.Event) -> Engine | None:
        """Opens the engine, and waits for one that is away, as the supervisor does, which says so. Returns None when `stop` is set meanwhile."""
        opening = PatientOpening(self._settings.engine_url, self._clock, fresh_random(), lambda text: None)
        return await await_engine(opening, self._clock, stop)

    async def _work(self, environment: Environment, caller: HttpCaller, stop: asyncio.Event) -> None:
        name, gossip = self._settings.name, self._settings.gossip
        async with contextlib.AsyncExitStack() as stack:
            try:
                found = EngineSeeds(environment.engine, environment.calls, self._settings.engine_url)
                entering = pooled(gossip, name, NodeType.WORKER, clock=self._clock, log=self._log, found=found)
                pool = await stack.enter_async_context(entering)
            except (TenureError, OSError) as error:
                self._log.warning(f"this worker does not gossip: {error}")
                pool = None
            await self._live_as_node(environment, caller, stop, pool)

    async def _live_as_node(
        self, environment: Environment, caller: HttpCaller, stop: asyncio.Event, pool: Pool | None
    ) -> None:
        def on_view(view: SlotsView, overload: OverloadState) -> None:
            if pool is not None:
                pool.tell_slots(view, overload, self._runner.incarnation)

        node = self.node = ManagedWorker(
            self._settings.name,
            self._runner,
            environment,
            caller,
            ReportSettings(version=self._settings.version),
            on_view=on_view,
            number=self.node.number if self.node is not None else 0,
            keeper=self._keeper,
        )
        living = asyncio.create_task(node.run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([living, stopping], return_when=asyncio.FIRST_COMPLETED)
            if living.done():
                living.result()
        finally:
            stopping.cancel()
            living.cancel()
            await asyncio.gather(living, stopping, return_exceptions=True)
        # Not `asyncio.wait_for`: on Python 3.11 it loses a cancellation that comes in the moment in which the call ends.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await node.leave()

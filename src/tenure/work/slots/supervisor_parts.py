"""Puts the parts of a supervisor together: its desk, the supervision of attempts, and the pool of slots."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tenure.beat.board import BeatBoard, BoardIdentity
from tenure.clock import Clock
from tenure.engines.contracts import Engine
from tenure.engines.urls import PatientOpening
from tenure.errors import EngineWentBackError
from tenure.logs import NodeLog
from tenure.randomness import IdSource
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.log_lines import FileLines, LogPublisher
from tenure.work.result_signatures import signer_for
from tenure.work.slots.attempt_supervision import AttemptSupervision
from tenure.work.slots.claim_page import ClaimPage
from tenure.work.slots.delivery_calls import DeliveryCalls
from tenure.work.slots.delivery_desk import DeliveryDesk
from tenure.work.slots.fork_messages import PrepareModules
from tenure.work.slots.interpreters import BegunServer
from tenure.work.slots.processes import read_stat
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.slot_deliveries import SlotDeliveries
from tenure.work.slots.slot_launcher import SlotLauncher
from tenure.work.slots.slot_pool import SlotListener, SlotPool

if TYPE_CHECKING:
    from tenure.work.job_submission import JobCourier


class SupervisorParts(NamedTuple):
    """The parts of a supervisor that runs."""

    page: ClaimPage
    desk: DeliveryDesk
    attempts: AttemptSupervision
    pool: SlotPool


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorContext:
    """The things that the parts share."""

    settings: SlotSettings
    modules: list[str]
    incarnation: str
    worker: str
    board: BeatBoard
    page: ClaimPage
    folder: Path
    clock: Clock
    random: Random
    ids: IdSource
    log: NodeLog
    errors: IsolatedErrors
    launcher: SlotLauncher
    engine_threads: Executor
    courier_threads: Executor
    courier: Callable[[], JobCourier]
    later: Callable[[Callable[[], None]], None]
    """Brings a call to the supervisor's thread."""
    on_handed_over: Callable[[], None]
    """Called from any thread after work was handed to a slot."""
    on_engine_lost: Callable[[EngineWentBackError], None]


class SharedCourier:
    """The connection to the managers, which is made when a workflow first submits a job. Safe to use from several threads."""

    def __init__(self, settings: SlotSettings, engine_url: str) -> None:
        self._settings, self._engine_url = settings, engine_url
        self._lock = threading.Lock()
        self._made: JobCourier | None = None

    def get(self) -> JobCourier:
        from tenure.work.job_submission import courier_from  # most workers submit nothing, and shall start quickly

        with self._lock:
            if self._made is None:
                self._made = courier_from(self._settings.courier, self._engine_url, self._settings.token)
            return self._made


def make_launcher(
    settings: SlotSettings,
    modules: list[str],
    incarnation: str,
    selector: selectors.BaseSelector,
    clock: Clock,
    log: NodeLog,
    begun: BegunServer | None = None,
) -> SlotLauncher:
    order = PrepareModules(modules, os.getpid(), settings.memory_limit_mb)
    return SlotLauncher(settings.slot_start, order, incarnation, selector, clock=clock, log=log, begun=begun)


def open_engine(
    settings: SlotSettings, url: str, clock: Clock, random: Random, log: NodeLog, leaves: Callable[[], bool]
) -> Engine | None:
    """Returns the engine; None when a drain began while it was waited for."""
    if not settings.waits_for_engine:
        return Engine.open(url, clock=clock)
    opening = PatientOpening(url, clock, random, log.warning)
    while not leaves():
        engine = opening.attempt()
        if engine is not None:
            return engine
        again_at = clock.monotonic() + opening.pause_s
        while not leaves() and clock.monotonic() < again_at:
            clock.sleep(settings.tick_s)
    return None


def own_identity(incarnation: str, worker: str, engine_name: str, clock: Clock) -> BoardIdentity:
    """Returns what the board says about this process."""
    own = read_stat(os.getpid())
    return BoardIdentity(
        incarnation=incarnation,
        pid=os.getpid(),
        pid_started=own.started if own else 0,
        boot_id=clock.boot_id(),
        engine=engine_name,
        worker=worker,
    )


def make_parts(
    context: SupervisorContext, engine: Engine, selector: selectors.BaseSelector, listener: SlotListener
) -> SupervisorParts:
    lines = FileLines(context.folder)
    pool = SlotPool(
        context.settings,
        selector,
        modules=context.modules,
        board=context.board.path,
        claims=context.page.path,
        folder=context.folder,
        incarnation=context.incarnation,
        worker=context.worker,
        launcher=context.launcher,
        clock=context.clock,
        log=context.log,
        listener=listener,
        errors=context.errors,
    )
    desk = _make_desk(context, engine, lines)
    return SupervisorParts(context.page, desk, _make_attempts(context, engine, lines, desk, pool), pool)


def _make_desk(context: SupervisorContext, engine: Engine, lines: FileLines) -> DeliveryDesk:
    calls = DeliveryCalls(
        engine,
        context.worker,
        lines,
        context.engine_threads,
        context.courier_threads,
        context.courier,
        clock=context.clock,
        random=context.random,
        log=context.log,
        errors=context.errors,
        on_engine_lost=context.on_engine_lost,
        signer=signer_for(context.settings.result_keys, context.worker),
    )
    return DeliveryDesk(
        context.settings,
        engine,
        context.page,
        context.worker,
        calls,
        clock=context.clock,
        random=context.random,
        ids=context.ids,
        log=context.log,
        errors=context.errors,
        on_handed_over=context.on_handed_over,
        on_engine_lost=context.on_engine_lost,
    )


def _make_attempts(
    context: SupervisorContext, engine: Engine, lines: FileLines, desk: DeliveryDesk, pool: SlotPool
) -> AttemptSupervision:
    deliveries = SlotDeliveries(
        engine,
        context.worker,
        lines,
        clock=context.clock,
        random=context.random,
        log=context.log,
        on_engine_lost=context.on_engine_lost,
        claimed=desk.message_of,
        signer=signer_for(context.settings.result_keys, context.worker),
    )
    return AttemptSupervision(
        context.settings,
        context.board,
        lambda: pool.slots,
        deliveries,
        LogPublisher(engine.store("logs"), lines, context.clock, context.engine_threads.submit),
        context.engine_threads,
        context.later,
        clock=context.clock,
        log=context.log,
        errors=context.errors,
    )

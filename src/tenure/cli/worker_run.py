"""Runs a worker: its supervisor, and with managers its node."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from tenure import __version__
from tenure.bound_checks import check
from tenure.bounds import Priority, QueueName, WorkerName, as_name
from tenure.cli.node_options import stop_signals
from tenure.cli.worker import ProbePort, WorkerOptions
from tenure.clock import SystemClock
from tenure.jobs.mailbox_names import mailbox_name
from tenure.logs import NodeLog, node_log
from tenure.nodes.pool_settings import PoolSettings
from tenure.nodes.worker.supervised_slots import CONNECT, SupervisedSlots
from tenure.service_manager import ServiceManager
from tenure.work.result_signatures import read_result_keys
from tenure.work.slots.interpreters import BegunServer
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.supervisor import BROKEN, ENGINE_LOST, Supervisor

if TYPE_CHECKING:
    from tenure.nodes.worker.worker_process import WorkerThread

ENDINGS = {
    0: (logging.INFO, "drained"),
    ENGINE_LOST: (logging.ERROR, "the engine lost what it had accepted; the lines above say more"),
    BROKEN: (logging.ERROR, "the modules cannot be served; the lines above say why"),
}
"""The last line of a worker's log, by its exit code."""


def run_worker(
    modules: list[str],
    url: str,
    name: str,
    pool: PoolSettings,
    options: WorkerOptions,
    probes: ProbePort | None,
    log_format: str,
    begun: BegunServer | None,
) -> int:
    """Serves until a drain. Returns the exit code. `begun`: the fork server of the first supervisor."""
    settings, managed = _slot_settings(options), options.managed
    if name:
        check(name, WorkerName, field="name")
    name = name or (as_name(f"{socket.gethostname()[:80]}-{os.getpid()}") if managed else "")
    log, service, clock = node_log("worker", name, log_format), ServiceManager(), SystemClock()
    servers = [begun] if begun is not None else []  # a supervisor that follows after an eviction starts its own

    def supervisor(on_change: Callable[[], None]) -> Supervisor:
        server = servers.pop() if servers else None
        made = Supervisor(modules, url, settings, log=log, worker=name, on_change=on_change, begun=server)
        made.on_turn = lambda: service.turned(clock.monotonic(), ready=made.ready.is_set())
        log.info(f"incarnation {made.incarnation}: {settings.slots} slots on {', '.join(map(repr, settings.lanes))}")
        return made

    runner = SupervisedSlots(supervisor, clock=clock)
    _obey_signals(runner, service)
    node = _started_node(name, url, settings.token, pool, runner, log) if managed else None
    with _probed(runner, node, probes, log):
        code = runner.run()
        if node is not None:
            node.stop()
    log.log(*ENDINGS[code])
    return code


def _slot_settings(options: WorkerOptions) -> SlotSettings:
    lanes = lanes_of(options.queues, options.priorities) if options.managed else options.queues or ("work",)
    return SlotSettings(
        queue=lanes[0],
        more_queues=lanes[1:],
        slots=options.slots,
        concurrency=options.concurrency,
        lease_s=options.lease,
        claim_s=min(10.0, options.lease / 2),
        stall_s=options.stall,
        grace_s=options.grace,
        settle_s=options.settle,
        memory_limit_mb=options.memory_limit,
        drain="handover" if options.drain == "handover" else "finish",
        drain_timeout_s=options.drain_timeout,
        handover_s=options.handover_within,
        slot_start=options.slot_start,
        courier=CONNECT if options.managed else "",
        token=options.token,
        result_keys=read_result_keys(options.result_key_file),
        waits_for_engine=True,
    )


# What only some workers need is imported where it is needed: the others shall start quickly.


def _started_node(
    name: str, url: str, token: str, pool: PoolSettings, runner: SupervisedSlots, log: NodeLog
) -> WorkerThread:
    """Returns the node of a managed worker, which reports to the leader from now on."""
    from tenure.nodes.worker.worker_process import WorkerSettings, WorkerThread

    node = WorkerThread(WorkerSettings(name, url, token, __version__, pool), runner, clock=SystemClock(), log=log)
    node.start()
    return node


@contextmanager
def _probed(slots: SupervisedSlots, node: WorkerThread | None, port: ProbePort | None, log: NodeLog) -> Iterator[None]:
    """Serves the probes of this worker within the block, where a port is given."""
    if port is None:
        yield
        return
    from tenure.nodes.worker.metrics import serve_probes

    server = serve_probes(slots, lambda: node.node if node is not None else None, port.host, port.port, SystemClock())
    log.info(f"probes on {server.address}")
    try:
        yield
    finally:
        server.stop()


def lanes_of(queues: tuple[str, ...], priorities: tuple[int, ...]) -> tuple[str, ...]:
    """Returns the mailboxes of these queues, highest priority first; within one priority in the order given."""
    for queue in queues:
        check(queue, QueueName, field="queue")
    for priority in priorities:
        check(priority, Priority, field="priority")
    ordered = sorted(set(priorities), reverse=True)
    return tuple(mailbox_name(queue, priority) for priority in ordered for queue in queues or ("default",))


def _obey_signals(slots: SupervisedSlots, service: ServiceManager) -> None:
    def on_signal(number: int, frame: FrameType | None) -> None:
        slots.drain()
        service.stopping()

    for number in stop_signals():
        signal.signal(number, on_signal)

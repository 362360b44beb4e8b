"""`tenure worker MODULE`: serves the workflows of a module, each in a slot process that can be killed alone."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal, NamedTuple

import click

from tenure import __version__, machine
from tenure.bound_checks import check
from tenure.bounds import Priority, QueueName, as_name
from tenure.cli.option_sections import GOSSIP, SectionedCommand
from tenure.cli.options import friendly, gossip_options, log_format_option, one_value, result_key_option, stop_signals
from tenure.clock import SystemClock
from tenure.jobs.outbox import mailbox_name
from tenure.logs import NodeLog, node_log
from tenure.nodes.gossip_pool import PoolSettings
from tenure.nodes.worker.courier import CONNECT
from tenure.nodes.worker.metrics import serve_probes
from tenure.nodes.worker.worker_process import SupervisedSlots, WorkerSettings, WorkerThread
from tenure.service_manager import ServiceManager
from tenure.work.result_signatures import read_result_keys
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.supervisor import BROKEN, ENGINE_LOST, Supervisor

ENDINGS = {
    0: (logging.INFO, "drained"),
    ENGINE_LOST: (logging.ERROR, "the engine lost what it had accepted; the lines above say more"),
    BROKEN: (logging.ERROR, "the modules cannot be served; the lines above say why"),
}
"""The last line of a worker's log, by its exit code."""


class ProbePort(NamedTuple):
    """The address at which an orchestrator asks for the health of this worker."""

    host: str
    port: int


def _probe_port(health_host: str, health_port: int | None) -> ProbePort | None:
    return None if health_port is None else ProbePort(health_host, health_port)


def _hide_unless(context: click.Context, option: click.Parameter, debuggable: bool) -> None:
    """Hides this process from its slots, which run as the same user: they get neither the engine's URL nor the token (0481)."""
    if not debuggable and not context.resilient_parsing:
        machine.here.hide_memory()


def _slot_settings(
    queues: tuple[str, ...],
    managed: bool,
    priorities: tuple[int, ...],
    token: str,
    slots: int,
    concurrency: int,
    lease: float,
    stall: float,
    grace: float,
    settle: float | None,
    memory_limit: int | None,
    drain: str,
    drain_timeout: float,
    handover_within: float,
    result_key_file: str,
    slot_start: Literal["auto", "fork", "spawn"],
) -> SlotSettings:
    lanes = lanes_of(queues, priorities) if managed else queues or ("work",)
    return SlotSettings(
        queue=lanes[0],
        more_queues=lanes[1:],
        slots=slots,
        concurrency=concurrency,
        lease_s=lease,
        claim_s=min(10.0, lease / 2),
        stall_s=stall,
        grace_s=grace,
        settle_s=settle,
        memory_limit_mb=memory_limit,
        drain="handover" if drain == "handover" else "finish",
        drain_timeout_s=drain_timeout,
        handover_s=handover_within,
        slot_start=slot_start,
        courier=CONNECT if managed else "",
        token=token,
        result_keys=read_result_keys(result_key_file),
        waits_for_engine=True,
    )


@click.command(
    "worker",
    cls=SectionedCommand,
    sections={
        "What it serves": "--engine --managed --queue --priority --name",
        "Slots": "--slots --concurrency --memory-limit --slot-start",
        "When work is silent": "--stall --grace --lease --settle",
        "When it ends": "--drain --drain-timeout --handover-within",
        "Watched and trusted": "--token --result-key-file --debuggable --health-port --health-host --log-format",
        "Gossip": GOSSIP,
    },
)
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option("--engine", "url", required=True, envvar="TENURE_ENGINE", help="The engine's URL; or set TENURE_ENGINE.")
@click.option("--name", default="", help="Names this worker; by default the host's name and the process id.")
@click.option(
    "--queue", "queues", multiple=True, help="The queue to serve: work, or with --managed default. Repeatable."
)
@click.option("--managed", is_flag=True, help="Serve what the datacenter's managers dispatch to the queue.")
@click.option(
    "--priority",
    "priorities",
    multiple=True,
    type=int,
    default=(0,),
    show_default=True,
    help="With --managed: a priority of the queues to serve. Repeatable; higher ones go first.",
)
@click.option("--token", default="", envvar="TENURE_TOKEN", help="With --managed: the datacenter's token.")
@click.option("--slots", default=os.cpu_count() or 2, show_default=True, help="Processes that each run one workflow.")
@click.option("--concurrency", default=1, show_default=True, help="Async workflows that one slot runs at once.")
@click.option(
    "--lease", default=60.0, show_default=True, help="Seconds after which silent work may be taken by others."
)
@click.option("--stall", default=300.0, show_default=True, help="Seconds without a beat before a workflow is ended.")
@click.option("--grace", default=5.0, show_default=True, help="Seconds between the request to stop and SIGKILL.")
@click.option(
    "--settle",
    type=float,
    help="Seconds in which the outcome of ended work must be written. [default: as the lease, at least 10]",
)
@click.option("--memory-limit", type=int, help="Megabytes of address space for one slot.")
@click.option(
    "--slot-start",
    type=click.Choice(["auto", "fork", "spawn"]),
    default="spawn",
    show_default=True,
    help="Start each slot anew, or fork it from a process that imported the modules once; auto forks where that is safe.",
)
@click.option(
    "--drain",
    type=click.Choice(["finish", "handover"]),
    default="finish",
    show_default=True,
    help="On SIGTERM: let running work finish, or stop it and let another worker resume from its checkpoint.",
)
@click.option("--drain-timeout", default=3600.0, show_default=True, help="Seconds after which a drain hands over.")
@click.option(
    "--handover-within",
    default=0.0,
    show_default=True,
    help="With --drain handover: seconds in which each attempt may wait for its next checkpoint or step before it stops.",
)
@one_value(
    "probes",
    _probe_port,
    click.option(
        "--health-port", type=int, help="Serve /health/live, /health/ready and /metrics here; 0 for a free port."
    ),
    click.option("--health-host", default="127.0.0.1", show_default=True, help="Where; an orchestrator needs 0.0.0.0."),
)
@click.option(
    "--debuggable",
    is_flag=True,
    expose_value=False,
    callback=_hide_unless,
    help="Let debuggers, profilers and core files of this user see this process. The code of workflows can then read its secrets, too.",
)
@result_key_option
@log_format_option
@gossip_options
@one_value("settings", _slot_settings)
def worker(
    modules: tuple[str, ...],
    url: str,
    pool: PoolSettings,
    name: str,
    settings: SlotSettings,
    probes: ProbePort | None,
    log_format: str,
) -> None:
    """Serve the workflows of MODULE (a dotted name or a .py file): with --managed the jobs of a datacenter, else what programs send to a queue.

    \b
    Example:
      tenure worker app.py --engine sqlite:///tenure.db --slots 4
      tenure worker app.py --engine sqlite:///tenure.db --managed
      tenure worker app.py --engine sqlite:///tenure.db --managed --queue web --queue batch --priority 0 --priority 9

    SIGTERM, SIGHUP or Ctrl-C drains: nothing new is claimed, running work ends as --drain says. A second one hands over now.
    The exit code is 0 after a drain, 1 when the engine lost what it had accepted, 2 when the modules cannot be served.
    """
    managed = bool(settings.courier)
    name = name or (as_name(f"{socket.gethostname()[:80]}-{os.getpid()}") if managed else "")
    log, service, clock = node_log("worker", name, log_format), ServiceManager(), SystemClock()

    def supervisor(on_change: Callable[[], None]) -> Supervisor:
        made = Supervisor(list(modules), url, settings, log=log, worker=name, on_change=on_change)
        made.on_turn = lambda: service.turned(clock.monotonic(), ready=made.ready.is_set())
        log.info(f"incarnation {made.incarnation}: {settings.slots} slots on {', '.join(map(repr, settings.lanes))}")
        return made

    with friendly():
        runner = SupervisedSlots(supervisor, clock=clock)
        _obey_signals(runner, service)
        node = WorkerThread(WorkerSettings(name, url, settings.token, __version__, pool), runner, clock=clock, log=log)
        if managed:
            node.start()
        with _probed(runner, node, probes, log):
            code = runner.run()
            node.stop()
    log.log(*ENDINGS[code])
    raise SystemExit(code)


@contextmanager
def _probed(slots: SupervisedSlots, node: WorkerThread, port: ProbePort | None, log: NodeLog) -> Iterator[None]:
    """Serves the probes of this worker within the block, where a port is given."""
    if port is None:
        yield
        return
    server = serve_probes(slots, lambda: node.node, port.host, port.port, SystemClock())
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

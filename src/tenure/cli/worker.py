"""`tenure worker MODULE`: serves the workflows of a module, each in a slot process that can be killed alone."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

import click

from tenure import __version__
from tenure.bound_checks import check
from tenure.bounds import Priority, QueueName, as_name
from tenure.cli.options import gossip_options, log_format_option
from tenure.clock import SystemClock
from tenure.errors import TenureError
from tenure.jobs.outbox import mailbox_name
from tenure.logs import node_log
from tenure.nodes.gossip_pool import PoolSettings
from tenure.nodes.worker.courier import CONNECT
from tenure.nodes.worker.metrics import serve_probes
from tenure.nodes.worker.worker_process import SupervisedSlots, WorkerSettings, WorkerThread
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.supervisor import Supervisor


@click.command("worker")
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
    "--drain",
    type=click.Choice(["finish", "handover"]),
    default="finish",
    show_default=True,
    help="On SIGTERM: let running work finish, or stop it and let another worker resume from its checkpoint.",
)
@click.option("--drain-timeout", default=3600.0, show_default=True, help="Seconds after which a drain hands over.")
@click.option("--health-port", type=int, help="Serve /health/live, /health/ready and /metrics here; 0 for a free port.")
@click.option("--health-host", default="127.0.0.1", show_default=True, help="Where; an orchestrator needs 0.0.0.0.")
@log_format_option
@gossip_options
def worker(
    modules: tuple[str, ...],
    url: str,
    pool: PoolSettings,
    name: str,
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
    health_port: int | None,
    health_host: str,
    log_format: str,
) -> None:
    """Serve the workflows of MODULE (a dotted name or a .py file).

    \b
    Example:
      tenure worker app.py --engine sqlite:///tenure.db --slots 4
      tenure worker app.py --engine sqlite:///tenure.db --managed
      tenure worker app.py --engine sqlite:///tenure.db --managed --queue web --queue batch --priority 0 --priority 9

    SIGTERM or Ctrl-C drains: nothing new is claimed, running work ends as --drain says. A second one hands over now.
    The exit code is 0 after a drain, 2 when the modules cannot be served.
    """
    lanes = lanes_of(queues, priorities) if managed else queues or ("work",)
    try:
        settings = SlotSettings(
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
            courier=CONNECT if managed else "",
            token=token,
        )
        name = name or (as_name(f"{socket.gethostname()[:80]}-{os.getpid()}") if managed else "")
        say = node_log("worker", name, log_format)

        def supervisor(on_change: Callable[[], None]) -> Supervisor:
            made = Supervisor(list(modules), url, settings, say=say, worker=name, on_change=on_change)
            say(f"incarnation {made.incarnation}: {slots} slots on {', '.join(map(repr, lanes))}")
            return made

        runner = SupervisedSlots(supervisor, clock=SystemClock())
        _obey_signals(runner)
        about = WorkerSettings(name, url, token, __version__, pool)
        node = WorkerThread(about, runner, clock=SystemClock(), say=say)
        if managed:
            node.start()
        probes = None
        if health_port is not None:
            probes = serve_probes(runner, lambda: node.node, health_host, health_port, SystemClock())
            say(f"probes on {probes.address}")
        code = runner.run()
        node.stop()
        if probes is not None:
            probes.stop()
    except TenureError as error:
        raise click.ClickException(str(error)) from error
    say("drained" if code == 0 else "the modules cannot be served; the lines above say why")
    raise SystemExit(code)


def lanes_of(queues: tuple[str, ...], priorities: tuple[int, ...]) -> tuple[str, ...]:
    """Returns the mailboxes of these queues, highest priority first; within one priority in the order given."""
    for queue in queues:
        check(queue, QueueName, field="queue")
    for priority in priorities:
        check(priority, Priority, field="priority")
    ordered = sorted(set(priorities), reverse=True)
    return tuple(mailbox_name(queue, priority) for priority in ordered for queue in queues or ("default",))


def _obey_signals(slots: SupervisedSlots) -> None:
    def on_signal(number: int, frame: FrameType | None) -> None:
        slots.drain()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)

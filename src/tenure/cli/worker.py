"""`tenure worker MODULE`: serves the workflows of a module, each in a slot process that can be killed alone.

It imports what the options need. The worker's fork server has been started before (`tenure.cli`), and imports its part while the rest of the worker is imported here.
"""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

import click

from tenure import machine
from tenure.cli.node_options import (
    GOSSIP,
    SectionedCommand,
    friendly,
    gossip_options,
    log_format_option,
    one_value,
    result_key_option,
)
from tenure.nodes.pool_settings import PoolSettings
from tenure.work.slots.fork_messages import PrepareModules
from tenure.work.slots.interpreters import BegunServer


class ProbePort(NamedTuple):
    """The address at which an orchestrator asks for the health of this worker."""

    host: str
    port: int


def _probe_port(health_host: str, health_port: int | None) -> ProbePort | None:
    return None if health_port is None else ProbePort(health_host, health_port)


class WorkerOptions(NamedTuple):
    """The options that become settings of the slots."""

    queues: tuple[str, ...]
    managed: bool
    priorities: tuple[int, ...]
    token: str
    slots: int
    concurrency: int
    lease: float
    stall: float
    grace: float
    settle: float | None
    memory_limit: int | None
    drain: str
    drain_timeout: float
    handover_within: float
    result_key_file: str
    slot_start: Literal["auto", "fork", "spawn"]


def _hide_unless(context: click.Context, option: click.Parameter, debuggable: bool) -> None:
    """Hides this process from its slots, which run as the same user: they get neither the engine's URL nor the token (0481)."""
    if not debuggable and not context.resilient_parsing:
        machine.here.hide_memory()


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
    default="auto",
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
@one_value("options", WorkerOptions)
@click.pass_obj
def worker(
    begun: BegunServer | None,
    modules: tuple[str, ...],
    url: str,
    pool: PoolSettings,
    name: str,
    options: WorkerOptions,
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
    if begun is not None and options.slot_start == "spawn":
        begun.drop()
        begun = None
    if begun is not None:  # before the rest is imported: the user's modules are what a first job waits for
        begun.order(PrepareModules(list(modules), os.getpid(), options.memory_limit))
    with friendly():
        worker_run = machine.posix_module("tenure.cli.worker_run", "tenure worker")
        code = worker_run.run_worker(list(modules), url, name, pool, options, probes, log_format, begun)
    raise SystemExit(code)

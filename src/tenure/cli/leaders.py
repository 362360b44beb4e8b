"""`tenure manager` and `tenure gate`: the nodes that lead. One manager of a datacenter leads, and one gate of a cluster; the others stand by."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import click

from tenure import tracing
from tenure.cli.node_options import (
    GOSSIP,
    SectionedCommand,
    friendly,
    gossip_options,
    log_format_option,
    one_value,
    result_key_option,
    stop_signals,
)
from tenure.clock import SystemClock
from tenure.control.admission import HttpLimits
from tenure.control.messages.wire import GATE_PORT, MANAGER_PORT
from tenure.control.port_security import page_url
from tenure.control.tls import ServerTls
from tenure.errors import EngineError
from tenure.jobs.settings import GateSettings
from tenure.logs import NodeLog, node_log
from tenure.nodes.full_collections import collect_new_objects_only
from tenure.nodes.gate.probes import ProbeSettings
from tenure.nodes.gate.serving import GateNodeSettings, parse_datacenters, serve_gate
from tenure.nodes.manager.hooks import read_hooks
from tenure.nodes.manager.serving import ManagerSettings, serve
from tenure.nodes.pool_settings import PoolSettings
from tenure.service_manager import ServiceManager
from tenure.work.result_signatures import read_result_keys


class FrontOptions(NamedTuple):
    """The options of a node's port; named as in `NodeSettings`."""

    host: str
    token: str
    tokens_file: str
    tls: ServerTls | None
    limits: HttpLimits


def _front(
    host: str, rate_limit: float, token: str, tokens: str, tls_cert: str, tls_key: str, tls_client_ca: str
) -> FrontOptions:
    tls = ServerTls.from_options(tls_cert, tls_key, tls_client_ca)
    return FrontOptions(host, token, tokens, tls, HttpLimits(requests_per_s=rate_limit, burst=2 * rate_limit))


front_options = one_value(
    "front",
    _front,
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Where to listen; beyond loopback needs tokens or client certificates.",
    ),
    click.option(
        "--rate-limit",
        default=HttpLimits().requests_per_s,
        show_default=True,
        help="Requests a second that one caller may send on average, and twice as many at once.",
    ),
    click.option(
        "--token", default="", envvar="TENURE_TOKEN", help="One token that may do everything; or TENURE_TOKEN."
    ),
    click.option(
        "--tokens",
        default="",
        envvar="TENURE_TOKENS",
        metavar="FILE",
        help="Tokens with names and roles, as TOML or JSON; read anew on SIGHUP. Or TENURE_TOKENS.",
    ),
    click.option("--tls-cert", default="", metavar="FILE", help="Serve TLS with this certificate (PEM)."),
    click.option("--tls-key", default="", metavar="FILE", help="The certificate's key, if it is in a file of its own."),
    click.option("--tls-client-ca", default="", metavar="FILE", help="Let in only who shows a certificate of this CA."),
)
"""Adds the options of a port. The command gets one `FrontOptions` as `front`."""


class StateOptions(NamedTuple):
    """How much a manager keeps, and in which form; named as in `ManagerSettings`."""

    keep_finished_s: float
    keep_archive_s: float
    state_budget: int
    raise_format: bool


def _state_options(keep_finished: float, keep_archive: float, state_budget: float, raise_format: bool) -> StateOptions:
    return StateOptions(keep_finished, keep_archive, int(state_budget * 1_048_576), raise_format)


state_options = one_value(
    "state",
    _state_options,
    click.option(
        "--keep-finished", default=3600.0, show_default=True, help="Seconds that a finished job stays in lists."
    ),
    click.option(
        "--keep-archive",
        default=2_592_000.0,
        show_default=True,
        help="Seconds for which it can be read by its id after that: why, result, logs. A queue may have its own.",
    ),
    click.option(
        "--state-budget",
        default=192.0,
        show_default=True,
        help="MiB of state at which new jobs are refused; at most 48 until the format is raised.",
    ),
    click.option(
        "--raise-format",
        is_flag=True,
        help="Save the state in pages from now on. Earlier releases cannot read it then. A new datacenter does so by itself.",
    ),
)
"""Adds the options of a manager's state. The command gets one `StateOptions` as `state`."""


def _manager_settings(
    url: str,
    name: str,
    port: int,
    advertise: str,
    front: FrontOptions,
    pool: PoolSettings,
    term: float,
    datacenter: str,
    gates: tuple[str, ...],
    report: float,
    fallback: float,
    state: StateOptions,
    stuck: float | None,
    healthcheck: float,
    hooks: str,
    result_key_file: str,
) -> ManagerSettings:
    return ManagerSettings(
        result_keys=read_result_keys(result_key_file),
        hooks=read_hooks(hooks) if hooks else (),
        engine_url=url,
        name=name or _process_name(),
        port=port,
        advertise=advertise,
        term_s=term,
        waits_for_engine=True,
        stuck_s=stuck,
        healthcheck_s=healthcheck,
        gossip=pool,
        datacenter=datacenter,
        gates=gates,
        report_s=report,
        fallback_s=fallback,
        **front._asdict(),
        **state._asdict(),
    )


def _process_name() -> str:
    """Returns the name of a node that was given none."""
    return f"{socket.gethostname()}-{os.getpid()}"


@click.command(
    "manager",
    cls=SectionedCommand,
    sections={
        "Where it is": "--engine --name --host --port --advertise --datacenter --gate --fallback --report",
        "Who may ask": "--token --tokens --tls-cert --tls-key --tls-client-ca --rate-limit --result-key-file",
        "What it decides": "--term --stuck --healthcheck",
        "What it keeps and tells": "--keep-finished --keep-archive --state-budget --raise-format --hooks --log-format",
        "Gossip": GOSSIP,
    },
)
@click.option("--engine", "url", required=True, envvar="TENURE_ENGINE", help="The engine's URL; or set TENURE_ENGINE.")
@click.option("--name", default="", help="Names this manager; by default the host's name and the process id.")
@click.option("--port", default=MANAGER_PORT, show_default=True, help="The port; 0 for a free one.")
@click.option("--advertise", default="", metavar="HOST:PORT", help="Where others reach it, if not where it listens.")
@front_options
@click.option("--term", default=10.0, show_default=True, help="Seconds after which a silent leader is replaced.")
@click.option("--datacenter", default="local", show_default=True, help="What gates call this datacenter.")
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="HOST:PORT",
    help="Report to these gates only, and show no other address this node's token. Repeatable.",
)
@click.option("--report", default=10.0, show_default=True, help="Seconds between two reports on a job to its gate.")
@click.option("--fallback", default=300.0, show_default=True, help="Seconds a local timeout waits for its gate.")
@state_options
@click.option(
    "--stuck",
    type=float,
    help="Seconds without progress before a job is stuck; by default 120, or twice its longest stall.",
)
@click.option(
    "--healthcheck", default=30.0, show_default=True, help="Seconds without proof before a worker is suspect."
)
@click.option(
    "--hooks",
    default="",
    metavar="FILE",
    help="Whom to tell of alarms and ends of jobs: addresses and commands, as TOML or JSON.",
)
@result_key_option
@log_format_option
@gossip_options
@one_value("settings", _manager_settings)
def manager(settings: ManagerSettings, log_format: str) -> None:
    """Take part in leading a datacenter: start two or three of these on one engine.

    \b
    Example:
      tenure manager --engine sqlite:///tenure.db --port 8470 &
      tenure manager --engine sqlite:///tenure.db --port 8471 &
      tenure worker app.py --engine sqlite:///tenure.db --managed &
      tenure submit encode path=a.mov --wait

    SIGTERM, SIGHUP or Ctrl-C stops it; a leader resigns first. The exit code is 0 after that, 1 when it cannot go on.
    """
    tracing.set_up("tenure-manager")
    with friendly():
        asyncio.run(_run(settings, serve, node_log("manager", settings.name, log_format)))


async def _run(
    settings: ManagerSettings | GateNodeSettings, serve: Callable[..., Awaitable[None]], log: NodeLog
) -> None:
    """Serves one node until SIGTERM, Ctrl-C or the end of its terminal."""
    collect_new_objects_only()
    stop, service = asyncio.Event(), ServiceManager()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def ready(address: str) -> None:
        log.info(f"listens on {address}")
        log.info(f"dashboard at {page_url(address)}")
        service.ready(f"listens on {address}")

    signs = asyncio.create_task(service.keep_alive(SystemClock()))
    try:
        await serve(settings, stop, log=log, on_ready=ready)
    except EngineError:
        if not stop.is_set():  # it was told to stop while it waited for its engine
            raise
    finally:
        service.stopping()
        signs.cancel()
    log.info("stopped")


def _gate_settings(
    datacenters: tuple[str, ...],
    peers: tuple[str, ...],
    url: str,
    name: str,
    port: int,
    advertise: str,
    front: FrontOptions,
    term: float,
    check: float,
    report: float,
    stuck: float,
    probe: float,
    probe_timeout: float,
    suspicion: float,
) -> GateNodeSettings:
    return GateNodeSettings(
        engine_url=url,
        name=name or _process_name(),
        datacenters=parse_datacenters(datacenters),
        peers=peers,
        port=port,
        advertise=advertise,
        term_s=term,
        waits_for_engine=True,
        gate=GateSettings(check_interval=check, report_interval=report, stuck_threshold=stuck),
        probes=ProbeSettings(interval_s=probe, timeout_s=probe_timeout, suspicion_s=suspicion),
        **front._asdict(),
    )


@click.command(
    "gate",
    cls=SectionedCommand,
    sections={
        "Where it is": "--engine --name --host --port --advertise --datacenter --peer",
        "Who may ask": "--token --tokens --tls-cert --tls-key --tls-client-ca --rate-limit",
        "What it decides": "--term --stuck --check --report --probe --probe-timeout --suspicion",
        "What it tells": "--log-format",
    },
)
@click.option(
    "--datacenter",
    "datacenters",
    multiple=True,
    required=True,
    metavar="NAME=HOST:PORT,…",
    help="A datacenter and the addresses of its managers; once for each.",
)
@click.option("--peer", "peers", multiple=True, metavar="HOST:PORT", help="Another gate on the same engine.")
@click.option(
    "--engine",
    "url",
    default="sqlite:///gate.db",
    show_default=True,
    envvar="TENURE_GATE_ENGINE",
    help="Where the gates keep their journal: an engine of their own.",
)
@click.option("--name", default="", help="Names this gate; by default the host's name and the process id.")
@click.option("--port", default=GATE_PORT, show_default=True, help="The port; 0 for a free one.")
@click.option("--advertise", default="", metavar="HOST:PORT", help="Where others reach it, if not where it listens.")
@front_options
@click.option("--term", default=10.0, show_default=True, help="Seconds after which a silent leader is replaced.")
@click.option("--check", default=15.0, show_default=True, help="Seconds between two looks at a job that is overdue.")
@click.option("--report", default=10.0, show_default=True, help="Seconds between two reports of a manager on a job.")
@click.option("--stuck", default=180.0, show_default=True, help="Seconds without progress anywhere: stuck everywhere.")
@click.option("--probe", default=2.0, show_default=True, help="Seconds between two probes of a manager or a gate.")
@click.option("--probe-timeout", default=5.0, show_default=True, help="Seconds that an answer may take.")
@click.option("--suspicion", default=30.0, show_default=True, help="Seconds of silence before it counts as dead.")
@log_format_option
@one_value("settings", _gate_settings)
def gate(settings: GateNodeSettings, log_format: str) -> None:
    """Place jobs in several datacenters, follow them there, and decide on their time: start two or three of these.

    \b
    Example:
      tenure gate --datacenter eu=10.0.1.1:8470 --datacenter us=10.0.2.1:8470 --port 8480 &
      tenure gate --datacenter eu=10.0.1.1:8470 --datacenter us=10.0.2.1:8470 --port 8481 --peer 127.0.0.1:8480 &
      tenure submit encode path=a.mov --managers 127.0.0.1:8480 --wait

    Clients use a gate's address as they would use a manager's. SIGTERM, SIGHUP or Ctrl-C stops it; a leader resigns first.
    """
    with friendly():
        asyncio.run(_run(settings, serve_gate, node_log("gate", settings.name, log_format)))

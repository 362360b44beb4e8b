"""`tenure manager` and `tenure gate`: the nodes that lead. One manager of a datacenter leads, and one gate of a cluster; the others stand by."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable

import click

from tenure import tracing
from tenure.cli.options import front_options, gossip_options, log_format_option
from tenure.control.admission import HttpLimits
from tenure.control.port_security import from_options, page_url
from tenure.errors import TenureError
from tenure.jobs.settings import GateSettings
from tenure.logs import node_log
from tenure.nodes.gate.probes import ProbeSettings
from tenure.nodes.gate.serving import DEFAULT_PORT as GATE_PORT
from tenure.nodes.gate.serving import GateNodeSettings, parse_datacenters, serve_gate
from tenure.nodes.gossip_pool import PoolSettings
from tenure.nodes.manager.serving import DEFAULT_PORT, ManagerSettings, serve


@click.command("manager")
@click.option("--engine", "url", required=True, envvar="TENURE_ENGINE", help="The engine's URL; or set TENURE_ENGINE.")
@click.option("--name", default="", help="Names this manager; by default the host's name and the process id.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, help="The port; 0 for a free one.")
@click.option("--advertise", default="", metavar="HOST:PORT", help="Where others reach it, if not where it listens.")
@front_options
@click.option("--term", default=10.0, show_default=True, help="Seconds after which a silent leader is replaced.")
@click.option("--datacenter", default="local", show_default=True, help="What gates call this datacenter.")
@click.option("--report", default=10.0, show_default=True, help="Seconds between two reports on a job to its gate.")
@click.option("--fallback", default=300.0, show_default=True, help="Seconds a local timeout waits for its gate.")
@click.option("--keep-finished", default=3600.0, show_default=True, help="Seconds that a finished job stays in lists.")
@click.option(
    "--state-budget", default=48.0, show_default=True, help="MiB of state at which new jobs are refused; at most 48."
)
@click.option("--stuck", default=120.0, show_default=True, help="Seconds without progress before a job is stuck.")
@click.option(
    "--healthcheck", default=30.0, show_default=True, help="Seconds without proof before a worker is suspect."
)
@log_format_option
@gossip_options
def manager(
    pool: PoolSettings,
    url: str,
    name: str,
    host: str,
    port: int,
    advertise: str,
    token: str,
    tokens: str,
    tls_cert: str,
    tls_key: str,
    tls_client_ca: str,
    rate_limit: float,
    term: float,
    datacenter: str,
    report: float,
    fallback: float,
    keep_finished: float,
    state_budget: float,
    stuck: float,
    healthcheck: float,
    log_format: str,
) -> None:
    """Take part in leading a datacenter: start two or three of these on one engine.

    \b
    Example:
      tenure manager --engine sqlite:///tenure.db --port 8470 &
      tenure manager --engine sqlite:///tenure.db --port 8471 &
      tenure worker app.py --engine sqlite:///tenure.db --managed &
      tenure submit encode path=a.mov --wait

    SIGTERM or Ctrl-C stops it; a leader resigns first. The exit code is 0 after that, 1 when it cannot go on.
    """
    tracing.set_up("tenure-manager")
    try:
        settings = ManagerSettings(
            engine_url=url,
            name=name or f"{socket.gethostname()}-{os.getpid()}",
            host=host,
            port=port,
            advertise=advertise,
            token=token,
            tokens_file=tokens,
            limits=HttpLimits(requests_per_s=rate_limit, burst=2 * rate_limit),
            tls=from_options(host, token, tokens, tls_cert, tls_key, tls_client_ca).tls,
            term_s=term,
            stuck_s=stuck,
            healthcheck_s=healthcheck,
            gossip=pool,
            datacenter=datacenter,
            report_s=report,
            fallback_s=fallback,
            keep_finished_s=keep_finished,
            state_budget=int(state_budget * 1_048_576),
        )
        asyncio.run(_run(settings, serve, node_log("manager", settings.name, log_format)))
    except TenureError as error:
        raise click.ClickException(str(error)) from error


async def _run(
    settings: ManagerSettings | GateNodeSettings, serve: Callable[..., Awaitable[None]], say: Callable[[str], None]
) -> None:
    """Serves one node until SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def ready(address: str) -> None:
        say(f"listens on {address}")
        say(f"dashboard at {page_url(address)}")

    await serve(settings, stop, say=say, on_ready=ready)
    say("stopped")


@click.command("gate")
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
@click.option("--stuck", default=180.0, show_default=True, help="Seconds without progress anywhere: stuck everywhere.")
@click.option("--probe", default=2.0, show_default=True, help="Seconds between two probes of a manager or a gate.")
@click.option("--probe-timeout", default=5.0, show_default=True, help="Seconds that an answer may take.")
@click.option("--suspicion", default=30.0, show_default=True, help="Seconds of silence before it counts as dead.")
@log_format_option
def gate(
    datacenters: tuple[str, ...],
    peers: tuple[str, ...],
    url: str,
    name: str,
    host: str,
    port: int,
    advertise: str,
    token: str,
    tokens: str,
    tls_cert: str,
    tls_key: str,
    tls_client_ca: str,
    rate_limit: float,
    term: float,
    check: float,
    stuck: float,
    probe: float,
    probe_timeout: float,
    suspicion: float,
    log_format: str,
) -> None:
    """Place jobs in several datacenters, follow them there, and decide on their time: start two or three of these.

    \b
    Example:
      tenure gate --datacenter eu=10.0.1.1:8470 --datacenter us=10.0.2.1:8470 --port 8480 &
      tenure gate --datacenter eu=10.0.1.1:8470 --datacenter us=10.0.2.1:8470 --port 8481 --peer 127.0.0.1:8480 &
      tenure submit encode path=a.mov --managers 127.0.0.1:8480 --wait

    Clients use a gate's address as they would use a manager's. SIGTERM or Ctrl-C stops it; a leader resigns first.
    """
    try:
        settings = GateNodeSettings(
            engine_url=url,
            name=name or f"{socket.gethostname()}-{os.getpid()}",
            datacenters=parse_datacenters(datacenters),
            peers=peers,
            host=host,
            port=port,
            advertise=advertise,
            token=token,
            tokens_file=tokens,
            limits=HttpLimits(requests_per_s=rate_limit, burst=2 * rate_limit),
            tls=from_options(host, token, tokens, tls_cert, tls_key, tls_client_ca).tls,
            term_s=term,
            gate=GateSettings(check_interval=check, stuck_threshold=stuck),
            probes=ProbeSettings(interval_s=probe, timeout_s=probe_timeout, suspicion_s=suspicion),
        )
        asyncio.run(_run(settings, serve_gate, node_log("gate", settings.name, log_format)))
    except TenureError as error:
        raise click.ClickException(str(error)) from error

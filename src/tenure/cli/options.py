"""Options and output that commands share: the address of a datacenter, the client, tables and JSON; and for nodes the port, gossip and the log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

from tenure.client.client import Client
from tenure.clock import SystemClock
from tenure.control.admission import HttpLimits
from tenure.control.messages.jobs import GATE_ELECTION, MANAGER_ELECTION, address_of
from tenure.control.messages.wire import Missing, Reply, Request
from tenure.engines.contracts import Engine
from tenure.engines.urls import redact
from tenure.errors import NodeUnavailableError, TenureError
from tenure.jobs.states import JobState
from tenure.logs import LogForm
from tenure.nodes.gossip_pool import PoolSettings
from tenure.nodes.manager.serving import DEFAULT_PORT

ReplyT = TypeVar("ReplyT", bound=Reply)

REFUSED, UNREACHABLE, NOT_COMPLETED = 1, 3, 4
"""Exit codes: the node refused the request; no node answered; the job ended, but did not complete. 2 is click's, for wrong usage."""
STYLES = {
    JobState.PENDING: "",
    JobState.RUNNING: "cyan",
    JobState.COMPLETED: "green",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "yellow",
    JobState.TIMED_OUT: "bold red",
}


class Where(NamedTuple):
    """The options by which a command reaches a datacenter."""

    address: str
    engine: str
    token: str
    patience: float
    datacenter: str = ""
    """The datacenter that a request is about, where the command asks a gate; empty: all of them, or the gate itself."""

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Yields a client. An error of Tenure ends the command with its exit code."""
        try:
            with Client(
                self.addresses(), token=self.token, patience_s=self.patience, datacenter=self.datacenter
            ) as client:
                yield client
        except NodeUnavailableError as error:
            click.echo(f"Error: {error}", err=True)
            raise SystemExit(UNREACHABLE) from error
        except TenureError as error:
            raise click.ClickException(str(error)) from error

    def addresses(self) -> list[str]:
        """Returns the addresses that were given; else the leader's, where an engine is named; else the usual one. Raises `TenureError`."""
        return [part.strip() for part in self.address.split(",") if part.strip()] or self._elected()

    def _elected(self) -> list[str]:
        """Returns the leader's address, read from the engine's election; the usual address where no engine is named."""
        if not self.engine:
            return [f"127.0.0.1:{DEFAULT_PORT}"]
        clock = SystemClock()
        begun = clock.monotonic()
        with Engine.open(self.engine, clock=clock) as engine:
            while True:
                for name in (MANAGER_ELECTION, GATE_ELECTION):  # the engine of a datacenter, or of a gate cluster
                    leader = engine.election(name).current()
                    if leader is not None and address_of(leader.candidate):
                        return [address_of(leader.candidate)]
                if clock.monotonic() - begun > self.patience:
                    raise NodeUnavailableError(
                        f"nobody leads on {redact(self.engine)}",
                        remedy="Start a manager: tenure manager --engine URL; or a gate, on an engine of its own",
                    )
                clock.sleep(0.2)


def datacenter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the address options and `--datacenter`, for commands about one of a gate's datacenters."""

    @wraps(function)
    def called(*args: Any, where: Where, datacenter: str, **options: Any) -> Any:
        return function(*args, where=where._replace(datacenter=datacenter), **options)

    said = "At a gate: of this datacenter; or TENURE_DATACENTER. Without it: of all, or what the gate itself knows."
    option = click.option("--datacenter", default="", envvar="TENURE_DATACENTER", metavar="NAME", help=said)
    return address_options(option(called))


def address_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say which nodes the command asks. The command gets them as the argument `where`."""

    @wraps(function)
    def called(*args: Any, address: str, engine: str, token: str, patience: float, **options: Any) -> Any:
        return function(*args, where=Where(address, engine, token, patience), **options)

    found: Callable[..., Any] = called
    for option in (
        click.option(
            "--patience", default=30.0, show_default=True, help="Seconds to go on asking while nobody answers."
        ),
        click.option("--token", default="", envvar="TENURE_TOKEN", help="The datacenter's token; or TENURE_TOKEN."),
        click.option(
            "--engine",
            default="",
            envvar="TENURE_ENGINE",
            help="Find the leader through this engine; or TENURE_ENGINE.",
        ),
        click.option(
            "--address",
            "--managers",
            default="",
            envvar=["TENURE_ADDRESS", "TENURE_MANAGERS"],
            help=f"host:port of managers or gates, with commas; or TENURE_ADDRESS. Without either: 127.0.0.1:{DEFAULT_PORT}.",
        ),
    ):
        found = option(found)
    return found


def tell_missing(missing: Sequence[Missing]) -> None:
    """Names the missing datacenters on the error stream, so that the output can be piped."""
    for one in missing:
        click.echo(f"datacenter {one.datacenter} is not in this: {one.reason}", err=True)


def placed_columns(rows: Sequence[Any]) -> bool:
    """Returns True when a column must name the datacenter of each row: a manager has only one."""
    return any(row.datacenter for row in rows)


def ask(client: Client, request: Request, wanted: type[ReplyT]) -> ReplyT:
    """Sends a request for which the client has no method, and returns the reply. Fails the command where the reply has another type."""
    reply = client.ask(request)
    if not isinstance(reply, wanted):
        raise click.ClickException(f"a node answered a {type(request).__name__} with {type(reply).__name__}")
    return reply


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def show(*tables: Table) -> None:
    """Prints tables: on a terminal with lines around the cells; in a pipe or a file without, and each row on one line."""
    screen = console()
    for table in tables:
        if not screen.is_terminal:
            table.box, table.pad_edge = None, False
        screen.print(table)


def is_wide() -> bool:
    """Returns True when the terminal has room for the less important columns."""
    return console().width >= 100


def console() -> Console:
    # Without a terminal there is no width to fit. 200 columns hold each row of a log or a pipe on one line.
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def front_options(function: FunctionT) -> FunctionT:
    """Adds the options of a port: where it listens, its tokens and its certificates."""
    for option in (
        click.option(
            "--tls-client-ca", default="", metavar="FILE", help="Let in only who shows a certificate of this CA."
        ),
        click.option(
            "--tls-key", default="", metavar="FILE", help="The certificate's key, if it is in a file of its own."
        ),
        click.option("--tls-cert", default="", metavar="FILE", help="Serve TLS with this certificate (PEM)."),
        click.option(
            "--tokens",
            default="",
            envvar="TENURE_TOKENS",
            metavar="FILE",
            help="Tokens with names and roles, as TOML or JSON; read anew on SIGHUP. Or TENURE_TOKENS.",
        ),
        click.option(
            "--token", default="", envvar="TENURE_TOKEN", help="One token that may do everything; or TENURE_TOKEN."
        ),
        click.option(
            "--rate-limit",
            default=HttpLimits().requests_per_s,
            show_default=True,
            help="Requests a second that one caller may send on average, and twice as many at once.",
        ),
        click.option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            help="Where to listen; beyond loopback needs tokens or client certificates.",
        ),
    ):
        function = option(function)
    return function


_GOSSIP_OPTIONS = (
    click.option("--gossip", default="", metavar="HOST:PORT", help="Gossip here, with port 0 on a free one."),
    click.option("--join", multiple=True, metavar="HOST:PORT", help="Members of the pool to join. Repeatable."),
    click.option("--gossip-advertise", default="", metavar="HOST:PORT", help="Where members reach it, if elsewhere."),
    click.option(
        "--gossip-key-file",
        type=click.Path(exists=True, dir_okay=False),
        envvar="TENURE_GOSSIP_KEY_FILE",
        help="Keys of the pool in base64, one a line; the first encrypts.",
    ),
)


def gossip_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of gossip. The command gets one `pool` in their place."""

    def command(
        *, gossip: str, join: tuple[str, ...], gossip_advertise: str, gossip_key_file: str | None, **rest: Any
    ) -> Any:
        if join and not gossip:
            raise click.UsageError("--join needs --gossip: say where this node listens, as --gossip 127.0.0.1:0")
        return function(pool=PoolSettings(gossip, join, gossip_advertise, gossip_key_file or ""), **rest)

    command.__doc__ = function.__doc__
    command.__dict__.update(function.__dict__)
    for option in reversed(_GOSSIP_OPTIONS):
        command = option(command)
    return command


log_format_option = click.option(
    "--log-format",
    type=click.Choice([form.value for form in LogForm]),
    default=LogForm.TEXT.value,
    show_default=True,
    envvar="TENURE_LOG_FORMAT",
    help="Lines for people, or JSON for machines; or TENURE_LOG_FORMAT.",
)

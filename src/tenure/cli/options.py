"""Options and output that commands share: the address of a datacenter, the client, tables and JSON.

It imports no node: every command pays for what this file imports.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from tenure.cli.node_options import one_value, see
from tenure.client.client import Client
from tenure.client.job_messages import BulkDone
from tenure.clock import SystemClock
from tenure.control.messages.wire import (
    GATE_ELECTION,
    MANAGER_ELECTION,
    MANAGER_PORT,
    Missing,
    Reply,
    Request,
    address_of,
)
from tenure.engines.contracts import Engine
from tenure.engines.urls import redact
from tenure.errors import NodeUnavailableError, TenureError, UnknownJobError
from tenure.jobs.states import JobState
from tenure.logs import plain, quiet

if TYPE_CHECKING:  # drawing tables is slow to import, and a node draws none
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
            with TellingClient(
                self.addresses(), token=self.token, patience_s=self.patience, datacenter=self.datacenter
            ) as client:
                try:
                    yield client
                except UnknownJobError as error:
                    raise click.ClickException(f"{error}{_meant(client, error.job_id)}\n{see(error)}") from error
        except NodeUnavailableError as error:
            say(f"Error: {error}\n{see(error)}", err=True)
            raise SystemExit(UNREACHABLE) from error
        except TenureError as error:
            raise click.ClickException(f"{plain(str(error), lines=True)}\n{plain(see(error))}") from error

    def addresses(self) -> list[str]:
        """Returns the addresses that were given; else the leader's, where an engine is named; else the usual one. Raises `TenureError`."""
        return [part.strip() for part in self.address.split(",") if part.strip()] or self._elected()

    def _elected(self) -> list[str]:
        """Returns the leader's address, read from the engine's election; the usual address where no engine is named."""
        if not self.engine:
            return [f"127.0.0.1:{MANAGER_PORT}"]
        clock, told = SystemClock(), False
        begun = clock.monotonic()
        # What an engine does not promise is said by the nodes that rely on it. Whoever only asks for the leader need not read it each time.
        with quiet("tenure.engines"), Engine.open(self.engine, clock=clock) as engine:
            while True:
                for name in (MANAGER_ELECTION, GATE_ELECTION):  # the engine of a datacenter, or of a gate cluster
                    leader = engine.election(name).current()
                    if leader is not None and address_of(leader.candidate):
                        return [address_of(leader.candidate)]
                if not told:
                    say(f"waiting for somebody to lead on {redact(self.engine)}{_most(self.patience)}", err=True)
                told = True
                if clock.monotonic() - begun > self.patience:
                    raise NodeUnavailableError(
                        f"nobody leads on {redact(self.engine)}",
                        remedy="Start a manager: tenure manager --engine URL; or a gate, on an engine of its own",
                    )
                clock.sleep(0.2)


TELL_AFTER_S = 0.7
"""A command that has no answer for this long says whom it waits for."""


class TellingClient(Client):
    """A client that says on the error stream whom it waits for, once, when an answer takes longer than it should."""

    _told = False

    def ask(self, request: Request, wait_s: float = 0.0) -> Reply:
        timer = threading.Timer(TELL_AFTER_S + wait_s, self._tell)
        timer.daemon = True
        timer.start()
        try:
            return super().ask(request, wait_s)
        finally:
            timer.cancel()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            whom = ", ".join(self.addresses)
            say(f"waiting for an answer of {whom}{_most(self.patience_s)}", err=True)


def _most(patience_s: float) -> str:
    return f", {patience_s:g} s at most (--patience)"


def _meant(client: Client, job_id: str) -> str:
    """Returns a hint for an id that was cut short or misspelt: ids end with chance, which nobody types."""
    with suppress(TenureError):
        stem = job_id.rpartition("-")[0] or job_id
        near = [row.job_id for name in dict.fromkeys((job_id, stem)) for row in client.jobs(name=name, limit=3).jobs]
        if near:
            return plain(f". Did you mean {' or '.join(dict.fromkeys(near[:3]))}?")
    return ""


_ADDRESS_OPTIONS = (
    click.option(
        "--address",
        "--managers",
        default="",
        envvar=["TENURE_ADDRESS", "TENURE_MANAGERS"],
        help=f"host:port of managers or gates, with commas; or TENURE_ADDRESS. Without either: 127.0.0.1:{MANAGER_PORT}.",
    ),
    click.option(
        "--engine", default="", envvar="TENURE_ENGINE", help="Find the leader through this engine; or TENURE_ENGINE."
    ),
    click.option("--token", default="", envvar="TENURE_TOKEN", help="The datacenter's token; or TENURE_TOKEN."),
    click.option("--patience", default=30.0, show_default=True, help="Seconds to go on asking while nobody answers."),
)
_DATACENTER_OPTION = click.option(
    "--datacenter",
    default="",
    envvar="TENURE_DATACENTER",
    metavar="NAME",
    help="At a gate: of this datacenter; or TENURE_DATACENTER. Without it: of all, or what the gate itself knows.",
)


def _where(address: str, engine: str, token: str, patience: float, datacenter: str = "") -> Where:
    """Returns where to ask. What stands on the command line beats the environment: `--engine` beats TENURE_ADDRESS."""
    context = click.get_current_context(silent=True)
    typed = click.core.ParameterSource.COMMANDLINE
    sources = [context.get_parameter_source(name) if context is not None else None for name in ("engine", "address")]
    if sources[0] is typed and sources[1] is not typed:
        address = ""
    return Where(address, engine, token, patience, datacenter)


def _any_datacenter(address: str, engine: str, token: str, patience: float) -> Where:
    return _where(address, engine, token, patience)


address_options = one_value("where", _any_datacenter, *_ADDRESS_OPTIONS)
"""Adds the options that say which nodes the command asks. The command gets them as one `where`."""
datacenter_options = one_value("where", _where, *_ADDRESS_OPTIONS, _DATACENTER_OPTION)
"""Adds those options and `--datacenter`, for commands about one of a gate's datacenters."""


def _filters(
    state: str | None, queue: str, name: str, function: str, label: str, arg: str, since: str
) -> dict[str, Any]:
    """Returns the filters of `Client.jobs` that were given."""
    given = {"queue": queue, "name": name, "function": function, "label": label, "arg": arg}
    found: dict[str, Any] = {key: value for key, value in given.items() if value}
    if state:
        found["state"] = JobState(state)
    if since:
        found["since"] = SystemClock().wall() - span_s(since, "--since")
    return found


def span_s(text: str, param_hint: str) -> float:
    """Returns the seconds of a span as people write it: `90s`, `15m`, `2h`, `3d`."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no span of time: write 90s, 15m, 2h or 3d", param_hint=param_hint
        ) from None


_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

job_filters = one_value(
    "filters",
    _filters,
    click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state."),
    click.option("--queue", default="", help="Only jobs of this queue."),
    click.option("--name", default="", help="Only jobs whose name or id begins so."),
    click.option("--function", default="", help="Only jobs that call this workflow."),
    click.option("--label", default="", metavar="KEY[=VALUE]", help="Only jobs with this label."),
    click.option("--arg", default="", metavar="NAME[=VALUE]", help="Only jobs with this argument; a.b=7 looks inside."),
    click.option("--since", default="", metavar="SPAN", help="Only jobs of the last 15m, 2h, 3d."),
)
"""Adds the filters of a list of jobs. The command gets those that were given as one dictionary `filters`."""


def tell_missing(missing: Sequence[Missing]) -> None:
    """Names the missing datacenters on the error stream, so that the output can be piped."""
    for one in missing:
        say(f"datacenter {one.datacenter} is not in this: {one.reason}", err=True)


def placed_table(
    rows: Sequence[Any], head: Sequence[str], cells: Callable[[Any], Sequence[str | Text]], title: str | None = None
) -> Table:
    """Returns a table with a line for each row. Where a gate answered, the first column names the datacenter of each: a manager has only one."""
    from rich.table import Table

    placed = any(row.datacenter for row in rows)
    table = Table(*(("datacenter",) if placed else ()), *head, title=title)
    for row in rows:
        table.add_row(*((row.datacenter,) if placed else ()), *cells(row))
    return table


def tell_many(done: Sequence[BulkDone], as_json: bool) -> None:
    """Prints the outcomes of a request for many. Ends the command with `REFUSED` where one of them was refused."""
    if as_json:
        print_json(done)
    else:
        for one in done:
            say(f"{one.id}: {one.outcome}" + "".join(f": {more}" for more in (one.new_job_id, one.reason) if more))
        say(f"{len(done)} in all", err=True)
    if any(one.outcome == "refused" for one in done):
        raise SystemExit(REFUSED)


def print_json(value: Any) -> None:
    say(msgspec.json.format(msgspec.json.encode(value)).decode())


def print_line(value: Any) -> None:
    """Prints a value as one line of JSON."""
    say(msgspec.json.encode(value).decode())


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Prints text that may hold what others wrote: names, errors, log lines. Every command prints such text through this or `show`."""
    click.echo(plain(text, lines=True), err=err, nl=nl)


def show(*tables: Table) -> None:
    """Prints tables: on a terminal with lines around the cells; in a pipe or a file without, and each row on one line."""
    screen = console()
    for table in tables:
        if not screen.is_terminal:
            table.box, table.pad_edge = None, False
        screen.print(_as_text(table))


def _as_text(table: Table) -> Table:
    """Returns the table with nothing in it that a terminal obeys, or that rich takes for its markup."""
    from rich.text import Text

    def clean(cell: Any) -> Any:
        if isinstance(cell, str):
            return Text(plain(cell))
        if isinstance(cell, Text):
            cell.plain = plain(cell.plain)
        return cell

    table.title = None if table.title is None else clean(table.title)
    for column in table.columns:
        column.header = clean(column.header)
        column._cells = [clean(cell) for cell in column._cells]
    return table


def is_wide() -> bool:
    """Returns True when the terminal has room for the less important columns."""
    return console().width >= 100


def console() -> Console:
    from rich.console import Console

    # Without a terminal there is no width to fit. 200 columns hold each row of a log or a pipe on one line.
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)

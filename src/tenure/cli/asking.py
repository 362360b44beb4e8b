"""What the commands that ask a datacenter have in common: where it is, and how an answer is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console

from tenure.errors import NodeUnavailableError, TenureError
from tenure.jobs.states import JobState
from tenure.nodes.client import Client
from tenure.nodes.serving import DEFAULT_PORT

REFUSED, UNREACHABLE, NOT_COMPLETED = 1, 3, 4
"""Exit codes: it was refused; no manager answered; the job ended, and not well. 2 is click's: wrong usage."""
STYLES = {
    JobState.PENDING: "",
    JobState.RUNNING: "cyan",
    JobState.COMPLETED: "green",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "yellow",
    JobState.TIMED_OUT: "bold red",
}

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def datacenter_options(function: FunctionT) -> FunctionT:
    """Where the managers are."""
    for option in (
        click.option(
            "--patience", default=30.0, show_default=True, help="Seconds to go on asking while nobody answers."
        ),
        click.option("--token", default="", envvar="TENURE_TOKEN", help="The datacenter's token; or TENURE_TOKEN."),
        click.option(
            "--managers",
            default=f"127.0.0.1:{DEFAULT_PORT}",
            show_default=True,
            envvar="TENURE_MANAGERS",
            help="Addresses, with commas between them; or set TENURE_MANAGERS.",
        ),
    ):
        function = option(function)
    return function


@contextmanager
def client_of(managers: str, token: str, patience: float) -> Iterator[Client]:
    """A client; what goes wrong ends the command with its exit code."""
    try:
        addresses = [part.strip() for part in managers.split(",") if part.strip()]
        with Client(addresses, token=token, patience_s=patience) as client:
            yield client
    except NodeUnavailableError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(UNREACHABLE) from error
    except TenureError as error:
        raise click.ClickException(str(error)) from error


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def console() -> Console:
    # Without a terminal there is no width to fit: a log or a pipe gets each row on one line.
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)

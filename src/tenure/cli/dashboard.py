"""`tenure dashboard`: where the page is that shows a datacenter, and that page in a browser."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import closing

import click

from tenure.cli.asking import UNREACHABLE, Where, address_options
from tenure.errors import NodeUnavailableError, TenureError
from tenure.nodes.calling.blocking import Caller
from tenure.nodes.messages.client import AskLeader
from tenure.web.front import page_url


@click.command("dashboard")
@click.option("--open/--no-open", "opens", default=None, help="Open a browser; by default on a terminal.")
@address_options
def command(opens: bool | None, where: Where) -> None:
    """Print the address of the dashboard, and open it in a browser.

    \b
    Examples:
      tenure dashboard
      tenure dashboard --no-open --address 10.0.1.1:8470

    Every manager and every gate serves it on its own port. Where tokens are wanted, the page asks for one: a reader's is enough to look.
    """
    try:
        url = page_url(_answering(where))
    except TenureError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(UNREACHABLE) from error
    click.echo(url)
    wanted = sys.stdout.isatty() if opens is None else opens
    if wanted and not webbrowser.open(url):
        click.echo("No browser could be opened here: open it where you have one.", err=True)


def _answering(where: Where) -> str:
    """The first address at which somebody answers. No token is needed: the page asks for it."""
    said = []
    with closing(Caller(token=where.token)) as caller:
        for address in where.addresses():
            try:
                caller.ask(address, AskLeader(), where.patience)
            except NodeUnavailableError as error:
                said.append(error.fact)
            else:
                return address
    raise NodeUnavailableError("; ".join(said), remedy="Start a manager, or name one: --address HOST:PORT")

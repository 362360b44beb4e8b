"""`tenure drain WORKER`: give a worker no more work, or let it take work again."""

from __future__ import annotations

import getpass

import click

from tenure.cli.asking import Where, ask, datacenter_options, print_json
from tenure.nodes.messages.client import Done
from tenure.nodes.messages.node import DrainNode, UndrainNode


@click.command("drain")
@click.argument("worker")
@click.option("--reason", default="", help="Kept with the decision; `tenure nodes` shows it.")
@click.option("--undo", is_flag=True, help="Let it take work again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def command(worker: str, reason: str, undo: bool, as_json: bool, where: Where) -> None:
    """Give WORKER no more work; what it runs goes on. It holds over restarts, until it is undone.

    \b
    Examples:
      tenure drain worker-7 --reason "new kernel"
      tenure drain worker-7 --undo
      tenure drain worker-7 --datacenter eu               # at a gate
    """
    by = getpass.getuser()
    request = UndrainNode(node=worker, by=by) if undo else DrainNode(node=worker, reason=reason, by=by)
    with where.client() as client:
        done = ask(client, request, Done)
    print_json(done) if as_json else click.echo(
        f"{worker}: {'takes work again' if undo else 'drained'}: {done.outcome}"
    )

"""`tenure queue`: what each queue holds, its limits, and how to pause one."""

from __future__ import annotations

import getpass

import click
from msgspec import UNSET
from rich.table import Table
from rich.text import Text

from tenure.cli.asking import Where, ask, datacenter_options, placed_columns, print_json, show, tell_missing
from tenure.nodes.messages.client import Done
from tenure.nodes.messages.queue import ChangeQueue, ListQueues, QueueList, QueueView


@click.command("queue")
@click.argument("name", required=False, default="")
@click.option("--pause/--resume", "paused", default=None, help="Start nothing more from it; or let it go on.")
@click.option("--max-running", type=int, help="At most so many at once; 0 lifts the limit.")
@click.option("--rate", type=float, help="At most so many starts a second; 0 lifts the limit.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def command(
    name: str, paused: bool | None, max_running: int | None, rate: float | None, as_json: bool, where: Where
) -> None:
    """List the queues; or change one.

    \b
    Examples:
      tenure queue
      tenure queue default --pause
      tenure queue default --pause --datacenter eu        # at a gate
      tenure queue video --max-running 4 --rate 0.5
    """
    change = ChangeQueue(
        queue=name,
        paused=UNSET if paused is None else paused,
        max_running=UNSET if max_running is None else max_running or None,
        rate=UNSET if rate is None else rate or None,
        by=getpass.getuser(),
    )
    with where.client() as client:
        if not (paused is max_running is rate is None):
            if not name:
                raise click.UsageError("which queue? tenure queue NAME --pause")
            done = ask(client, change, Done)
            print_json(done) if as_json else click.echo(f"{name}: {done.outcome}")
            return
        found = ask(client, ListQueues(), QueueList)
    shown = [one for one in found.queues if name in ("", one.name)]
    tell_missing(found.missing)
    if as_json:
        print_json(shown)
        return
    show(_table(shown))


def _table(shown: list[QueueView]) -> Table:
    placed = placed_columns(shown)
    head = ("datacenter", "queue") if placed else ("queue",)
    table = Table(*head, "state", "running", "queued", "held", "oldest", "limits")
    for one in shown:
        where = (Text(one.datacenter),) if placed else ()
        limits = [f"{one.max_running} at once" if one.max_running else "", f"{one.rate:g}/s" if one.rate else ""]
        state = Text("paused", style="yellow") if one.paused else Text("open", style="green")
        words = ", ".join(limit for limit in limits if limit)
        counts = (str(one.running), str(one.queued), str(one.held))
        table.add_row(*where, Text(one.name), state, *counts, f"{one.oldest_s:.0f} s", words)
    return table

"""`tenure nodes`: the managers and workers of a datacenter, and how they are."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from tenure.cli.asking import Where, ask, datacenter_options, is_wide, print_json, show
from tenure.nodes.messages.node import ListNodes, NodeList

STYLES = {"route": "green", "investigate": "yellow", "drain": "yellow", "evict": "bold red"}


@click.command("nodes")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def command(as_json: bool, where: Where) -> None:
    """List managers and workers as the leader sees them: who leads, who takes work, how old the last sign of each is.

    \b
    Examples:
      tenure nodes
      tenure nodes --json | jq '.workers[] | select(.verdict != "route")'
    """
    with where.client() as client:
        found = ask(client, ListNodes(), NodeList)
    if as_json:
        print_json(found)
        return
    show(_managers(found, is_wide()), _workers(found, is_wide()))


def _managers(found: NodeList, wide: bool) -> Table:
    table = Table("manager", "address", "leads", "heard", *(("skew", "read to", "version") if wide else ()))
    for one in found.managers:
        leads = Text("leads", style="green") if one.leads else Text("")
        more = (f"{one.skew_s:+.3f} s", str(one.seq), one.version) if wide else ()
        table.add_row(Text(one.name), Text(one.address), leads, f"{one.heard_s_ago:.0f} s ago", *more)
    return table


def _workers(found: NodeList, wide: bool) -> Table:
    table = Table("worker", "verdict", "slots", "heard", *(("left", "skew", "lanes", "why") if wide else ()))
    for one in found.workers:
        verdict = Text("drained" if one.drained else one.verdict, style=STYLES.get(one.verdict, ""))
        left = f"{one.left_s:.0f} s" if one.left_s else ""
        more = (left, f"{one.skew_s:+.3f} s", Text(", ".join(one.lanes)), Text(one.reason)) if wide else ()
        table.add_row(Text(one.name), verdict, f"{one.running}/{one.slots}", f"{one.heard_s_ago:.0f} s ago", *more)
    return table

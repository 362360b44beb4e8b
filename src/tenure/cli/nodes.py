"""`tenure nodes`: the managers and workers of a datacenter, and how they are."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from tenure.cli.asking import (
    Where,
    ask,
    datacenter_options,
    is_wide,
    placed_columns,
    print_json,
    show,
    tell_missing,
)
from tenure.nodes.messages.node import ListNodes, NodeList

STYLES = {"route": "green", "investigate": "yellow", "drain": "yellow", "evict": "bold red"}


@click.command("nodes")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def command(as_json: bool, where: Where) -> None:
    """List managers and workers as the leader sees them: who leads, who takes work, how old the last sign of each is. A gate lists those of
    all its datacenters, and itself with its peers.

    \b
    Examples:
      tenure nodes
      tenure nodes --datacenter eu
      tenure nodes --json | jq '.workers[] | select(.verdict != "route")'
    """
    with where.client() as client:
        found = ask(client, ListNodes(), NodeList)
    if as_json:
        print_json(found)
        return
    shown = [_gates(found)] if found.gates else []
    show(*shown, _managers(found, is_wide()), _workers(found, is_wide()))
    tell_missing(found.missing)


def _gates(found: NodeList) -> Table:
    table = Table("gate", "address", "leads", "heard", "load", "why")
    for one in found.gates:
        leads = Text("leads", style="green") if one.leads else Text("")
        heard = Text(f"{one.heard_s_ago:.0f} s ago", style="" if one.answers else "bold red")
        table.add_row(Text(one.name or "?"), Text(one.address), leads, heard, Text(one.overload), Text(one.reason))
    return table


def _managers(found: NodeList, wide: bool) -> Table:
    placed = placed_columns(found.managers)
    head = ("datacenter", "manager") if placed else ("manager",)
    table = Table(*head, "address", "leads", "heard", *(("skew", "read to", "version") if wide else ()))
    for one in found.managers:
        where = (Text(one.datacenter),) if placed else ()
        leads = Text("leads", style="green") if one.leads else Text("")
        more = (f"{one.skew_s:+.3f} s", str(one.seq), one.version) if wide else ()
        table.add_row(*where, Text(one.name), Text(one.address), leads, f"{one.heard_s_ago:.0f} s ago", *more)
    return table


def _workers(found: NodeList, wide: bool) -> Table:
    placed = placed_columns(found.workers)
    head = ("datacenter", "worker") if placed else ("worker",)
    table = Table(*head, "verdict", "slots", "heard", *(("left", "skew", "lanes", "why") if wide else ()))
    for one in found.workers:
        where = (Text(one.datacenter),) if placed else ()
        verdict = Text("drained" if one.drained else one.verdict, style=STYLES.get(one.verdict, ""))
        left = f"{one.left_s:.0f} s" if one.left_s else ""
        more = (left, f"{one.skew_s:+.3f} s", Text(", ".join(one.lanes)), Text(one.reason)) if wide else ()
        slots, heard = f"{one.running}/{one.slots}", f"{one.heard_s_ago:.0f} s ago"
        table.add_row(*where, Text(one.name), verdict, slots, heard, *more)
    return table

"""`tenure thresholds`: the stall thresholds that are set and learned."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from tenure.cli.options import REFUSED, Where, datacenter_options, placed_columns, print_json, say, show, tell_missing
from tenure.control.messages.workflows import ThresholdEntry, ThresholdList


@click.command("thresholds")
@click.argument("name", required=False, default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def thresholds(name: str, as_json: bool, where: Where) -> None:
    """Show the stall threshold of each workflow: the set one, the one that was learned from its silences, and which of them holds.

    A learned threshold ends at most one of 10,000 healthy attempts, as far as the record goes. It is compared with the set one in the shadow; it
    holds where @workflow(stall="learn") says so.

    \b
    Examples:
      tenure thresholds
      tenure thresholds encode --json | jq '.thresholds[0].last_wrong.text'

    Exit code 1: nothing was learned of NAME.
    """
    with where.client() as client:
        found = client.thresholds(name)
    tell_missing(found.missing)
    if as_json:
        print_json(found)
    elif found.thresholds:
        show(threshold_table(found))
        for one in found.thresholds:
            for example in (one.last_wrong, one.last_found):
                if example is not None:
                    say(f"{one.name} {one.version}, job {example.job_id}: {example.text}")
    else:
        say(f"Nothing was learned of {name!r}." if name else "Nothing was learned yet.", err=True)
    raise SystemExit(REFUSED if name and not found.thresholds else 0)


def threshold_table(found: ThresholdList) -> Table:
    placed = placed_columns(found.thresholds)
    head = ("datacenter", "workflow") if placed else ("workflow",)
    table = Table(*head, "version", "attempts", "set", "learned", "holds", "why", "wrong", "found sooner")
    for one in found.thresholds:
        where = (Text(one.datacenter),) if placed else ()
        cells = (_seconds(one.set_s), _seconds(one.learned_s), _seconds(one.holds_s), one.why)
        table.add_row(*where, one.name, one.version, str(one.attempts), *cells, str(one.wrong), _found(one))
    return table


def _seconds(value: float | None) -> str:
    return f"{value:g} s" if value else ""


def _found(one: ThresholdEntry) -> str:
    return f"{one.found}, by {one.sooner_s / one.found:.0f} s each" if one.found else "0"

"""`tenure workflows`: the catalogue; `tenure thresholds`: the stall thresholds that are set and learned."""

from __future__ import annotations

import click
from rich.table import Table

from tenure.cli.options import REFUSED, Where, datacenter_options, placed_table, print_json, say, show, tell_missing
from tenure.control.messages.workflows import ThresholdEntry, ThresholdList, WorkflowEntry, WorkflowList
from tenure.jobs.eta import brief_seconds
from tenure.served_workflow import ServedWorkflow


@click.command("workflows")
@click.argument("name", required=False, default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the JSON Schema of the arguments.")
@datacenter_options
def workflows(name: str, as_json: bool, where: Where) -> None:
    """List the workflows that workers serve, or one of them: what each takes and returns, and what its author set.

    \b
    Examples:
      tenure workflows
      tenure workflows encode
      tenure workflows encode --json | jq '.workflows[0].served.arguments'

    A workflow whose last worker left is listed for 7 days: until then its jobs are accepted, and wait. Exit code 1: there is none of that name.
    """
    with where.client() as client:
        found = client.catalogue(name)
    tell_missing(found.missing)
    if as_json:
        print_json(found)
    elif found.workflows:
        show(_table(found))
    else:
        say(f"No worker has registered {name!r}." if name else "No worker has registered anything yet.", err=True)
    raise SystemExit(REFUSED if name and not found.workflows else 0)


def _table(found: WorkflowList) -> Table:
    def cells(one: WorkflowEntry) -> tuple[str, ...]:
        served = one.served
        about = served.description or served.source
        how = _takes(served), served.result, _settings(served), _served_by(one, found.now), _usually(one)
        return served.name, served.version, *how, about

    head = ("workflow", "version", "takes", "returns", "settings", "served by", "usually", "about")
    return placed_table(found.workflows, head, cells)


def _takes(served: ServedWorkflow) -> str:
    """Returns the arguments as one would write them; those with a default in brackets."""
    if served.arguments is None:
        return "?"
    schema = served.arguments
    inner = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    needed = inner.get("required", ())
    words = [f"{name}: {_kind(one)}" for name, one in inner.get("properties", {}).items()]
    names = list(inner.get("properties", {}))
    return ", ".join(word if name in needed else f"[{word}]" for name, word in zip(names, words, strict=True))


def _kind(schema: dict[str, object]) -> str:
    choices = schema.get("anyOf")
    if isinstance(choices, list):
        return " | ".join(_kind(one) for one in choices)
    return str(schema.get("type") or str(schema.get("$ref", "any")).rpartition("/")[2])


def _settings(served: ServedWorkflow) -> str:
    words = [
        f"{served.retry.max_attempts} attempts" if served.retry else "",
        f"timeout {served.timeout:g} s" if served.timeout else "",
        f"job timeout {served.job_timeout:g} s" if served.job_timeout else "",
        f"stall {served.stall:g} s" if served.stall else "stall learned" if served.learn else "",
        f"queue {served.queue}" if served.queue else "",
        f"priority {served.priority}" if served.priority is not None else "",
        f"waits for {', '.join(served.signals.get('properties', {}))}" if served.signals else "",
    ]
    return ", ".join(word for word in words if word)


def _served_by(one: WorkflowEntry, now: float) -> str:
    parked = f"; {one.parked} parked" if one.parked else ""
    if one.gone_at:
        return f"nobody for {(now - one.gone_at) / 60:.0f} min{parked}"
    return f"{len(one.workers)} in {', '.join(one.queues)}{parked}"


def _usually(one: WorkflowEntry) -> str:
    return brief_seconds(one.usual_s) if one.usual_s is not None else ""


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
    def cells(one: ThresholdEntry) -> tuple[str, ...]:
        spans = _seconds(one.set_s), _seconds(one.learned_s), _seconds(one.holds_s)
        return one.name, one.version, str(one.attempts), *spans, one.why, str(one.wrong), _found(one)

    head = ("workflow", "version", "attempts", "set", "learned", "holds", "why", "wrong", "found sooner")
    return placed_table(found.thresholds, head, cells)


def _seconds(value: float | None) -> str:
    return f"{value:g} s" if value else ""


def _found(one: ThresholdEntry) -> str:
    return f"{one.found}, by {one.sooner_s / one.found:.0f} s each" if one.found else "0"

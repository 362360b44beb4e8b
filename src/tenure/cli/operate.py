"""The commands of an operator: nodes, status, drain, queue, dashboard."""

from __future__ import annotations

import getpass
import sys
import webbrowser
from contextlib import closing
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from tenure.cli.options import (
    UNREACHABLE,
    Where,
    address_options,
    datacenter_options,
    is_wide,
    placed_table,
    print_json,
    say,
    show,
    tell_missing,
)
from tenure.client.client import Client
from tenure.control.caller import Caller
from tenure.control.messages.gates import GateView
from tenure.control.messages.nodes import ManagerNode, NodeList, Overview, WorkerNode
from tenure.control.messages.queues import QueueView
from tenure.control.messages.wire import AskLeader
from tenure.control.port_security import page_url
from tenure.errors import NodeUnavailableError, TenureError

_VERDICT_STYLES = {"route": "green", "investigate": "yellow", "drain": "yellow", "evict": "bold red"}


@click.command("nodes")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def nodes(as_json: bool, where: Where) -> None:
    """List managers and workers as the leader sees them: who leads, who takes work, how old the last sign of each is. A gate lists those of
    all its datacenters, and itself with its peers.

    \b
    Examples:
      tenure nodes
      tenure nodes --datacenter eu
      tenure nodes --json | jq '.workers[] | select(.verdict != "route")'
    """
    with where.client() as client:
        found = client.nodes()
    if as_json:
        print_json(found)
        return
    shown = [_gate_table(found)] if found.gates else []
    show(*shown, _manager_table(found, is_wide()), _worker_table(found, is_wide()))
    tell_missing(found.missing)


def _gate_table(found: NodeList) -> Table:
    table = Table("gate", "address", "leads", "heard", "load", "why")
    for one in found.gates:
        leads = Text("leads", style="green") if one.leads else Text("")
        heard = Text(f"{one.heard_s_ago:.0f} s ago", style="" if one.answers else "bold red")
        table.add_row(Text(one.name or "?"), Text(one.address), leads, heard, Text(one.overload), Text(one.reason))
    return table


def _manager_table(found: NodeList, wide: bool) -> Table:
    closed = any(one.closed for one in found.managers)

    def cells(one: ManagerNode) -> tuple[str | Text, ...]:
        leads = Text("leads", style="green") if one.leads else ""
        more = (f"{one.skew_s:+.3f} s", str(one.seq), one.version) if wide else ()
        why = (Text(one.closed, style="yellow"),) if closed else ()
        return one.name, one.address, leads, f"{one.heard_s_ago:.0f} s ago", *why, *more

    more_head = ("skew", "read to", "version") if wide else ()
    head = ("manager", "address", "leads", "heard", *(("accepts no jobs",) if closed else ()), *more_head)
    return placed_table(found.managers, head, cells)


def _worker_table(found: NodeList, wide: bool) -> Table:
    def cells(one: WorkerNode) -> tuple[str | Text, ...]:
        verdict = Text("drained" if one.drained else one.verdict, style=_VERDICT_STYLES.get(one.verdict, ""))
        short = one.name, verdict, f"{one.running}/{one.slots}", f"{one.heard_s_ago:.0f} s ago"
        if not wide:
            return short
        left = f"{one.left_s:.0f} s" if one.left_s else ""
        lost = f"{one.lost_s:.0f} s of {one.moved}" if one.moved else ""
        return *short, left, f"{one.loss_s:.0f} s", lost, f"{one.skew_s:+.3f} s", ", ".join(one.lanes), one.reason

    more_head = ("left", "unsaved", "lost", "skew", "lanes", "why") if wide else ()
    return placed_table(found.workers, ("worker", "verdict", "slots", "heard", *more_head), cells)


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def status(as_json: bool, where: Where) -> None:
    """Say how the datacenter is: who leads, what runs and waits, and what is wrong, each with its remedy. At a gate: how its datacenters are.

    \b
    Examples:
      tenure status
      tenure status --datacenter eu                       # at a gate
      tenure status --json | jq '.troubles[]'
    """
    with where.client() as client:
        found: Overview | GateView = client.overview() if where.datacenter or not _at_gate(client) else client.gate()
    if as_json:
        print_json(found)
    elif isinstance(found, Overview):
        counts = ", ".join(f"{number} {state}" for state, number in found.jobs.items() if number) or "none"
        say(f"{found.datacenter}: {found.leader} leads (epoch {found.epoch}); jobs: {counts}")
        say(f"slots: {found.free} of {found.slots} free; dead letters: {found.dead_letters}")
        for one in found.troubles:
            say(f"{one.severity}: {one.text}" + (f". {one.remedy}" if one.remedy else ""))
    else:
        table = Table("datacenter", "class", "free", "why", title=f"{found.gate_id}, led by {found.leader or 'nobody'}")
        for place in found.datacenters:
            table.add_row(place.name, place.health, str(place.capacity), place.reason)
        show(table)


def _at_gate(client: Client) -> bool:
    """Returns True when a gate answers: its list of nodes has gates."""
    return bool(client.nodes().gates)


@click.command("drain")
@click.argument("worker", required=False, default="")
@click.option(
    "--least", type=int, default=0, help="Drain so many workers that have the least to lose now, in place of WORKER."
)
@click.option("--reason", default="", help="Kept with the decision; `tenure nodes` shows it.")
@click.option("--undo", is_flag=True, help="Let it take work again.")
@click.option("--within", type=float, help="Seconds within which what it runs goes on elsewhere.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def drain(worker: str, least: int, reason: str, undo: bool, within: float | None, as_json: bool, where: Where) -> None:
    """Give WORKER no more work; what it runs goes on. It holds over restarts, until it is undone.

    With --within, what it runs leaves in that time, from its last checkpoint or step: an attempt goes when it has just saved, or when no further
    mark would come in time. The answer says how much work is not saved now; `tenure nodes` says what was lost in the end.

    With manager/NAME as WORKER: that manager accepts no new jobs while it leads, and gates place jobs elsewhere.

    \b
    Examples:
      tenure drain worker-7 --reason "new kernel"
      tenure drain worker-7 --within 120 --reason "its machine is reclaimed"
      tenure drain --least 2 --within 300 --reason "fewer are needed"
      tenure drain worker-7 --undo
      tenure drain manager/m-1 --reason "moves to another rack"
      tenure drain worker-7 --datacenter eu               # at a gate
    """
    if bool(worker) == bool(least) or (undo and least):
        raise click.UsageError("Name a WORKER, or say how many with --least (which cannot be undone).")
    by = getpass.getuser()
    with where.client() as client:
        for name in [worker] if worker else _least_to_lose(client, least):
            done = client.undrain(name, by=by) if undo else client.drain(name, reason, within_s=within, by=by)
            words = f"; {done.reason}" if done.reason else ""
            said = f"{name}: {'takes work again' if undo else 'drained'}: {done.outcome}{words}"
            print_json(done) if as_json else say(said)


def _least_to_lose(client: Client, count: int) -> list[str]:
    """Returns the workers whose end would cost the least work now, of those that take work."""
    found = [one for one in client.nodes().workers if not one.drained]
    return [one.name for one in sorted(found, key=lambda one: (one.loss_s, one.running, one.name))[:count]]


@click.command("hold")
@click.argument("name")
@click.option("--reason", default="", help="Kept with the decision; `tenure why` shows it.")
@click.option("--for", "most_s", type=float, default=6 * 3_600.0, show_default=True, help="Seconds, at most.")
@click.option(
    "--rate", type=float, default=5.0, show_default=True, help="Attempts a second to release when it is back."
)
@click.option("--undo", is_flag=True, help="It is back: clocks run again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def hold(name: str, reason: str, most_s: float, rate: float, undo: bool, as_json: bool, where: Where) -> None:
    """Say that NAME, which work waits for, is down: no clock of that work runs, and nothing is charged.

    The leader says so by itself when most of those that wait for NAME are in trouble on several workers, and lets them go at a bounded rate
    when it is back. Work names what it waits for with ctx.depends("s3") or ctx.silence(900, "model call", on="anthropic").

    \b
    Examples:
      tenure hold anthropic --reason "their status page says so"
      tenure hold anthropic --undo
    """
    by = getpass.getuser()
    with where.client() as client:
        if undo:
            done = client.release(name, reason, by=by)
        else:
            done = client.hold(name, reason, most_s=most_s, rate=rate, by=by)
    print_json(done) if as_json else say(f"{name}: {'released' if undo else 'held'}: {done.outcome}")


@click.command("queue")
@click.argument("name", required=False, default="")
@click.option("--pause/--resume", "paused", default=None, help="Start nothing more from it; or let it go on.")
@click.option("--max-running", type=int, help="At most so many at once; 0 lifts the limit.")
@click.option("--rate", type=float, help="At most so many starts a second; 0 lifts the limit.")
@click.option("--job-timeout", type=float, help="The deadline, in seconds, of jobs without their own; 0 lifts it.")
@click.option(
    "--keep-archive", type=float, help="Seconds for which its jobs can be read after they left the lists; 0: as all."
)
@click.option(
    "--preempt-after",
    type=float,
    help="Work that waited so many seconds may take the slot of work with a lower priority that has saved; 0: never.",
)
@click.option("--park/--no-park", default=None, help="Accept work that no worker has registered: it waits for one.")
@click.option(
    "--key", "concurrency_key", help="Where the key of its work stands, as args.tenant: keys take turns; '' ends that."
)
@click.option("--max-per-key", type=int, help="At most so many of one key at once; 0 lifts the limit.")
@click.option("--weight", "weights", multiple=True, help="KEY=TURNS, for one key; repeat it. '' drops all weights.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def queue(name: str, as_json: bool, where: Where, **given: Any) -> None:
    """List the queues; or change one.

    \b
    Examples:
      tenure queue
      tenure queue default --pause
      tenure queue default --pause --datacenter eu        # at a gate
      tenure queue video --max-running 4 --rate 0.5
      tenure queue video --key args.tenant --max-per-key 2 --weight acme=3
    """
    with where.client() as client:
        if changes := _queue_changes(given):
            if not name:
                raise click.UsageError("which queue? tenure queue NAME --pause")
            done = client.set_queue(name, **changes, by=getpass.getuser())
            print_json(done) if as_json else say(f"{name}: {done.outcome}")
            return
        found = client.queues()
    shown = [one for one in found.queues if name in ("", one.name)]
    tell_missing(found.missing)
    if as_json:
        print_json(shown)
        return
    show(_queue_table(shown))


_LIFTED_BY_ZERO = ("max_running", "rate", "job_timeout", "max_per_key", "keep_archive", "preempt_after")


def _queue_changes(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that the command line has. Of a limit, 0 stands for none."""
    changes = {field: value for field, value in given.items() if value is not None and field != "weights"}
    changes |= {field: changes[field] or None for field in _LIFTED_BY_ZERO if field in changes}
    return changes | ({"weights": _weights(given["weights"])} if given["weights"] else {})


def _weights(given: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for one in filter(None, given):
        key, _, turns = one.rpartition("=")
        if not turns.isdigit():
            raise click.UsageError(f"--weight {one}: write it as KEY=TURNS, with a whole number of turns")
        found[key] = int(turns)
    return found


def _queue_table(shown: list[QueueView]) -> Table:
    def cells(one: QueueView) -> tuple[str | Text, ...]:
        limits = [
            f"{one.max_running} at once" if one.max_running else "",
            f"{one.rate:g}/s" if one.rate else "",
            f"{one.job_timeout:g} s a job" if one.job_timeout else "",
            f"archive {one.keep_archive:g} s" if one.keep_archive else "",
            f"preempts after {one.preempt_after:g} s" if one.preempt_after else "",
            f"turns by {one.concurrency_key}" if one.concurrency_key else "",
            f"{one.max_per_key} of a key" if one.max_per_key else "",
            f"{one.parked} parked" if one.parked else "",
        ]
        state = Text("paused", style="yellow") if one.paused else Text("open", style="green")
        words = ", ".join(limit for limit in limits if limit)
        counts = (str(one.running), str(one.queued), str(one.held))
        return one.name, state, *counts, f"{one.oldest_s:.0f} s", words

    return placed_table(shown, ("queue", "state", "running", "queued", "held", "oldest", "limits"), cells)


@click.command("dashboard")
@click.option("--open/--no-open", "opens", default=None, help="Open a browser; by default on a terminal.")
@address_options
def dashboard(opens: bool | None, where: Where) -> None:
    """Print the address of the dashboard, and open it in a browser.

    \b
    Examples:
      tenure dashboard
      tenure dashboard --no-open --address 10.0.1.1:8470

    Every manager and every gate serves it on its own port. Where tokens are wanted, the page asks for one: a reader's is enough to look.
    """
    try:
        url = page_url(_answering_address(where))
    except TenureError as error:
        say(f"Error: {error}", err=True)
        raise SystemExit(UNREACHABLE) from error
    say(url)
    wanted = sys.stdout.isatty() if opens is None else opens
    if wanted and not webbrowser.open(url):
        say("No browser could be opened here: open it where you have one.", err=True)


def _answering_address(where: Where) -> str:
    """Returns the first address at which a node answers, even one that refuses the token: the page asks for a token itself."""
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

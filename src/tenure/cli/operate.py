"""The commands of an operator: nodes, drain, queue, dashboard, token, and dead letters."""

from __future__ import annotations

import base64
import getpass
import hashlib
import sys
import webbrowser
from contextlib import closing

import click
from msgspec import UNSET
from rich.table import Table
from rich.text import Text

from tenure.cli.options import (
    REFUSED,
    UNREACHABLE,
    Where,
    address_options,
    ask,
    datacenter_options,
    is_wide,
    placed_columns,
    print_json,
    show,
    tell_missing,
)
from tenure.control.caller import Caller
from tenure.control.messages.jobs import AskLeader, Done
from tenure.control.messages.nodes import DrainNode, ListNodes, NodeList, UndrainNode
from tenure.control.messages.operations import Role
from tenure.control.messages.queues import (
    ChangeQueue,
    DeadLetterList,
    DeadLetterView,
    DiscardDeadLetter,
    GetDeadLetter,
    LetterDone,
    ListDeadLetters,
    ListQueues,
    QueueList,
    QueueView,
    ReplayDeadLetter,
)
from tenure.control.port_security import page_url
from tenure.control.tokens import Token, TokenBook
from tenure.errors import NodeUnavailableError, TenureError
from tenure.ids import secret_bytes
from tenure.jobs.decisions import Outcome
from tenure.jobs.why import utc

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
        found = ask(client, ListNodes(), NodeList)
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
    placed = placed_columns(found.managers)
    head = ("datacenter", "manager") if placed else ("manager",)
    table = Table(*head, "address", "leads", "heard", *(("skew", "read to", "version") if wide else ()))
    for one in found.managers:
        where = (Text(one.datacenter),) if placed else ()
        leads = Text("leads", style="green") if one.leads else Text("")
        more = (f"{one.skew_s:+.3f} s", str(one.seq), one.version) if wide else ()
        table.add_row(*where, Text(one.name), Text(one.address), leads, f"{one.heard_s_ago:.0f} s ago", *more)
    return table


def _worker_table(found: NodeList, wide: bool) -> Table:
    placed = placed_columns(found.workers)
    head = ("datacenter", "worker") if placed else ("worker",)
    table = Table(*head, "verdict", "slots", "heard", *(("left", "skew", "lanes", "why") if wide else ()))
    for one in found.workers:
        where = (Text(one.datacenter),) if placed else ()
        verdict = Text("drained" if one.drained else one.verdict, style=_VERDICT_STYLES.get(one.verdict, ""))
        left = f"{one.left_s:.0f} s" if one.left_s else ""
        more = (left, f"{one.skew_s:+.3f} s", Text(", ".join(one.lanes)), Text(one.reason)) if wide else ()
        slots, heard = f"{one.running}/{one.slots}", f"{one.heard_s_ago:.0f} s ago"
        table.add_row(*where, Text(one.name), verdict, slots, heard, *more)
    return table


@click.command("drain")
@click.argument("worker")
@click.option("--reason", default="", help="Kept with the decision; `tenure nodes` shows it.")
@click.option("--undo", is_flag=True, help="Let it take work again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def drain(worker: str, reason: str, undo: bool, as_json: bool, where: Where) -> None:
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


@click.command("queue")
@click.argument("name", required=False, default="")
@click.option("--pause/--resume", "paused", default=None, help="Start nothing more from it; or let it go on.")
@click.option("--max-running", type=int, help="At most so many at once; 0 lifts the limit.")
@click.option("--rate", type=float, help="At most so many starts a second; 0 lifts the limit.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def queue(
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
    show(_queue_table(shown))


def _queue_table(shown: list[QueueView]) -> Table:
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
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(UNREACHABLE) from error
    click.echo(url)
    wanted = sys.stdout.isatty() if opens is None else opens
    if wanted and not webbrowser.open(url):
        click.echo("No browser could be opened here: open it where you have one.", err=True)


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


@click.command("token")
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), default="client", show_default=True)
def token(name: str, role: str) -> None:
    """Make a token for NAME. Its entry for a file of tokens goes to standard output, the token itself is shown once.

    \b
    Example:
      tenure token ci --role client >> tokens.toml
      tenure token worker-7 --role worker >> tokens.toml
      tenure manager --tokens tokens.toml --engine sqlite:///tenure.db
      kill -HUP PID                                  # a manager that runs reads the file anew

    The file holds only the SHA-256: whoever reads it is not let in by it.
    """
    secret = base64.urlsafe_b64encode(secret_bytes(32)).decode().rstrip("=")
    entry = Token(name=name, role=Role(role), sha256=hashlib.sha256(secret.encode()).hexdigest())
    try:
        TokenBook([entry])
    except TenureError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f'[[tokens]]\nname = "{entry.name}"\nrole = "{entry.role.value}"\nsha256 = "{entry.sha256}"\n')
    click.echo(f"The token of {name}, shown once: {secret}", err=True)


@click.group("dlq")
def dlq() -> None:
    """Look at dead letters: messages that were delivered too often, cannot be read, or were refused by their consumer.

    \b
    Examples:
      tenure dlq list
      tenure dlq show default.p0 0192…
      tenure dlq replay default.p0 0192…
      tenure dlq replay default.p0 0192… --datacenter eu  # at a gate
    """


@dlq.command("list")
@click.argument("mailbox", required=False, default="")
@click.option("--limit", default=100, show_default=True, help="Of each mailbox.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def show_all(mailbox: str, limit: int, as_json: bool, where: Where) -> None:
    """List the dead letters of MAILBOX (as default.p0), or of all lanes."""
    with where.client() as client:
        found = ask(client, ListDeadLetters(mailbox=mailbox, limit=limit), DeadLetterList)
    if as_json:
        print_json(found)
        return
    placed = placed_columns(found.letters)
    head = ("datacenter", "mailbox") if placed else ("mailbox",)
    table = Table(*head, "id", "died", "deliveries", "cause", "why", title=f"{found.count} dead letters")
    for one in found.letters:
        at = (Text(one.datacenter),) if placed else ()
        what = (utc(one.died_at), str(one.deliveries), one.cause, Text(one.reason))
        table.add_row(*at, Text(one.mailbox), Text(one.id), *what)
    show(table)
    tell_missing(found.missing)


@dlq.command("show")
@click.argument("mailbox")
@click.argument("letter")
@click.option("--json", "as_json", is_flag=True, help="The same: a letter is shown as JSON.")
@datacenter_options
def show_one(mailbox: str, letter: str, as_json: bool, where: Where) -> None:
    """Print one dead LETTER of MAILBOX with its body."""
    with where.client() as client:
        print_json(ask(client, GetDeadLetter(mailbox=mailbox, id=letter), DeadLetterView))


@dlq.command("replay")
@click.argument("mailbox")
@click.argument("letter")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def replay(mailbox: str, letter: str, as_json: bool, where: Where) -> None:
    """Put a dead LETTER back into MAILBOX. Refused when its job has ended, or a newer message has its key."""
    with where.client() as client:
        done = ask(client, ReplayDeadLetter(mailbox=mailbox, id=letter, by=getpass.getuser()), LetterDone)
    _told(done, as_json)


@dlq.command("discard")
@click.argument("mailbox")
@click.argument("letter")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def discard(mailbox: str, letter: str, as_json: bool, where: Where) -> None:
    """Forget a dead LETTER of MAILBOX for good."""
    with where.client() as client:
        done = ask(client, DiscardDeadLetter(mailbox=mailbox, id=letter, by=getpass.getuser()), LetterDone)
    _told(done, as_json)


def _told(done: LetterDone, as_json: bool) -> None:
    print_json(done) if as_json else click.echo(f"{done.id}: {done.outcome}" + (f": {done.reason}" * bool(done.reason)))
    if done.outcome is Outcome.REFUSED:
        raise SystemExit(REFUSED)

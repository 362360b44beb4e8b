"""`tenure dlq`: messages that were given up, and what to do with them."""

from __future__ import annotations

import getpass

import click
from rich.table import Table
from rich.text import Text

from tenure.cli.datacenter_options import (
    REFUSED,
    Where,
    ask,
    datacenter_options,
    placed_columns,
    print_json,
    show,
    tell_missing,
)
from tenure.control.messages.queues import (
    DeadLetterList,
    DeadLetterView,
    DiscardDeadLetter,
    GetDeadLetter,
    LetterDone,
    ListDeadLetters,
    ReplayDeadLetter,
)
from tenure.jobs.decisions import Outcome
from tenure.jobs.why import utc


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

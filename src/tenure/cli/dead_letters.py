"""`tenure dlq`: messages that were given up."""

from __future__ import annotations

import getpass

import click

from tenure.cli.options import (
    REFUSED,
    Where,
    datacenter_options,
    placed_table,
    print_json,
    say,
    show,
    tell_many,
    tell_missing,
)
from tenure.control.messages.queues import DeadLetterRow, LetterDone
from tenure.jobs.decisions import Outcome
from tenure.jobs.why_answer import utc


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
        found = client.dead_letters(mailbox, limit=limit)
    if as_json:
        print_json(found)
        return
    head = ("mailbox", "id", "died", "deliveries", "cause", "why")
    show(placed_table(found.letters, head, _cells, title=f"{found.count} dead letters"))
    tell_missing(found.missing)


def _cells(one: DeadLetterRow) -> tuple[str, ...]:
    return one.mailbox, one.id, utc(one.died_at), str(one.deliveries), one.cause, one.reason


@dlq.command("show")
@click.argument("mailbox")
@click.argument("letter")
@click.option("--json", "as_json", is_flag=True, help="The same: a letter is shown as JSON.")
@datacenter_options
def show_one(mailbox: str, letter: str, as_json: bool, where: Where) -> None:
    """Print one dead LETTER of MAILBOX with its body."""
    with where.client() as client:
        print_json(client.dead_letter(mailbox, letter))


@dlq.command("replay")
@click.argument("mailbox", required=False, default="")
@click.argument("letter", required=False, default="")
@click.option("--all", "every", is_flag=True, help="All of MAILBOX, or of all lanes.")
@click.option("--cause", default="", help="With --all: only those that died of this.")
@click.option("--dry-run", is_flag=True, help="With --all: only say which.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def replay(mailbox: str, letter: str, every: bool, cause: str, dry_run: bool, as_json: bool, where: Where) -> None:
    """Put a dead LETTER back into MAILBOX. Refused when its job has ended, or a newer message has its key.

    \b
    Examples:
      tenure dlq replay default.p0 0192…
      tenure dlq replay default.p0 --all --cause max_deliveries --dry-run
    """
    if every == bool(letter):
        raise click.UsageError("which one? tenure dlq replay MAILBOX LETTER; or [MAILBOX] --all")
    with where.client() as client:
        if every:
            tell_many(client.replay_all(mailbox, cause=cause, dry_run=dry_run, by=getpass.getuser()), as_json)
            return
        done = client.replay(mailbox, letter, by=getpass.getuser())
    _told(done, as_json)


@dlq.command("discard")
@click.argument("mailbox")
@click.argument("letter")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def discard(mailbox: str, letter: str, as_json: bool, where: Where) -> None:
    """Forget a dead LETTER of MAILBOX for good."""
    with where.client() as client:
        done = client.discard(mailbox, letter, by=getpass.getuser())
    _told(done, as_json)


def _told(done: LetterDone, as_json: bool) -> None:
    print_json(done) if as_json else say(f"{done.id}: {done.outcome}" + (f": {done.reason}" * bool(done.reason)))
    if done.outcome is Outcome.REFUSED:
        raise SystemExit(REFUSED)

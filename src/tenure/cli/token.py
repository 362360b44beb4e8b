"""The commands about tokens: create, list, revoke. The secret of a token is made here and shown once; nodes get its SHA-256."""

from __future__ import annotations

import base64
import getpass
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich.table import Table
from rich.text import Text

from tenure.cli.node_options import friendly, one_value
from tenure.cli.options import REFUSED, Where, datacenter_options, print_json, say, show
from tenure.clock import SystemClock
from tenure.control.messages.tokens import CallerBounds, Role, Token, TokenRow
from tenure.control.messages.wire import Missing
from tenure.control.tokens import check_token
from tenure.randomness import secret_bytes


@click.group("token")
def token() -> None:
    """Create, list and revoke tokens.

    A token has a name and a role: reader, client, worker, node or operator. It may be bound: a worker's to its name, a client's to queues and
    labels, any to a datacenter; it may have quotas and an end. Nodes keep only its SHA-256.

    \b
    Examples:
      tenure token create ci --role client --queue 'ci/*' --max-jobs 100 --days 90
      tenure token create gpu --role worker --worker 'gpu-*' --entry >> tokens.toml
      tenure token list
      tenure token revoke ci                        # on all nodes, within a second
    """


def _bounds(
    worker: str,
    queue: tuple[str, ...],
    label: tuple[str, ...],
    only_in: str,
    max_jobs: int | None,
    max_bytes: int | None,
    jobs_per_s: float | None,
) -> CallerBounds:
    labels = dict(one.partition("=")[::2] for one in label)
    return CallerBounds(
        worker=worker,
        queues=queue,
        labels=labels,
        datacenter=only_in,
        max_jobs=max_jobs,
        max_bytes=max_bytes,
        jobs_per_s=jobs_per_s,
    )


bounds_options = one_value(
    "bounds",
    _bounds,
    click.option(
        "--worker", default="", metavar="NAME", help="Speaks for this worker only; NAME* for all that begin so."
    ),
    click.option(
        "--queue",
        multiple=True,
        metavar="NAME",
        help="Sees and changes jobs of this queue only; NAME* for all that begin so. Repeatable.",
    ),
    click.option(
        "--label",
        multiple=True,
        metavar="KEY=VALUE",
        help="Sees and changes jobs with this label only; its own jobs get it. Repeatable.",
    ),
    click.option("--only-in", default="", metavar="DATACENTER", help="Counts in this datacenter only."),
    click.option("--max-jobs", type=click.IntRange(min=1), help="The jobs of its own that have not ended, at most."),
    click.option("--max-bytes", type=click.IntRange(min=1), help="The bytes of those jobs' submissions, at most."),
    click.option(
        "--jobs-per-s", type=click.FloatRange(min=0, min_open=True), help="The jobs that it submits in a second."
    ),
)


@token.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), default="client", show_default=True)
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="It expires after so many days.")
@click.option("--entry", is_flag=True, help="Ask no node: print the entry for a file of tokens (--tokens of nodes).")
@bounds_options
@datacenter_options
def create(name: str, role: str, days: float | None, entry: bool, bounds: CallerBounds, where: Where) -> None:
    """Create a token for NAME, and show it once. From then on all nodes of the engine know it; a gate's datacenters, too.

    \b
    Examples:
      tenure token create ci --queue 'ci/*' --label team=ci --max-jobs 100 --jobs-per-s 5 --days 90
      tenure token create gate-eu --role node --entry >> tokens.toml; kill -HUP PID
    """
    secret = base64.urlsafe_b64encode(secret_bytes(32)).decode().rstrip("=")
    expires = None if days is None else datetime.fromtimestamp(round(SystemClock().wall() + days * 86_400), UTC)
    made = Token(
        name=name,
        role=Role(role),
        sha256=hashlib.sha256(secret.encode()).hexdigest(),
        expires=expires,
        **msgspec.structs.asdict(bounds),
    )
    with friendly():
        check_token(made)
    missing: Sequence[Missing] = ()
    if entry:
        say("\n".join(["[[tokens]]", *_toml(made), ""]))
    else:
        with where.client() as client:
            missing = client.create_token(made, by=getpass.getuser()).pending
        say(f"{made.id} {name} {role}")
    say(f"The token of {name}, shown once: {secret}", err=True)
    _fail_for(missing, "it is not known there: create another one when the datacenter is back")


def _toml(made: Token) -> list[str]:
    """Returns the lines of an entry. JSON writes strings, numbers, lists and, as an inline table, labels as TOML does, but for the colon."""
    given = {
        field: value
        for field, value in msgspec.structs.asdict(made).items()
        if field in ("name", "role", "sha256") or value not in ("", (), {}, None)
    }
    order = ["name", "role", "sha256", *(field for field in given if field not in ("name", "role", "sha256"))]
    return [f"{field} = {_value(given[field])}" for field in order]


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_value(key)} = {_value(one)}" for key, one in value.items()) + " }"
    return msgspec.json.encode(value).decode()


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def show_all(as_json: bool, where: Where) -> None:
    """List the tokens and certificates that a node knows, and what each is bound to."""
    with where.client() as client:
        found = client.tokens()
    if as_json:
        print_json(found)
        return
    table = Table("id", "name", "role", "bound to", "expires", "from", "revoked")
    for one in found.tokens:
        expires = one.expires.isoformat() if one.expires is not None else ""
        revoked = Text("revoked", style="bold red") if one.revoked else Text("")
        table.add_row(one.id, Text(one.name), one.role.value, Text(_told(one)), expires, one.source, revoked)
    show(table)


def _told(row: TokenRow) -> str:
    fields = {field: getattr(row, field) for field in CallerBounds.__struct_fields__}
    return ", ".join(f"{field} {_value(value)}" for field, value in fields.items() if value not in ("", (), {}, None))


@token.command("revoke")
@click.argument("which")
@datacenter_options
def revoke(which: str, where: Where) -> None:
    """Revoke the token with the id or the name WHICH, wherever it was written down, on all nodes of the engine and a gate's datacenters.

    \b
    Example:
      tenure token revoke 3f5a1c0e9b7d2a46
    """
    with where.client() as client:
        known = client.tokens().tokens
        ids = [one.id for one in known if one.name == which and not one.revoked] or [which]
        if len(ids) > 1:
            raise click.ClickException(f"{len(ids)} tokens are named {which}: revoke one of the ids {', '.join(ids)}")
        done = client.revoke_token(ids[0], by=getpass.getuser())
    say(f"{done.id} is revoked")
    _fail_for(done.pending, "the gate tells it again until it has heard")


def _fail_for(missing: Sequence[Missing], then: str) -> None:
    for one in missing:
        say(f"datacenter {one.datacenter} has not done it ({one.reason}); {then}", err=True)
    if missing:
        raise SystemExit(REFUSED)

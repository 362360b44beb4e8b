"""`tenure submit WORKFLOW key=value …`: have a workflow run once, by whichever worker is free."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click
import msgspec

from tenure.cli.asking import NOT_COMPLETED, Where, address_options, print_json
from tenure.errors import JobNotEndedError
from tenure.jobs.states import JobState
from tenure.nodes.messages.client import JobView

_OPTIONS = (
    click.option(
        "--datacenters", type=int, help="At a gate, where none is named: in how many of the best; 1 by default."
    ),
    click.option(
        "--datacenter", "targets", multiple=True, metavar="NAME", help="At a gate: where it runs; may be repeated."
    ),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="To find it by; may be repeated."),
    click.option("--max-attempts", type=int, help="How often it is tried at most; 3 by default."),
    click.option("--delay", default=0.0, help="Seconds to wait before it may start."),
    click.option("--priority", default=0, show_default=True, help="Higher goes first: a mailbox of its own."),
    click.option("--queue", default="default", show_default=True),
    click.option("--timeout", default=3600.0, show_default=True, help="Seconds that the job may take."),
    click.option("--key", "idempotency_key", default="", help="The same submission under the same key is one job."),
    click.option("--id", "job_id", default="", help="The job's id: the same submission under the same id is one job."),
)


def submission_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a submission, which arrive as the argument `options`."""

    @wraps(function)
    def called(
        *args: Any,
        job_id: str,
        idempotency_key: str,
        timeout: float,
        queue: str,
        priority: int,
        delay: float,
        max_attempts: int | None,
        labels: tuple[str, ...],
        targets: tuple[str, ...],
        datacenters: int | None,
        **rest: Any,
    ) -> Any:
        options = {
            "job_id": job_id,
            "idempotency_key": idempotency_key,
            "timeout": timeout,
            "queue": queue,
            "priority": priority,
            "delay": delay,
            "labels": {key: str(value) for key, value in parse(labels, plain=True).items()},
            **({} if max_attempts is None else {"max_attempts": max_attempts}),
            **({"target_datacenters": targets} if targets else {}),
            **({} if datacenters is None else {"datacenters": datacenters}),
        }
        return function(*args, options=options, **rest)

    found: Callable[..., Any] = called
    for option in _OPTIONS:
        found = option(found)
    return found


@click.command("submit")
@click.argument("workflow")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@submission_options
@click.option("--wait", is_flag=True, help="Wait for its end; the exit code is 4 unless it completed.")
@click.option("--wait-timeout", type=float, help="Seconds to wait at most; the job goes on.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_options
def command(
    workflow: str,
    arguments: tuple[str, ...],
    options: dict[str, Any],
    wait: bool,
    wait_timeout: float | None,
    as_json: bool,
    where: Where,
) -> None:
    """Have WORKFLOW run with these arguments. A value is JSON where it can be read as JSON, and text otherwise.

    \b
    Examples:
      tenure submit encode path=a.mov quality=7
      tenure submit report tags='["a", "b"]' --wait
      tenure submit charge order=17 --id charge-17        # sent twice, run once

    Prints the job's id. Exit codes: 0 accepted, 1 refused, 2 wrong usage, 3 no manager answered, 4 waited for and not completed.
    """
    with where.client() as client:
        job_id = client.submit(workflow, parse(arguments), **options).id
        if not wait:
            print_json({"job_id": job_id}) if as_json else click.echo(job_id)
            return
        try:
            view = client.wait(job_id, wait_timeout)
        except JobNotEndedError as error:
            click.echo(f"{job_id}: {error}", err=True)
            raise SystemExit(NOT_COMPLETED) from error
    print_json(view) if as_json else _show(view)
    raise SystemExit(0 if view.state is JobState.COMPLETED else NOT_COMPLETED)


def parse(arguments: tuple[str, ...], *, plain: bool = False) -> dict[str, Any]:
    """`key=value` pairs; `plain` takes every value as text."""
    found: dict[str, Any] = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="arguments")
        try:
            found[key] = value if plain else msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[key] = value
    return found


def _show(view: JobView) -> None:
    click.echo(f"{view.job_id}: {view.state}" + (f": {view.reason}" if view.state is not JobState.COMPLETED else ""))
    for one in view.workflows:
        if one.state == "completed":
            click.echo(msgspec.json.encode(one.result).decode())
        elif one.error:
            click.echo(f"{one.name}, attempt {one.attempt}: {one.error}", err=True)

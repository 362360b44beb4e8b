"""The commands that start and end jobs: run, submit, cancel, retry."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
import msgspec

from tenure.cli.options import NOT_COMPLETED, Where, address_options, datacenter_options, print_json
from tenure.control.messages.jobs import JobView
from tenure.errors import JobFailed, JobNotEndedError
from tenure.jobs.states import JobState

_SUBMISSION_OPTIONS = (
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
    for option in _SUBMISSION_OPTIONS:
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
def submit(
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
    print_json(view) if as_json else _show_ended(view)
    raise SystemExit(0 if view.state is JobState.COMPLETED else NOT_COMPLETED)


def parse(arguments: tuple[str, ...], *, plain: bool = False) -> dict[str, Any]:
    """Parses `key=value` pairs. With `plain`, it takes every value as text."""
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


def _show_ended(view: JobView) -> None:
    click.echo(f"{view.job_id}: {view.state}" + (f": {view.reason}" if view.state is not JobState.COMPLETED else ""))
    for one in view.workflows:
        if one.state == "completed":
            click.echo(msgspec.json.encode(one.result).decode())
        elif one.error:
            click.echo(f"{one.name}, attempt {one.attempt}: {one.error}", err=True)


INTERRUPTED = 130


@click.command("run")
@click.argument("workflow")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@submission_options
@click.option("--wait-timeout", type=float, help="Seconds to wait at most; the job goes on.")
@click.option("--cancel", is_flag=True, help="Cancel the job when you press Ctrl-C; without it, the job goes on.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole job as JSON, not only what it returned.")
@address_options
def run(
    workflow: str,
    arguments: tuple[str, ...],
    options: dict[str, Any],
    wait_timeout: float | None,
    cancel: bool,
    as_json: bool,
    where: Where,
) -> None:
    """Run WORKFLOW now: a bar while it runs, its result as JSON on the standard output, or why it has none.

    \b
    Examples:
      tenure run encode path=a.mov
      tenure run report tags='["a", "b"]' --timeout 600 | jq .
      tenure run encode path=a.mov || echo "it failed with $?"

    Exit codes: 0 completed, 1 refused, 2 wrong usage, 3 no manager answered, 4 it ended without a result or goes on after
    --wait-timeout, 130 Ctrl-C.
    """
    with where.client() as client:
        job = client.submit(workflow, parse(arguments), **options)
        click.echo(f"job {job.id}", err=True)
        try:
            value = job.wait(wait_timeout, progress=True)
        except JobFailed as error:
            if as_json:
                print_json(job.status())
            click.echo(str(error), err=True)
            raise SystemExit(NOT_COMPLETED) from error
        except JobNotEndedError as error:
            click.echo(str(error), err=True)
            raise SystemExit(NOT_COMPLETED) from error
        except KeyboardInterrupt:
            if cancel:
                job.cancel("Ctrl-C at its terminal")
                click.echo(f"\ncancelled {job.id}", err=True)
            else:
                click.echo(f"\n{job.id} goes on. To end it: tenure cancel {job.id}", err=True)
            raise SystemExit(INTERRUPTED) from None
        if as_json:
            print_json(job.status())
        else:
            click.echo(msgspec.json.encode(value).decode())


@click.command("cancel")
@click.argument("job_id", metavar="JOB")
@click.option("--reason", default="", help="Kept with the job; `tenure why` shows it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def cancel(job_id: str, reason: str, as_json: bool, where: Where) -> None:
    """Cancel JOB. One that is not known yet will not run when it comes.

    \b
    Example:
      tenure cancel encode-5f1c09aa12b4c3d2 --reason "wrong file"
    """
    with where.client() as client:
        done = client.cancel(job_id, reason, by=getpass.getuser())
    print_json(done) if as_json else click.echo(f"{done.job_id}: {done.outcome}: {done.reason or 'cancelled'}")


@click.command("retry")
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def retry(job_ids: tuple[str, ...], as_json: bool, where: Where) -> None:
    """Run each ended JOB once more, as a new job that names the old one. Asked again, it is the same new job.

    \b
    Examples:
      tenure retry encode-5f1c09aa12b4c3d2
      tenure ps --state failed --json | jq -r '.jobs[].job_id' | xargs tenure retry

    Prints the new ids. Exit codes: 1 refused, for one that still runs; 3 no manager answered.
    """
    with where.client() as client:
        made = {job_id: client.retry(job_id, by=getpass.getuser()) for job_id in job_ids}
    if as_json:
        print_json([{"job_id": old, "new_job_id": new} for old, new in made.items()])
    else:
        click.echo("\n".join(made.values()))

"""`tenure submit WORKFLOW key=value …`: have a workflow run once, by whichever worker is free."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from tenure.cli.asking import NOT_COMPLETED, Where, datacenter_options, print_json
from tenure.errors import JobNotEndedError
from tenure.jobs.states import JobState
from tenure.nodes.messages import JobView


@click.command("submit")
@click.argument("workflow")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--id", "job_id", default="", help="The job's id: the same submission under the same id is one job.")
@click.option("--timeout", default=3600.0, show_default=True, help="Seconds that the job may take.")
@click.option("--queue", default="default", show_default=True)
@click.option("--priority", default=0, show_default=True, help="Higher goes first: a mailbox of its own.")
@click.option("--wait", is_flag=True, help="Wait for its end; the exit code is 4 unless it completed.")
@click.option("--wait-timeout", type=float, help="Seconds to wait at most; the job goes on.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def command(
    workflow: str,
    arguments: tuple[str, ...],
    job_id: str,
    timeout: float,
    queue: str,
    priority: int,
    wait: bool,
    wait_timeout: float | None,
    as_json: bool,
    where: Where,
) -> None:
    """Run WORKFLOW with these arguments. A value is JSON where it can be read as JSON, and text otherwise.

    \b
    Examples:
      tenure submit encode path=a.mov quality=7
      tenure submit report tags='["a", "b"]' --wait
      tenure submit charge order=17 --id charge-17        # sent twice, run once

    Prints the job's id. Exit codes: 1 refused, 3 no manager answered, 4 waited for and not completed.
    """
    with where.client() as client:
        job_id = client.submit(
            workflow, parse(arguments), job_id=job_id, timeout=timeout, queue=queue, priority=priority
        ).id
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


def parse(arguments: tuple[str, ...]) -> dict[str, Any]:
    """`key=value` pairs."""
    found: dict[str, Any] = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="arguments")
        try:
            found[key] = msgspec.json.decode(value)
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

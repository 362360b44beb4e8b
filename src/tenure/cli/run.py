"""`tenure run WORKFLOW key=value …`: submit a job, follow it, print what it returned."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from tenure.cli.asking import NOT_COMPLETED, Where, address_options, print_json
from tenure.cli.submit import parse, submission_options
from tenure.errors import JobFailed, JobNotEndedError

INTERRUPTED = 130


@click.command("run")
@click.argument("workflow")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@submission_options
@click.option("--wait-timeout", type=float, help="Seconds to wait at most; the job goes on.")
@click.option("--cancel", is_flag=True, help="Cancel the job when you press Ctrl-C; without it, the job goes on.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole job as JSON, not only what it returned.")
@address_options
def command(
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

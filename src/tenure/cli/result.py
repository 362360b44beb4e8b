"""`tenure result JOB`: what a job returned."""

from __future__ import annotations

import click

from tenure.cli.asking import NOT_COMPLETED, Where, datacenter_options, print_json
from tenure.errors import JobFailed, JobNotEndedError


@click.command("result")
@click.argument("job_id", metavar="JOB")
@click.option("--wait", is_flag=True, help="Wait for its end.")
@click.option("--json", "as_json", is_flag=True, help="The same: a result is JSON.")
@datacenter_options
def command(job_id: str, wait: bool, as_json: bool, where: Where) -> None:
    """Print what JOB returned, as JSON; of several workflows, an object by their names.

    \b
    Example:
      tenure result encode-5f1c09aa12b4c3d2 | jq .

    Exit codes: 0 printed, 1 no such job, 3 no manager answered, 4 it has no result: the reason is on the error stream.
    """
    with where.client() as client:
        try:
            print_json(client.get(job_id).wait(None if wait else 0.0))
        except (JobFailed, JobNotEndedError) as error:
            click.echo(str(error), err=True)
            raise SystemExit(NOT_COMPLETED) from error

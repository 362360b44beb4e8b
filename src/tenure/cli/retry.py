"""`tenure retry JOB`: run what has ended once more."""

from __future__ import annotations

import getpass

import click

from tenure.cli.asking import Where, datacenter_options, print_json


@click.command("retry")
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def command(job_ids: tuple[str, ...], as_json: bool, where: Where) -> None:
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

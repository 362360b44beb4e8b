"""`tenure cancel JOB`: end a job now; queued work of it is never claimed, running work is stopped."""

from __future__ import annotations

import getpass

import click

from tenure.cli.asking import Where, datacenter_options, print_json


@click.command("cancel")
@click.argument("job_id", metavar="JOB")
@click.option("--reason", default="", help="Kept with the job; `tenure why` shows it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def command(job_id: str, reason: str, as_json: bool, where: Where) -> None:
    """Cancel JOB. One that is not known yet will not run when it comes.

    \b
    Example:
      tenure cancel encode-5f1c09aa12b4c3d2 --reason "wrong file"
    """
    with where.client() as client:
        done = client.cancel(job_id, reason, by=getpass.getuser())
    print_json(done) if as_json else click.echo(f"{done.job_id}: {done.outcome}: {done.reason or 'cancelled'}")

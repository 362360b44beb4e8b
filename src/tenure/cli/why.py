"""`tenure why JOB`: the chain of decisions that brought a job to where it is."""

from __future__ import annotations

import click

from tenure.cli.asking import Where, datacenter_options, print_json


@click.command("why")
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the evidence of each decision.")
@datacenter_options
def command(job_id: str, as_json: bool, where: Where) -> None:
    """Say why JOB is where it is: every start, failure, failover, deadline and refusal, in order.

    \b
    Example:
      tenure why encode-5f1c09aa12b4c3d2
    """
    with where.client() as client:
        answer = client.why(job_id)
    print_json(answer.why) if as_json else click.echo(answer.text, nl=False)

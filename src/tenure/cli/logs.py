"""`tenure logs JOB`: what its workflow logged."""

from __future__ import annotations

import click
import msgspec

from tenure.cli.asking import Where, datacenter_options
from tenure.jobs.why import utc


@click.command("logs")
@click.argument("job_id", metavar="JOB")
@click.option("--workflow", default="", help="Which of its workflows; may be left out where there is one.")
@click.option("--attempt", default=0, help="Which attempt; the newest by default.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the attempt can log no more.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each line.")
@datacenter_options
def command(job_id: str, workflow: str, attempt: int, follow: bool, as_json: bool, where: Where) -> None:
    """Print what JOB logged, with `ctx.log`, any logger or `print`, in its newest attempt.

    \b
    Examples:
      tenure logs encode-5f1c09aa12b4c3d2
      tenure logs encode-5f1c09aa12b4c3d2 --attempt 1
    """
    try:
        with where.client() as client:
            for line in client.get(job_id).logs(follow=follow, attempt=attempt, workflow=workflow):
                said = f"{utc(line.at)[11:19]}  {line.level:<7}  {line.text}"
                click.echo(msgspec.json.encode(line).decode() if as_json else said)
    except (KeyboardInterrupt, BrokenPipeError):
        return

"""The command that prints what a workflow emits while it runs."""

from __future__ import annotations

import click
import msgspec

from tenure.cli.options import Where, datacenter_options, print_line, say


@click.command("output")
@click.argument("job_id", metavar="JOB")
@click.option("--workflow", default="", help="Which of its workflows; may be left out where there is one.")
@click.option("--after", default=0, help="From this offset on; 0 for all.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the workflow can emit no more.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document for each item, with its offset, time and attempt."
)
@datacenter_options
def output(job_id: str, workflow: str, after: int, follow: bool, as_json: bool, where: Where) -> None:
    """Print the items that JOB has emitted with `ctx.emit`, one on each line.

    \b
    Examples:
      tenure output report-5f1c09aa12b4c3d2 --follow
      tenure output report-5f1c09aa12b4c3d2 --after 100 --json
    """
    try:
        with where.client() as client:
            for one in client.get(job_id).output(after, follow=follow, workflow=workflow):
                text = one.item if isinstance(one.item, str) else msgspec.json.encode(one.item).decode()
                print_line(one) if as_json else say(text)
    except (KeyboardInterrupt, BrokenPipeError):
        return

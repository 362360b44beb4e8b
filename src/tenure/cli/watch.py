"""`tenure watch [JOB]`: what is decided, as it is decided."""

from __future__ import annotations

import sys

import click
import msgspec

from tenure.cli.asking import Where, datacenter_options
from tenure.client.client import Client
from tenure.client.job_results import ENDED
from tenure.jobs.why import utc
from tenure.nodes.messages.event import EventLine
from tenure.web.telling import words_of

WAIT_S = 10.0


@click.command("watch")
@click.argument("job_id", required=False, default="", metavar="[JOB]")
@click.option("--queue", default="", help="Only jobs of this queue.")
@click.option("--after", default="", help="From this cursor on; 0 for all that is kept.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document for each event, with the cursor to resume after it."
)
@datacenter_options
def command(job_id: str, queue: str, after: str, as_json: bool, where: Where) -> None:
    """Follow one JOB to its end, or everything until Ctrl-C. A change of leaders costs no event.

    \b
    Examples:
      tenure watch encode-5f1c09aa12b4c3d2
      tenure watch --json | jq -r .event.type
    """
    try:
        with where.client() as client:
            _follow(client, job_id, queue, after or ("0" if job_id else None), as_json)
    except (KeyboardInterrupt, BrokenPipeError):
        return


def _follow(client: Client, job_id: str, queue: str, after: str | None, as_json: bool) -> None:
    if job_id:
        client.job(job_id)  # a wrong id is said at once, rather than waited for
    while True:
        page = client.events(job_id, after, queue=queue, wait_s=WAIT_S)
        if page.gap is not None:
            click.echo(f"{page.gap.reason} (up to {page.gap.cursor})", err=True)
        for line in page.events:
            click.echo(msgspec.json.encode(line).decode() if as_json else _words(line))
            if job_id and line.event["type"] in ENDED:
                return
        sys.stdout.flush()
        if job_id and not page.events and client.job(job_id).ended and page.gap is not None:
            return
        after = page.cursor


def _words(line: EventLine) -> str:
    return f"{utc(line.event.get('at', 0.0))[11:19]}  {line.event.get('job_id', ''):<24}  {words_of(line.event)}"

"""`tenure ps`: the jobs of a datacenter, or one of them."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from tenure.cli.asking import STYLES, Where, datacenter_options, is_wide, print_json, show
from tenure.jobs.states import JobState
from tenure.nodes.messages.client import JobList, JobView


@click.command("ps")
@click.argument("job_id", required=False, metavar="[JOB]")
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--queue", default="", help="Only jobs of this queue.")
@click.option("--name", default="", help="Only jobs whose name or id begins so.")
@click.option("--label", default="", metavar="KEY[=VALUE]", help="Only jobs with this label.")
@click.option("--limit", default=50, show_default=True, help="The newest so many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def command(
    job_id: str | None, state: str | None, queue: str, name: str, label: str, limit: int, as_json: bool, where: Where
) -> None:
    """List the newest jobs with their progress, or the workflows of one JOB.

    \b
    Examples:
      tenure ps --state running
      tenure ps encode-5f1c09aa12b4c3d2
      tenure ps --json | jq '.jobs[].job_id'
    """
    with where.client() as client:
        wanted = JobState(state) if state else None
        filters = {"queue": queue, "name": name, "label": label}
        answer = client.job(job_id) if job_id else client.jobs(state=wanted, limit=limit, **filters)
    if as_json:
        print_json(answer)
    else:
        show(_one(answer) if isinstance(answer, JobView) else _all(answer, is_wide()))


def _all(found: JobList, wide: bool) -> Table:
    title = f"{found.known} jobs" + (f", the newest {len(found.jobs)}" if found.known > len(found.jobs) else "")
    # In a narrow terminal: which job, how it is, how far, how old. `tenure ps JOB` and `why` tell the rest.
    more = ("what", "workflows", "attempts", "why") if wide else ()
    table = Table("job", "state", "done", "age", *more, title=title)
    for row in found.jobs:
        done = f"{row.completed}/{row.total}" + (f", {row.failed} failed" if row.failed else "")
        reason = "" if row.state is JobState.COMPLETED else row.reason
        more_cells = (Text(row.name), done, str(row.attempts), Text(reason)) if wide else ()
        table.add_row(
            Text(row.job_id, overflow="fold"),
            Text(row.state, style=STYLES[row.state]),
            f"{row.progress:.0%}",
            age((row.ended_at or found.now) - row.submitted_at),
            *more_cells,
        )
    return table


def age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def _one(view: JobView) -> Table:
    left = view.deadline - view.now
    title = f"{view.job_id}: {view.state}" + (f", {left:.0f} s left" if not view.ended else f", {view.reason}")
    table = Table("workflow", "state", "attempt", "steps", "progress", "worker", "error", title=title)
    for one in view.workflows:
        table.add_row(
            Text(one.name),
            Text(one.state),
            f"{one.attempt}/{one.max_attempts}",
            str(one.steps),
            "" if one.fraction is None else f"{one.fraction:.0%}",
            Text(one.worker[:12]),
            Text(one.error),
        )
    return table

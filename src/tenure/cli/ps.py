"""`tenure ps`: the jobs of a datacenter, or one of them."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from tenure.cli.asking import STYLES, Where, console, datacenter_options, print_json
from tenure.jobs.states import JobState
from tenure.nodes.messages import JobList, JobView


@click.command("ps")
@click.argument("job_id", required=False, metavar="[JOB]")
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--limit", default=50, show_default=True, help="The newest so many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def command(job_id: str | None, state: str | None, limit: int, as_json: bool, where: Where) -> None:
    """List the newest jobs with their progress, or the workflows of one JOB.

    \b
    Examples:
      tenure ps --state running
      tenure ps encode-5f1c09aa12b4c3d2
      tenure ps --json | jq '.jobs[].job_id'
    """
    with where.client() as client:
        answer = client.job(job_id) if job_id else client.jobs(state=JobState(state) if state else None, limit=limit)
    if as_json:
        print_json(answer)
    else:
        console().print(_one(answer) if isinstance(answer, JobView) else _all(answer))


def _all(found: JobList) -> Table:
    title = f"{found.known} jobs" + (f", the newest {len(found.jobs)}" if found.known > len(found.jobs) else "")
    table = Table("job", "what", "state", "progress", "workflows", "attempts", "age", "why", title=title)
    for row in found.jobs:
        done = f"{row.completed}/{row.total}" + (f", {row.failed} failed" if row.failed else "")
        table.add_row(
            Text(row.job_id),
            Text(row.name),
            Text(row.state, style=STYLES[row.state]),
            f"{row.progress:.0%}",
            done,
            str(row.attempts),
            f"{(row.ended_at or found.now) - row.submitted_at:.1f} s",
            Text(row.reason if row.state is not JobState.COMPLETED else ""),
        )
    return table


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

"""The commands that look at jobs: ps, why, watch, logs, result."""

from __future__ import annotations

import sys

import click
import msgspec
from rich.table import Table
from rich.text import Text

from tenure.cli.options import NOT_COMPLETED, STYLES, Where, datacenter_options, is_wide, print_json, show
from tenure.client.client import Client
from tenure.client.job_messages import ENDED
from tenure.control.messages.events import EventLine
from tenure.control.messages.jobs import JobList, JobView
from tenure.errors import JobFailed, JobNotEndedError
from tenure.jobs.event_text import words_of
from tenure.jobs.states import JobState
from tenure.jobs.why import utc


@click.command("ps")
@click.argument("job_id", required=False, metavar="[JOB]")
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--queue", default="", help="Only jobs of this queue.")
@click.option("--name", default="", help="Only jobs whose name or id begins so.")
@click.option("--label", default="", metavar="KEY[=VALUE]", help="Only jobs with this label.")
@click.option("--limit", default=50, show_default=True, help="The newest so many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def ps(
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
        show(_job_table(answer) if isinstance(answer, JobView) else _jobs_table(answer, is_wide()))


def _jobs_table(found: JobList, wide: bool) -> Table:
    title = f"{found.known} jobs" + (f", the newest {len(found.jobs)}" if found.known > len(found.jobs) else "")
    # A narrow terminal shows only the id, the state, the progress and the age of a job. `tenure ps JOB` and `why` tell the rest.
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


def _job_table(view: JobView) -> Table:
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


@click.command("why")
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the evidence of each decision.")
@datacenter_options
def why(job_id: str, as_json: bool, where: Where) -> None:
    """Say why JOB is where it is: every start, failure, failover, deadline and refusal, in order.

    \b
    Example:
      tenure why encode-5f1c09aa12b4c3d2
    """
    with where.client() as client:
        answer = client.why(job_id)
    print_json(answer.why) if as_json else click.echo(answer.text, nl=False)


WATCH_WAIT_S = 10.0


@click.command("watch")
@click.argument("job_id", required=False, default="", metavar="[JOB]")
@click.option("--queue", default="", help="Only jobs of this queue.")
@click.option("--after", default="", help="From this cursor on; 0 for all that is kept.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document for each event, with the cursor to resume after it."
)
@datacenter_options
def watch(job_id: str, queue: str, after: str, as_json: bool, where: Where) -> None:
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
        client.job(job_id)  # fails at once for a wrong id, instead of waiting for its events
    while True:
        page = client.events(job_id, after, queue=queue, wait_s=WATCH_WAIT_S)
        if page.gap is not None:
            click.echo(f"{page.gap.reason} (up to {page.gap.cursor})", err=True)
        for line in page.events:
            click.echo(msgspec.json.encode(line).decode() if as_json else _event_line(line))
            if job_id and line.event["type"] in ENDED:
                return
        sys.stdout.flush()
        if job_id and not page.events and client.job(job_id).ended and page.gap is not None:
            return
        after = page.cursor


def _event_line(line: EventLine) -> str:
    return f"{utc(line.event.get('at', 0.0))[11:19]}  {line.event.get('job_id', ''):<24}  {words_of(line.event)}"


@click.command("logs")
@click.argument("job_id", metavar="JOB")
@click.option("--workflow", default="", help="Which of its workflows; may be left out where there is one.")
@click.option("--attempt", default=0, help="Which attempt; the newest by default.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the attempt can log no more.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each line.")
@datacenter_options
def logs(job_id: str, workflow: str, attempt: int, follow: bool, as_json: bool, where: Where) -> None:
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


@click.command("result")
@click.argument("job_id", metavar="JOB")
@click.option("--wait", is_flag=True, help="Wait for its end.")
@click.option("--json", "as_json", is_flag=True, help="The same: a result is JSON.")
@datacenter_options
def result(job_id: str, wait: bool, as_json: bool, where: Where) -> None:
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

"""The commands that look at jobs: ps, why, watch, logs, output, result."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Any

import click
import msgspec
from rich.table import Table
from rich.text import Text

from tenure.attempt_data import pairs_in_words
from tenure.cli.node_options import see
from tenure.cli.options import (
    NOT_COMPLETED,
    STYLES,
    Where,
    datacenter_options,
    is_wide,
    job_filters,
    print_json,
    print_line,
    say,
    show,
)
from tenure.client.client import Client
from tenure.client.job_messages import ENDED
from tenure.control.messages.events import EventLine, ProgressLine
from tenure.control.messages.jobs import JobList, JobView, WorkflowView
from tenure.control.messages.wire import Grant, GrantKind
from tenure.errors import JobFailed, JobNotEndedError
from tenure.jobs.eta import eta_in_words
from tenure.jobs.event_text import words_of
from tenure.jobs.states import JobState
from tenure.jobs.why_answer import evidence_lines, utc


@click.command("ps")
@click.argument("job_id", required=False, metavar="[JOB]")
@job_filters
@click.option("--args", is_flag=True, help="Show the arguments; secrets are masked.")
@click.option("--limit", default=50, show_default=True, help="The newest so many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def ps(job_id: str | None, filters: dict[str, Any], args: bool, limit: int, as_json: bool, where: Where) -> None:
    """List the newest jobs with their progress, or the workflows of one JOB.

    \b
    Examples:
      tenure ps --state running --args
      tenure ps --arg tenant=7
      tenure ps encode-5f1c09aa12b4c3d2
      tenure ps --json | jq '.jobs[].job_id'
    """
    with where.client() as client:
        answer = client.job(job_id) if job_id else client.jobs(limit=limit, args=args, **filters)
    if as_json:
        print_json(answer)
    else:
        show(_job_table(answer) if isinstance(answer, JobView) else _jobs_table(answer, is_wide()))


def _jobs_table(found: JobList, wide: bool) -> Table:
    title = f"{found.known} job{'' if found.known == 1 else 's'}" + (
        f", the newest {len(found.jobs)}" if found.known > len(found.jobs) else ""
    )
    # A narrow terminal shows only the id, the state, the progress and the age of a job. `tenure ps JOB` and `why` tell the rest.
    more = ("what", "workflows", "attempts", "why") if wide else ()
    if any(row.args for row in found.jobs):
        more = (*more, "arguments")
    table = Table("job", "state", "done", "age", *more, title=title)
    for row in found.jobs:
        done = f"{row.completed}/{row.total}" + (f", {row.failed} failed" if row.failed else "")
        waits = f"waits for {row.waits_for}" if row.waits_for else ""
        reason = "" if row.state is JobState.COMPLETED else row.reason or waits or deadline_note(row.grants)
        more_cells = (Text(row.name), done, str(row.attempts), Text(reason)) if wide else ()
        table.add_row(
            Text(row.job_id, overflow="fold"),
            Text(_waiting(row.waits_for), style="yellow")
            if row.waits_for
            else Text(row.state, style=STYLES[row.state]),
            f"{row.progress:.0%}",
            age((row.ended_at or found.now) - row.submitted_at),
            *more_cells,
            *((row.args,) if "arguments" in more else ()),
        )
    return table


def deadline_note(grants: tuple[Grant, ...]) -> str:
    """Returns what is to be said of a job's deadline: the time that it earned past it, and the last denial."""
    return next((one.note for one in grants if one.kind is GrantKind.DEADLINE), "")


def age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def _job_table(view: JobView) -> Table:
    left = "no deadline" if view.deadline is None else f"{view.deadline - view.now:.0f} s left"
    left += f" ({note})" if (note := deadline_note(view.grants)) else ""
    title = f"{view.job_id}: {view.state}, {view.reason if view.ended else left}"
    table = Table("workflow", "state", "attempt", "steps", "progress", "worker", "error", title=title)
    for one in view.workflows:
        table.add_row(
            Text(one.name),
            Text(_waiting(one.waits_for) if one.waits_for else one.state),
            f"{one.attempt}/{one.max_attempts}" if one.attempt <= one.max_attempts else str(one.attempt),
            str(one.steps),
            _progress_words(one),
            Text(one.worker[:12]),
            Text(f"waits for {one.waits_for}" if one.waits_for else one.error or _flow_words(one)),
        )
    for one in view.workflows:
        if one.exposed:
            table.add_row(Text(f"{one.name} shows"), "", "", "", "", "", Text(pairs_in_words(one.exposed)))
    return table


def _waiting(waits_for: str) -> str:
    """Returns one word for work that waits: parked until a worker serves it, or suspended by its own code."""
    return "parked" if waits_for.startswith("a worker") else "suspended"


def _flow_words(one: WorkflowView) -> str:
    words = [
        f"after {', '.join(one.after)}" if one.after else "",
        f"result of {one.taken_from}" if one.taken_from else "",
    ]
    return ", ".join(word for word in words if word)


def _progress_words(one: WorkflowView) -> str:
    words = ["" if one.fraction is None else f"{one.fraction:.0%}", eta_in_words(one.eta) if one.eta else ""]
    return ", ".join(word for word in words if word)


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
    print_json(answer.why) if as_json else say(answer.text, nl=False)


WATCH_WAIT_S = 10.0


@click.command("watch")
@click.argument("job_id", required=False, default="", metavar="[JOB]")
@click.option("--queue", default="", help="Only jobs of this queue.")
@click.option("--after", default="", help="From this cursor on; 0 for all that is kept.")
@click.option("--progress", is_flag=True, help="Also progress, notes and the estimated end, once a second.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document for each event, with the cursor to resume after it."
)
@datacenter_options
def watch(job_id: str, queue: str, after: str, progress: bool, as_json: bool, where: Where) -> None:
    """Follow one JOB to its end, or everything until Ctrl-C. A change of leaders costs no event.

    \b
    Examples:
      tenure watch encode-5f1c09aa12b4c3d2 --progress
      tenure watch --json | jq -r .event.type
    """
    try:
        with where.client() as client:
            _follow(client, job_id, queue, after or ("0" if job_id else None), progress, as_json)
    except (KeyboardInterrupt, BrokenPipeError):
        return


def _follow(client: Client, job_id: str, queue: str, after: str | None, progress: bool, as_json: bool) -> None:
    if job_id:
        client.job(job_id)  # fails at once for a wrong id, instead of waiting for its events
    while True:
        page = client.events(job_id, after, queue=queue, wait_s=WATCH_WAIT_S, progress=progress)
        if page.gap is not None:
            say(f"{page.gap.reason} (up to {page.gap.cursor})", err=True)
        for one in in_order(page.events, page.progress):
            if isinstance(one, ProgressLine):
                print_line(one) if as_json else say(_progress_line(one))
                continue
            print_line(one) if as_json else say(_event_line(one))
            if job_id and one.event["type"] in ENDED:
                return
        sys.stdout.flush()
        if job_id and not page.events and client.job(job_id).ended and page.gap is not None:
            return
        after = page.cursor


def in_order(events: Iterable[EventLine], progress: Iterable[ProgressLine]) -> Iterator[EventLine | ProgressLine]:
    """Yields both by their times, so that no progress comes before the start of its work. Events keep their own order, whatever their times say."""
    return merge(events, progress, key=_at)


def _at(one: EventLine | ProgressLine) -> float:
    return one.at if isinstance(one, ProgressLine) else float(one.event.get("at", 0.0))


def _progress_line(one: ProgressLine) -> str:
    words = [f"{one.workflow!r}, attempt {one.attempt}", f"{one.steps} beats"]
    words += [f"{one.fraction:.0%}"] if one.fraction is not None else []
    words += [one.note] if one.note else []
    words += [eta_in_words(one.eta)] if one.eta is not None else []
    return f"{utc(one.at)[11:19]}  {one.job_id:<24}  {', '.join(words)}"


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
                print_line(line) if as_json else say(said)
            found = client.evidence(job_id, workflow=workflow, attempt=attempt).evidence
            if found is not None and found.cause and not as_json:
                say("\n".join(evidence_lines(msgspec.structs.replace(found, log=()))), err=True)
    except (KeyboardInterrupt, BrokenPipeError):
        return


@click.command("evidence")
@click.argument("job_id", metavar="JOB")
@click.option("--workflow", default="", help="Which of its workflows; may be left out where there is one.")
@click.option("--attempt", default=0, help="Which attempt; the newest by default.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def evidence(job_id: str, workflow: str, attempt: int, as_json: bool, where: Where) -> None:
    """Print all that was found of an attempt that failed, was killed or died: traceback, stacks, exit, beats, the end of its log.

    \b
    Examples:
      tenure evidence encode-5f1c09aa12b4c3d2
      tenure evidence encode-5f1c09aa12b4c3d2 --attempt 1 --json | jq -r .evidence.stacks
    """
    with where.client() as client:
        found = client.evidence(job_id, workflow=workflow, attempt=attempt)
    if as_json:
        print_json(found)
    elif found.evidence is None or not found.evidence.cause:
        say(f"nothing was kept of attempt {found.attempt}: it ended well, still runs, or is too long ago")
    else:
        one = found.evidence
        say("\n".join([f"{one.cause}: {one.reason}", *evidence_lines(one)]))
        if one.stacks:
            say(f"\n{one.stacks}", nl=False)


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
            say(f"{error}\n{see(error)}", err=True)
            raise SystemExit(NOT_COMPLETED) from error


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

"""The commands that start and end jobs: run, submit, cancel, retry."""

from __future__ import annotations

import getpass
import shlex
from typing import Any

import click
import msgspec

from tenure.cli.node_options import one_value, see
from tenure.cli.options import (
    NOT_COMPLETED,
    Where,
    address_options,
    datacenter_options,
    job_filters,
    print_json,
    print_line,
    say,
    tell_many,
)
from tenure.client.job import Job
from tenure.control.messages.jobs import JobView
from tenure.errors import JobFailed, JobNotEndedError
from tenure.jobs.states import JobState
from tenure.served_workflow import OnDuplicate

_SUBMISSION_OPTIONS = (
    click.option(
        "--datacenters", type=int, help="At a gate, where none is named: in how many of the best; 1 by default."
    ),
    click.option(
        "--datacenter", "targets", multiple=True, metavar="NAME", help="At a gate: where it runs; may be repeated."
    ),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="To find it by; may be repeated."),
    click.option("--unique-for", type=float, help="Seconds for which an equal job stands for this one."),
    click.option(
        "--on-duplicate",
        type=click.Choice([one.value for one in OnDuplicate]),
        help="With --unique-for: get the equal job, be refused, or replace it where it has not started.",
    ),
    click.option("--unique-key", help="With --unique-for: jobs with this key are equal, whatever their arguments."),
    click.option("--max-attempts", type=int, help="How often it is tried at most; 3 by default."),
    click.option("--delay", default=0.0, help="Seconds to wait before it may start."),
    click.option("--priority", type=int, help="Higher goes first. [default: the function's, or 0]"),
    click.option("--queue", default="", help="[default: the function's, or the one in which workers serve it]"),
    click.option("--park", is_flag=True, help="Accept it also when no worker has registered it: it waits for one."),
    click.option("--timeout", type=float, help="Seconds that the job may take; without it, as long as it advances."),
    click.option("--key", "idempotency_key", default="", help="The same submission under the same key is one job."),
    click.option("--id", "job_id", default="", help="The job's id: the same submission under the same id is one job."),
)


def _submission(
    job_id: str,
    idempotency_key: str,
    timeout: float | None,
    queue: str,
    park: bool,
    priority: int | None,
    delay: float,
    max_attempts: int | None,
    labels: tuple[str, ...],
    targets: tuple[str, ...],
    datacenters: int | None,
    unique_for: float | None,
    on_duplicate: str | None,
    unique_key: str | None,
) -> dict[str, Any]:
    """Returns the arguments of `Client.submit`, without those that were not given: their defaults are the client's."""
    return {
        "job_id": job_id,
        "idempotency_key": idempotency_key,
        "queue": queue,
        "park": park,
        **({} if priority is None else {"priority": priority}),
        "delay": delay,
        "labels": {key: str(value) for key, value in parse(labels, plain=True).items()},
        **({} if timeout is None else {"timeout": timeout}),
        **({} if max_attempts is None else {"max_attempts": max_attempts}),
        **({"target_datacenters": targets} if targets else {}),
        **({} if datacenters is None else {"datacenters": datacenters}),
        **({} if unique_for is None else {"unique_for": unique_for}),
        **({} if on_duplicate is None else {"on_duplicate": on_duplicate}),
        **({} if unique_key is None else {"unique_key": unique_key}),
    }


submission_options = one_value("options", _submission, *reversed(_SUBMISSION_OPTIONS))
"""Adds the options of a submission. The command gets them as one `options`."""


@click.command("submit")
@click.argument("workflow")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@submission_options
@click.option(
    "--each", type=click.File("rb"), help="One job for each line of this file: its arguments as a JSON object."
)
@click.option("--wait", is_flag=True, help="Wait for its end; the exit code is 4 unless it completed.")
@click.option("--wait-timeout", type=float, help="Seconds to wait at most; the job goes on.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_options
def submit(
    workflow: str,
    arguments: tuple[str, ...],
    options: dict[str, Any],
    each: Any,
    wait: bool,
    wait_timeout: float | None,
    as_json: bool,
    where: Where,
) -> None:
    """Have WORKFLOW run with these arguments. A value is JSON where it can be read as JSON, and text otherwise.

    \b
    Examples:
      tenure submit encode path=a.mov quality=7
      tenure submit report tags='["a", "b"]' --wait
      tenure submit charge order=17 --id charge-17        # sent twice, run once
      tenure submit encode --each files.jsonl             # a job for each line

    Prints the job's id. Exit codes: 0 accepted, 1 refused, 2 wrong usage, 3 no manager answered, 4 waited for and not completed.
    """
    with where.client() as client:
        if each is not None:
            inputs = [{**parse(arguments), **msgspec.json.decode(line)} for line in each if line.strip()]
            many = {key: value for key, value in options.items() if key not in ("job_id", "idempotency_key")}
            made = [job.id for job in client.submit_many(workflow, inputs, **many)]
            print_json([{"job_id": one} for one in made]) if as_json else say("\n".join(made))
            return
        job_id = client.submit(workflow, parse(arguments), **options).id
        if not wait:
            print_json({"job_id": job_id}) if as_json else say(job_id)
            return
        try:
            view = client.wait(job_id, wait_timeout)
        except JobNotEndedError as error:
            say(f"{job_id}: {error}", err=True)
            raise SystemExit(NOT_COMPLETED) from error
    print_json(view) if as_json else _show_ended(view)
    raise SystemExit(0 if view.state is JobState.COMPLETED else NOT_COMPLETED)


def parse(arguments: tuple[str, ...], *, plain: bool = False) -> dict[str, Any]:
    """Parses `key=value` pairs. With `plain`, it takes every value as text."""
    found: dict[str, Any] = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="arguments")
        try:
            found[key] = value if plain else msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[key] = value
    return found


def _show_ended(view: JobView) -> None:
    say(f"{view.job_id}: {view.state}" + (f": {view.reason}" if view.state is not JobState.COMPLETED else ""))
    for one in view.workflows:
        if one.state == "completed":
            print_line(one.result)
        elif one.error:
            say(f"{one.name}, attempt {one.attempt}: {one.error}", err=True)


INTERRUPTED = 130


@click.command("run")
@click.argument("workflow")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@submission_options
@click.option("--wait-timeout", type=float, help="Seconds to wait at most; the job goes on.")
@click.option("--cancel", is_flag=True, help="Cancel the job when you press Ctrl-C; without it, the job goes on.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole job as JSON, not only what it returned.")
@address_options
def run(
    workflow: str,
    arguments: tuple[str, ...],
    options: dict[str, Any],
    wait_timeout: float | None,
    cancel: bool,
    as_json: bool,
    where: Where,
) -> None:
    """Run WORKFLOW now: a bar while it runs, its result as JSON on the standard output, or why it has none.

    \b
    Examples:
      tenure run encode path=a.mov
      tenure run report tags='["a", "b"]' --timeout 600 | jq .
      tenure run encode path=a.mov || echo "it failed with $?"

    Exit codes: 0 completed, 1 refused, 2 wrong usage, 3 no manager answered, 4 it ended without a result or goes on after
    --wait-timeout, 130 Ctrl-C.
    """
    with where.client() as client:
        job = client.submit(workflow, parse(arguments), **options)
        say(f"job {job.id}", err=True)
        try:
            value = job.wait(wait_timeout, progress=True)
        except (JobFailed, JobNotEndedError) as error:
            if as_json and isinstance(error, JobFailed):
                print_json(job.status())
            say(f"{error}\n{see(error)}", err=True)
            raise SystemExit(NOT_COMPLETED) from error
        except KeyboardInterrupt:
            _leave(job, cancel)
            raise SystemExit(INTERRUPTED) from None
        print_json(job.status()) if as_json else print_line(value)


def _leave(job: Job[Any], cancel: bool) -> None:
    """Says after Ctrl-C what becomes of the job."""
    if cancel:
        job.cancel("Ctrl-C at its terminal")
        say(f"\ncancelled {job.id}", err=True)
    else:
        say(f"\n{job.id} goes on. To end it: tenure cancel {shlex.quote(job.id)}", err=True)


def _one_way(given: bool, filters: dict[str, Any], command: str) -> None:
    if given == bool(filters):
        raise click.UsageError(f"which jobs? tenure {command} JOB; or filters, as --state failed --since 2h --dry-run")


@click.command("cancel")
@click.argument("job_id", required=False, default="", metavar="[JOB]")
@job_filters
@click.option("--reason", default="", help="Kept with the job; `tenure why` shows it.")
@click.option("--dry-run", is_flag=True, help="With filters: only say which jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def cancel(job_id: str, filters: dict[str, Any], reason: str, dry_run: bool, as_json: bool, where: Where) -> None:
    """Cancel JOB, or all that fit the filters. One JOB that is not known yet will not run when it comes.

    \b
    Examples:
      tenure cancel encode-5f1c09aa12b4c3d2 --reason "wrong file"
      tenure cancel --queue video --label customer=7 --dry-run
    """
    _one_way(bool(job_id), filters, "cancel")
    with where.client() as client:
        if filters:
            tell_many(client.cancel_all(reason, dry_run=dry_run, by=getpass.getuser(), **filters), as_json)
            return
        done = client.cancel(job_id, reason, by=getpass.getuser())
    print_json(done) if as_json else say(f"{done.job_id}: {done.outcome}: {done.reason or 'cancelled'}")


@click.command("retry")
@click.argument("job_ids", nargs=-1, metavar="[JOB]...")
@job_filters
@click.option("--dry-run", is_flag=True, help="With filters: only say which jobs.")
@click.option("--whole", is_flag=True, help="Run all workflows again, also those that completed.")
@click.option("--from", "step", default="", metavar="STEP", help="Begin again from this recorded step of JOB.")
@click.option("--timeout", type=float, help="Seconds that the new job may take, where JOB had too few.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def retry(
    job_ids: tuple[str, ...],
    filters: dict[str, Any],
    dry_run: bool,
    whole: bool,
    step: str,
    timeout: float | None,
    as_json: bool,
    where: Where,
) -> None:
    """Run each ended JOB once more, as a new job that names the old one; or all that fit the filters and ended without completing. Asked
    again, it is the same new job. It begins where the job broke: workflows that completed are not run again, and keep their results.
    With --from it begins again from a recorded step, on the code that workers have now; the steps before it keep their results.

    \b
    Examples:
      tenure retry encode-5f1c09aa12b4c3d2
      tenure retry order-17 --from charge
      tenure retry encode-5f1c09aa12b4c3d2 --timeout 7200
      tenure retry --state failed --function encode --since 2h --dry-run

    Prints the new ids. Exit codes: 1 refused, for one that still runs; 3 no manager answered.
    """
    _one_way(bool(job_ids), filters, "retry")
    if filters and step:
        raise click.UsageError(
            "--from needs the JOB that recorded the step; filters may fit jobs that have no such step"
        )
    asked: dict[str, Any] = {"by": getpass.getuser(), "whole": whole, "timeout": timeout}
    with where.client() as client:
        if filters:
            tell_many(client.retry_all(dry_run=dry_run, **asked, **filters), as_json)
            return
        made = {job_id: client.retry(job_id, from_step=step, **asked) for job_id in job_ids}
    if as_json:
        print_json([{"job_id": old, "new_job_id": new} for old, new in made.items()])
    else:
        say("\n".join(made.values()))

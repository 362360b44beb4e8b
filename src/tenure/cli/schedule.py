"""`tenure schedule`: jobs that come again, by cron or every so often."""

from __future__ import annotations

import getpass

import click
import msgspec

from tenure.cli.node_options import friendly
from tenure.cli.options import Where, datacenter_options, is_wide, placed_table, print_json, say, show, tell_missing
from tenure.cli.write_jobs import parse
from tenure.client.client import Client
from tenure.control.messages.jobs import Done
from tenure.control.messages.queues import ScheduleView
from tenure.jobs.state_records import Missed, Overlap, Schedule
from tenure.jobs.why_answer import utc
from tenure.randomness import new_id
from tenure.work.job_submission import submission_for
from tenure.work.submit_options import SubmitOptions


@click.group("schedule")
def schedule() -> None:
    """Have jobs run again and again. Each instant fires once, also while leaders change.

    \b
    Examples:
      tenure schedule add nightly report day=yesterday --cron "0 3 * * *" --zone Europe/Berlin
      tenure schedule add poll fetch --every 30
      tenure schedule list
      tenure schedule pause nightly
      tenure schedule list --datacenter eu                # at a gate: schedules live in a datacenter
    """


@schedule.command("add")
@click.argument("name")
@click.argument("workflow")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--cron", default="", help='When, as "minute hour day month weekday".')
@click.option("--every", default=0.0, help="Or: every so many seconds.")
@click.option("--zone", default="UTC", show_default=True, help="The time zone of --cron.")
@click.option(
    "--missed",
    type=click.Choice([one.value for one in Missed]),
    default="latest",
    show_default=True,
    help="What becomes of instants at which nobody led.",
)
@click.option(
    "--overlap",
    type=click.Choice([one.value for one in Overlap]),
    default="skip",
    show_default=True,
    help="What becomes of an instant while the last run goes on.",
)
@click.option("--timeout", type=float, help="Seconds that each run may take; without it, as long as it advances.")
@click.option("--queue", default="", help="[default: the function's, or the one in which workers serve it]")
@click.option("--park", is_flag=True, help="Accept it also when no worker has registered it: its runs wait for one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def add(
    name: str,
    workflow: str,
    arguments: tuple[str, ...],
    cron: str,
    every: float,
    zone: str,
    missed: str,
    overlap: str,
    timeout: float | None,
    queue: str,
    park: bool,
    as_json: bool,
    where: Where,
) -> None:
    """Run WORKFLOW under NAME again and again. The same again changes nothing; another under the same name replaces it."""
    if bool(cron) == bool(every):
        raise click.UsageError("say when: either --cron or --every")
    options = SubmitOptions(queue=queue, job_id=name, park=park)
    if timeout is not None:
        options["timeout"] = timeout
    with friendly():
        job = submission_for(workflow, parse(arguments), options, new_id)
    schedule = Schedule(
        name=name,
        job=job,
        cron=cron,
        every_s=every,
        zone=zone,
        missed=Missed(missed),
        overlap=Overlap(overlap),
    )
    with where.client() as client:
        _tell(name, _set(client, schedule), as_json)


@schedule.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def list_all(as_json: bool, where: Where) -> None:
    """Every schedule: when it fires next, and what became of its instants."""
    with where.client() as client:
        found = client.schedules()
    if as_json:
        print_json(found)
        return
    wide = is_wide()

    def cells(one: ScheduleView) -> tuple[str, ...]:
        spec = one.schedule
        when = f"{spec.cron} {spec.zone}" if spec.cron else f"every {spec.every_s:g} s"
        next_at = "paused" if spec.paused else "never" if one.next_at is None else utc(one.next_at)
        more = (str(one.fired), str(one.skipped), one.problem or one.last_skipped) if wide else ()
        return spec.name, when, next_at, one.last_job, *more

    head = ("schedule", "when", "next", "last job", *(("fired", "skipped", "problem") if wide else ()))
    show(placed_table(found.schedules, head, cells))
    tell_missing(found.missing)


@schedule.command("remove")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def remove(name: str, as_json: bool, where: Where) -> None:
    """End the schedule NAME; what runs goes on."""
    with where.client() as client:
        _tell(name, client.drop_schedule(name, by=getpass.getuser()), as_json)


@schedule.command("trigger")
@click.argument("name")
@click.option("--id", "job_id", default="", help="The run's id: the same again is the same run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def trigger(name: str, job_id: str, as_json: bool, where: Where) -> None:
    """Run the job of the schedule NAME now, beside its instants. Prints the job's id."""
    with where.client() as client:
        made = client.trigger_schedule(name, job_id=job_id, by=getpass.getuser())
    print_json({"job_id": made}) if as_json else say(made)


@schedule.command("pause")
@click.argument("name")
@click.option("--undo", is_flag=True, help="Let it fire again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def pause(name: str, undo: bool, as_json: bool, where: Where) -> None:
    """Let nothing of the schedule NAME fire until it is undone."""
    with where.client() as client:
        known = _find(client, name)
        _tell(name, _set(client, msgspec.structs.replace(known.schedule, paused=not undo), known.datacenter), as_json)


def _find(client: Client, name: str) -> ScheduleView:
    found = client.schedules().schedules
    fitting = [one for one in found if one.schedule.name == name]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise click.UsageError(f"which one? --datacenter {' or '.join(one.datacenter for one in fitting)}")
    raise click.ClickException(f"there is no schedule {name!r}; there are: {', '.join(s.schedule.name for s in found)}")


def _set(client: Client, schedule: Schedule, datacenter: str = "") -> Done:
    return client.set_schedule(schedule, datacenter=datacenter, by=getpass.getuser())


def _tell(name: str, done: Done, as_json: bool) -> None:
    words = f"{name}: {done.outcome}" + (f": {done.reason}" if done.reason else "")
    print_json(done) if as_json else say(words)

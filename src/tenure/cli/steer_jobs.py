"""The commands that act on a job while it runs: pause, resume, extend, retime, move."""

from __future__ import annotations

import getpass
from collections.abc import Callable

import click
import msgspec

from tenure.cli.options import Where, datacenter_options, print_json, say, span_s
from tenure.control.messages.jobs import Done


def steering_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds what these commands share. The reason must be given: whoever looks at the job tomorrow reads it in `tenure why`."""
    command = datacenter_options(command)
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return click.option("--reason", "-r", required=True, help="Why; `tenure why` and the audit log show it.")(command)


def _told(done: Done, as_json: bool) -> None:
    print_json(done) if as_json else say(f"{done.job_id}: {done.outcome}: {done.reason}")


@click.command("signal")
@click.argument("job_id", metavar="JOB")
@click.argument("name")
@click.argument("payload", required=False, default="null", metavar="[JSON]")
@click.option("--id", "signal_id", default="", help="The same id again is the same signal; made up by default.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@datacenter_options
def signal(job_id: str, name: str, payload: str, signal_id: str, as_json: bool, where: Where) -> None:
    """Send signal NAME to JOB, with a payload. A workflow that waits for it goes on; one that waits later finds it.

    \b
    Examples:
      tenure signal expense-5f1c09aa12b4c3d2 approved '{"by": "ada"}' --id mail-17
    """
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"{payload[:100]!r} is no JSON: {error}. Text needs quotes: '\"yes\"'") from error
    with where.client() as client:
        _told(client.signal(job_id, name, value, id=signal_id, by=getpass.getuser()), as_json)


@click.command("pause")
@click.argument("job_id", metavar="JOB")
@steering_options
def pause(job_id: str, reason: str, as_json: bool, where: Where) -> None:
    """Pause JOB: nothing more of it starts, and what runs is asked to end with its checkpoint. None of its clocks runs until it is resumed,
    and the attempts that made way are not charged.

    \b
    Examples:
      tenure pause encode-5f1c09aa12b4c3d2 --reason "the licence server is down"
    """
    with where.client() as client:
        _told(client.pause(job_id, reason, by=getpass.getuser()), as_json)


@click.command("resume")
@click.argument("job_id", metavar="JOB")
@steering_options
def resume(job_id: str, reason: str, as_json: bool, where: Where) -> None:
    """Let the paused JOB go on from its checkpoints. Its deadline moves by the time of the pause.

    \b
    Examples:
      tenure resume encode-5f1c09aa12b4c3d2 --reason "the licence server is back"
    """
    with where.client() as client:
        _told(client.resume(job_id, reason, by=getpass.getuser()), as_json)


@click.command("extend")
@click.argument("job_id", metavar="JOB")
@click.argument("time")
@steering_options
def extend(job_id: str, time: str, reason: str, as_json: bool, where: Where) -> None:
    """Give JOB so much TIME more than it has: 90, 90s, 30m, 2h, 1d.

    \b
    Examples:
      tenure extend encode-5f1c09aa12b4c3d2 30m --reason "the disk is slow today"
    """
    with where.client() as client:
        _told(client.extend(job_id, span_s(time, "TIME"), reason, by=getpass.getuser()), as_json)


@click.command("retime")
@click.argument("job_id", metavar="JOB")
@click.argument("timeout")
@steering_options
def retime(job_id: str, timeout: str, reason: str, as_json: bool, where: Where) -> None:
    """Give JOB another deadline: the whole time that it may take, from its start; or `none`.

    \b
    Examples:
      tenure retime encode-5f1c09aa12b4c3d2 6h --reason "a longer film than usual"
      tenure retime encode-5f1c09aa12b4c3d2 none --reason "it may take as long as it advances"
    """
    seconds = None if timeout == "none" else span_s(timeout, "TIMEOUT")
    with where.client() as client:
        _told(client.retime(job_id, seconds, reason, by=getpass.getuser()), as_json)


@click.command("move")
@click.argument("job_id", metavar="JOB")
@click.argument("workflow", required=False, default="", metavar="[WORKFLOW]")
@steering_options
def move(job_id: str, workflow: str, reason: str, as_json: bool, where: Where) -> None:
    """Have what runs of JOB end with its checkpoint, and go on from there on another worker. It is not charged as an attempt. Refused while no
    other worker could take it.

    \b
    Examples:
      tenure move encode-5f1c09aa12b4c3d2 --reason "worker-3 is needed for something else"
    """
    with where.client() as client:
        _told(client.move(job_id, reason, workflow=workflow, by=getpass.getuser()), as_json)

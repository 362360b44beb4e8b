"""The commands that ask a datacenter, against a real one on loopback: what they print, as JSON and for people, and how they end."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.table import Table
from tests.client.one_datacenter import datacenter

import tenure.cli as tenure_cli
from tenure.cli.options import say, show
from tenure.cli.root import COMMANDS, SECTIONS, tenure

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A manager and a worker with the workflows `double` and `waits`, in a thread."""
    found: list[str] = []
    ready, stop = threading.Event(), threading.Event()

    async def main() -> None:
        async with datacenter() as where:
            found.append(where)
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(180)
    try:
        yield found[0]
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def run(address: str) -> Run:
    def invoke(*arguments: str, code: int = 0) -> Result:
        environment = {"TENURE_ADDRESS": address, "TENURE_ENGINE": "", "TERM": "dumb"}
        result = CliRunner().invoke(tenure, arguments, env=environment)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return invoke


@pytest.fixture
def done(run: Run) -> str:
    """The id of a job that completed."""
    return str(json.loads(run("submit", "double", "n=21", "--wait", "--json").stdout)["job_id"])


def worker(run: Run) -> dict[str, Any]:
    """The one that there is, once it has reported."""
    begun = time.monotonic()
    while not (found := json.loads(run("nodes", "--json").stdout)["workers"]):
        assert time.monotonic() - begun < 180
        time.sleep(0.05)
    return dict(found[0])


def test_a_workflow_is_run_and_what_it_returned_is_all_that_is_on_the_output(run: Run) -> None:
    result = run("run", "double", "n=4", "--label", "for=me", "--id", "run-1")
    assert (result.stdout, result.stderr.splitlines()[0]) == ("8\n", "job run-1")
    assert (
        json.loads(run("run", "double", "n=4", "--id", "run-1", "--label", "for=me", "--json").stdout)["state"]
        == "completed"
    )
    assert json.loads(run("result", "run-1").stdout) == 8
    assert [row["job_id"] for row in json.loads(run("ps", "--label", "for=me", "--json").stdout)["jobs"]] == ["run-1"]


def test_a_failure_ends_with_its_own_code_and_says_why(run: Run) -> None:
    result = run("run", "double", "n=3", "--max-attempts", "1", code=4)
    assert "ValueError: three" in result.stderr
    assert result.stdout == ""
    job = re.findall(r"job (double-\w+)", result.stderr)[0]
    assert "three" in run("result", job, code=4).stderr
    assert run("retry", job).stdout.strip() == json.loads(run("retry", job, "--json").stdout)[0]["new_job_id"]
    assert "failed" in run("why", job).stdout
    assert json.loads(run("why", job, "--json").stdout)["state"] == "failed"


def test_one_that_runs_on_can_be_left_watched_and_cancelled(run: Run) -> None:
    job = run("submit", "waits").stdout.strip()
    assert "has not ended" in run("result", job, code=4).stderr
    assert "has not ended" in run("submit", "waits", "--id", job, "--wait", "--wait-timeout", "0.1", code=4).stderr
    assert json.loads(run("cancel", job, "--reason", "enough", "--json").stdout)["outcome"] == "accepted"
    watched = run("watch", job).stdout
    assert "submitted: waits()" in watched
    assert "Enough" in watched
    kinds = [json.loads(line)["event"]["type"] for line in run("watch", job, "--json").stdout.splitlines()]
    assert kinds[-1] == "JobEnded"


def test_lists_fit_a_narrow_and_a_wide_terminal(run: Run, done: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = run("ps").stdout
    assert done in wide
    assert "attempts" in wide
    assert done in run("ps", done).stdout or "double" in run("ps", done).stdout
    for command in (["nodes"], ["queue"], ["schedule", "list"], ["dlq", "list"]):
        assert run(*command).stdout
        json.loads(run(*command, "--json").stdout)
    assert worker(run)["name"] == "w"
    assert json.loads(run("logs", done, "--json").stdout or "{}") == {}


def test_queues_are_paused_and_workers_drained(run: Run) -> None:
    run("queue", "elsewhere", "--pause")
    [queue] = json.loads(run("queue", "elsewhere", "--json").stdout)
    assert queue["paused"]
    run("queue", "elsewhere", "--resume", "--max-running", "3", "--rate", "2")
    [queue] = json.loads(run("queue", "elsewhere", "--json").stdout)
    assert (queue["paused"], queue["max_running"], queue["rate"]) == (False, 3, 2)
    assert "which queue" in run("queue", "--pause", code=2).stderr
    run("drain", "w", "--reason", "new kernel")
    assert worker(run)["drained"]
    run("drain", "w", "--undo")
    assert not worker(run)["drained"]


def test_a_schedule_is_added_triggered_paused_and_removed(run: Run) -> None:
    run("schedule", "add", "nightly", "double", "n=5", "--cron", "0 3 * * *", "--zone", "Europe/Berlin")
    job = run("schedule", "trigger", "nightly").stdout.strip()
    assert run("result", job, "--wait").stdout == "10\n"
    run("schedule", "pause", "nightly")
    [found] = json.loads(run("schedule", "list", "--json").stdout)["schedules"]
    assert (found["schedule"]["paused"], found["schedule"]["cron"]) == (True, "0 3 * * *")
    assert "paused" in run("schedule", "list").stdout
    run("schedule", "remove", "nightly")
    assert json.loads(run("schedule", "list", "--json").stdout)["schedules"] == []
    assert "either --cron or --every" in run("schedule", "add", "x", "double", code=2).stderr
    assert "nightly" in run("schedule", "pause", "nightly", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("why", "nobody"), 1),
        (("result", "nobody"), 1),
        (("watch", "nobody"), 1),
        (("retry", "nobody"), 1),
        (("submit", "double", "n"), 2),
        (("ps", "--state", "strange"), 2),
        (("dlq", "show", "default.p0", "nothing"), 1),
        (("ps", "--address", "127.0.0.1:1", "--patience", "0.1"), 3),
        (("ps", "--address", "nonsense"), 1),
    ],
)
def test_what_goes_wrong_has_a_code_and_a_sentence(run: Run, arguments: tuple[str, ...], code: int) -> None:
    result = run(*arguments, code=code)
    assert result.stderr.strip()
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_teaches_and_stands_in_a_section(run: Run, name: str) -> None:
    assert name in {known for names in SECTIONS.values() for known in names}
    told = run(name, "--help").stdout
    assert "tenure " in told or name in ("top", "gossip")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_their_completion(run: Run, shell: str) -> None:
    assert "_TENURE_COMPLETE" in run("completion", shell).stdout
    completed = CliRunner().invoke(
        tenure,
        env={"_TENURE_COMPLETE": "bash_complete", "COMP_WORDS": "tenure sche", "COMP_CWORD": "1"},
        prog_name="tenure",
    )
    assert "schedule" in completed.output


def test_the_leader_is_found_through_the_engine(tmp_path: Any) -> None:
    result = CliRunner().invoke(
        tenure, ["ps", "--patience", "0.1"], env={"TENURE_ENGINE": f"sqlite:///{tmp_path}/t.db", "TENURE_ADDRESS": ""}
    )
    assert result.exit_code == 3
    assert "nobody leads on" in result.stderr


ODD = "odd[/x][bold]"


def test_names_are_no_markup_and_text_of_others_clears_no_terminal(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("submit", "double", "n=1", "--id", ODD, "--wait")
    for arguments in (("ps", ODD), ("ps", "--name", "odd"), ("why", ODD), ("logs", ODD)):
        run(*arguments)
    assert ODD in run("ps", ODD).stdout
    refused = run("ps", "[/x]\x1b[2J", code=1)
    assert "\x1b" not in refused.stderr
    table = Table("[red]a\x1b[2J", title="[/x]\x1b[2J")
    table.add_row("\u202e[/x]\x9b2J")
    show(table)
    say("a log line\x1b]0;title\x07")
    said = capsys.readouterr().out
    assert "[/x]" in said
    assert not {"\x1b", "\u202e", "\x9b", "\x07"} & set(said)


def test_no_command_prints_past_the_one_printer() -> None:
    folder = Path(tenure_cli.__file__).parent
    echoing = {path.name for path in folder.glob("*.py") if "click.echo(" in path.read_text()}
    # The printer itself, and the completion script, which is code for a shell.
    assert echoing == {"options.py", "root.py"}


def test_many_jobs_are_retried_and_cancelled_by_filter_and_a_dry_run_does_nothing(run: Run) -> None:
    for number in range(3):
        run("submit", "double", "n=3", "--id", f"bulk-{number}", "--label", "bulk=1", "--max-attempts", "1")
        run("submit", "waits", "--id", f"bulk-waits-{number}", "--label", "bulk=2")
    for number in range(3):
        run("result", f"bulk-{number}", "--wait", code=4)
    dry = run("retry", "--label", "bulk=1", "--dry-run")
    assert dry.stdout.count("would be retried") == 3
    assert "bulk-0~2" not in run("ps", "--json").stdout
    done = json.loads(run("retry", "--label", "bulk=1", "--state", "failed", "--json").stdout)
    assert {(one["id"], one["new_job_id"]) for one in done} == {(f"bulk-{n}", f"bulk-{n}~2") for n in range(3)}
    assert run("cancel", "--label", "bulk=2", "--dry-run").stdout.count("would be cancelled") == 3
    assert run("cancel", "--label", "bulk=2", "--reason", "enough").stdout.count(": cancelled") == 3
    assert "enough" in run("why", "bulk-waits-1").stdout
    run("retry", code=2)
    run("retry", "bulk-0", "--state", "failed", code=2)
    run("cancel", "--since", "soon", "--state", "failed", code=2)


def test_a_job_for_each_line_of_a_file(run: Run, tmp_path: Path) -> None:
    lines = tmp_path / "inputs.jsonl"
    lines.write_text('{"n": 1}\n\n{"n": 2}\n')
    made = run("submit", "double", "--each", str(lines)).stdout.split()
    assert [json.loads(run("result", job_id, "--wait").stdout) for job_id in made] == [2, 4]


def test_a_misspelt_command_or_job_gets_a_hint(run: Run, done: str) -> None:
    assert "Did you mean watch?" in run("wach", code=2).stderr
    assert f"Did you mean {done}" in run("why", done[:-3] + "xyz", code=1).stderr


def test_evidence_and_status_are_commands(run: Run, done: str) -> None:
    run("submit", "double", "n=3", "--id", "three", "--max-attempts", "1")
    run("result", "three", "--wait", code=4)
    assert "ValueError: three" in run("evidence", "three").stdout
    assert "nothing was kept" in run("evidence", done).stdout
    assert "leads (epoch" in run("status").stdout
    assert "troubles" in json.loads(run("status", "--json").stdout)


def test_flags_beat_the_environment(address: str, tmp_path: Path) -> None:
    engine = f"sqlite:///{tmp_path}/empty.db"
    asked = CliRunner().invoke(
        tenure, ["ps", "--engine", engine, "--patience", "0.3"], env={"TENURE_ADDRESS": address, "TENURE_ENGINE": ""}
    )
    assert asked.exit_code == 3  # the engine that was named, where nobody leads, and not the address of the environment
    assert "waiting for somebody to lead on" in asked.stderr
    there = CliRunner().invoke(
        tenure, ["ps", "--address", address], env={"TENURE_ENGINE": engine, "TENURE_ADDRESS": ""}
    )
    assert there.exit_code == 0


def test_a_command_says_at_once_whom_it_waits_for() -> None:
    asked = CliRunner().invoke(
        tenure, ["ps", "--address", "127.0.0.1:1", "--patience", "2"], env={"TENURE_ENGINE": "", "TENURE_ADDRESS": ""}
    )
    assert asked.exit_code == 3
    first, *_, told, page = asked.stderr.strip().splitlines()
    assert first == "waiting for an answer of 127.0.0.1:1, 2 s at most (--patience)"
    assert told.startswith("Error: no node answered within 2 s")
    assert page == "See docs/errors.md#nodeunavailableerror"


def test_exit_codes_are_as_the_help_says(run: Run, done: str) -> None:
    """0, 1, 2 and 4 here, 3 above; 130 is tested with a real Ctrl-C (tests/process)."""
    run("ps", done, code=0)
    run("why", "no-such-job-at-all", code=1)
    run("ps", "--state", "sleeping", code=2)
    run("submit", "double", "n=3", "--wait", "--max-attempts", "1", code=4)
    assert "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no manager answered" in run("--help").stdout

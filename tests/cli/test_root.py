"""The command line says what is out of bounds before it asks a node, and the commands that the dashboard and the overview tell people to type exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import tenure.control
import tenure.nodes.manager.overview
from tenure.cli.root import tenure as root

NOBODY = ["--address", "127.0.0.1:1", "--patience", "0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["submit", "echo", "value=1", "--queue", "my queue"],
            "submission.queue is 'my queue', and must be 0 to 115 letters",
        ),
        (["submit", "echo", "--id", "a\u202eb"], r"submission.job_id is 'a\u202eb'"),
        (["queue", "default", "--rate", "5e-324"], "rate is 5e-324, and must be between 1e-09 and 1,000,000"),
        (["queue", "my queue", "--pause"], "queue is 'my queue'"),
        (["schedule", "add", "nightly", "echo", "--every", "60", "--queue", "ä"], "schedule.job.queue is 'ä'"),
        (["schedule", "add", "night ly", "echo", "--every", "60"], "schedule.name is 'night ly'"),
        (["cancel", "x" * 201], "job_id is "),
    ],
)
def test_what_is_out_of_bounds_is_said_at_once(words: list[str], said: str) -> None:
    found = CliRunner().invoke(root, [*words, *NOBODY])
    assert found.exit_code == 1, found.output
    assert said in found.output
    assert "docs/limits.md" in found.output


@pytest.mark.parametrize("module", ["worker", "read_jobs", "write_jobs"])
def test_a_worker_and_the_commands_of_clients_import_neither_a_leader_nor_a_web_server(module: str) -> None:
    """They are half of the time that a worker takes to start."""
    code = (
        f"import sys, tenure.cli.{module}; print([m for m in ('aiohttp', 'tenure.nodes.manager') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [(["worker"], "[]\n"), (["worker", "--help"], ""), (["worker", "x.py", "-h"], ""), (["manager"], "")],
)
def test_a_worker_begins_its_fork_server_before_anything_that_only_reads_options(words: list[str], said: str) -> None:
    code = f"""
import sys
from tenure.work.slots import interpreters
slow = ("click", "msgspec", "asyncio", "subprocess", "socket", "pathlib", "typing")
interpreters.begin_early = lambda: print([m for m in slow if m in sys.modules])
sys.argv = {["tenure", *words]}
from tenure.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.partition("Usage")[0] == said


def test_a_supervisor_without_managers_imports_neither_an_event_loop_nor_what_runs_workflows() -> None:
    """A worker's first job waits for what its supervisor imports (decision 1010)."""
    code = """
import sys, tenure.cli.worker_run, tenure.engines.sqlite.engine, tenure.engines.redis.engine
print([m for m in ("asyncio", "tenure.work.attempt", "tenure.work.registry", "tenure.control.messages", "prometheus_client") if m in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_engine_on_redis_imports_no_more_than_the_parser_of_its_answers() -> None:
    """redis-py took longer to import than all the rest of a worker's supervisor."""
    code = "import sys, tenure.engines.redis.engine; print([m for m in ('redis', 'opentelemetry') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


PAGE = Path(tenure.control.__file__).parent / "dashboard" / "js"


def named() -> list[str]:
    found = set()
    for path in PAGE.rglob("*.js"):
        found |= set(re.findall(r'text="(tenure [^"$]+)"', path.read_text()))
        found |= {
            text.replace("${id()}", "j-1") for text in re.findall(r"<code>(tenure [^<]+)</code>", path.read_text())
        }
    source = Path(tenure.nodes.manager.overview.__file__).read_text()
    found |= {re.sub(r"\{[^}]*\}", "x", text) for text in re.findall(r'"(?:[^"]*: )?(tenure [a-z][^"`]+)"', source)}
    return sorted(found)


def test_some_commands_are_named() -> None:
    assert len(named()) >= 10, named()


@pytest.mark.parametrize("text", named())
def test_a_command_that_people_are_told_to_type_is_one(text: str) -> None:
    words = shlex.split(text)[1:]
    command: click.Command = root
    context = click.Context(root)
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no {name!r} in {text!r}"
        command = found
    files = [word for word in words if word.endswith(".py")]
    try:
        command.make_context(command.name, words, resilient_parsing=False)
    except click.BadParameter:
        assert files, text  # the file of the example is not here

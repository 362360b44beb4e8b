from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.patience import wait_until

from tenure.agent import (
    AsyncToolExecutor,
    Prompt,
    Resources,
    Session,
    ToolCall,
    ToolContext,
    ToolExecutionContext,
)
from tenure.agent.toolbox import CommandRunner, Container, run_command
from tenure.agent.toolbox.command import namespace
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import SystemClock
from tenure.errors import AgentError, ConfigurationError, LeaseLostError


def a_context(heartbeat: Heartbeat | None = None) -> ToolContext:
    return ToolContext(Prompt[str]("p", "x"), Session(), heartbeat=heartbeat)


def test_a_program_beats_per_line_and_gives_its_exit_code_and_output(tmp_path: Path) -> None:
    heartbeat = Heartbeat()
    result = CommandRunner(tmp_path).run(
        ["sh", "-c", "for i in 1 2 3; do echo $i; done; pwd; exit 3"], a_context(heartbeat)
    )
    assert (result.exit_code, result.output) == (3, f"1\n2\n3\n{tmp_path.resolve()}")
    assert heartbeat.count == 4


def test_only_allowed_programs_run_and_only_those_that_exist(tmp_path: Path) -> None:
    runner = CommandRunner(tmp_path, allowed=frozenset({"ls", "no-such-program"}))
    with pytest.raises(AgentError, match="'sh' may not be run here; these may: ls, no-such-program"):
        runner.run(["sh"], a_context())
    with pytest.raises(AgentError, match="'no-such-program' cannot be run: No such file"):
        runner.run(["no-such-program"], a_context())
    with pytest.raises(AgentError, match="empty"):
        runner.run([], a_context())


def test_our_secrets_are_not_in_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
    result = CommandRunner(tmp_path, env={"ADDED": "yes"}).run(["env"], a_context())
    assert "sk-of-the-test" not in result.output
    assert "ADDED=yes" in result.output


def test_of_a_long_output_the_end_is_kept(tmp_path: Path) -> None:
    result = CommandRunner(tmp_path, max_output_chars=10).run(["seq", "100"], a_context())
    assert result.output == "[the first 281 characters are left out]\n\n98\n99\n100"


def a_family(tmp_path: Path, *, noisy: bool = False) -> list[str]:
    """A program with a child."""
    tick = "echo tick" if noisy else ":"
    return [
        "sh",
        "-c",
        f"sleep 60 & touch up; while true; do {tick}; sleep 0.05; done",
    ]


def gone(tmp_path: Path) -> bool:
    """Returns True when no process is in this folder. Their ids would not do: in a namespace of its own a program has others."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):  # ended, or a zombie
                if (process / "cwd").readlink() == tmp_path.resolve():
                    return False
    return True


@pytest.fixture(params=["namespace", "guard"])
def confinement(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to confine a program. A machine without namespaces is one on which the probe finds none."""
    if request.param == "guard":
        monkeypatch.setattr("tenure.agent.toolbox.command.namespace", lambda: ())
    elif not namespace():
        pytest.skip(
            "NOT RUN: this machine allows no pid namespaces; tools/podman_for_tests.sh says what a container needs"
        )
    return str(request.param)


ESCAPES = {
    "setsid": "setsid sleep 60 &",
    "double fork": "(setsid sh -c 'sleep 60 & sleep 60 &' &);",
    "another group": "set -m; sleep 60 &",
    "without environment": "env -i setsid sleep 60 &",
}


@pytest.mark.parametrize("how", list(ESCAPES))
@pytest.mark.parametrize("ends", ["by itself", "by its limit"])
def test_nothing_that_a_program_starts_outlives_the_call(tmp_path: Path, confinement: str, how: str, ends: str) -> None:
    stays = "" if ends == "by itself" else "sleep 60"
    command = ["sh", "-c", f"{ESCAPES[how]} sleep 0.2; touch up; {stays}"]
    clock = SystemClock()
    begun = clock.monotonic()
    if stays:
        with pytest.raises(AgentError, match="was ended"):
            CommandRunner(tmp_path).run(command, a_context(), timeout_s=3)
    else:
        assert CommandRunner(tmp_path).run(command, a_context()).exit_code == 0
        assert clock.monotonic() - begun < 30, "it does not wait for the rest, which holds its output open"
    assert (tmp_path / "up").exists()
    assert gone(tmp_path)


def test_a_program_ends_as_it_would_alone(tmp_path: Path, confinement: str) -> None:
    runner = CommandRunner(tmp_path)
    assert runner.run(["sh", "-c", "exit 7"], a_context()).exit_code == 7
    killed = runner.run(["sh", "-c", "kill -KILL $$"], a_context()).exit_code
    assert killed == (137 if confinement == "namespace" else -9)
    terminated = runner.run(["sh", "-c", "kill -TERM $$; sleep 60"], a_context()).exit_code
    assert terminated == (143 if confinement == "namespace" else -15)


def test_a_program_reads_neither_our_environment_nor_our_memory(tmp_path: Path, confinement: str) -> None:
    """The secret is in the environment that this process was started with, where a program would look for it."""
    script = tmp_path / "agent.py"
    script.write_text(
        "import sys; from pathlib import Path\n"
        "import tenure.agent.toolbox.command as confinement\n"
        "from tenure.agent import Prompt, Session, ToolContext\n"
        "from tenure.agent.toolbox import CommandRunner\n"
        f"if {confinement!r} == 'guard': confinement.namespace = lambda: ()\n"
        'look = \'import glob\\nfor path in glob.glob("/proc/[0-9]*/environ"):\\n try: print(b"MODEL_KEY=of-the-test" in open(path, "rb").read())\\n except OSError: print(False)\'\n'
        "result = CommandRunner(Path(sys.argv[1])).run([sys.executable, '-c', look], ToolContext(Prompt('p', 'x'), Session()))\n"
        "print('found' if 'True' in result.output else 'hidden', result.exit_code)\n"
    )
    environment = {**os.environ, "MODEL_KEY": "of-the-test", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "hidden 0\n", done.stderr


@pytest.mark.parametrize("noisy", [True, False])
def test_one_that_takes_too_long_is_ended_with_its_children(tmp_path: Path, noisy: bool) -> None:
    with pytest.raises(AgentError, match=r"was ended: it ran for more than 0.5 s"):
        CommandRunner(tmp_path).run(a_family(tmp_path, noisy=noisy), a_context(), timeout_s=0.5)
    wait_until(lambda: gone(tmp_path))


def test_a_quiet_one_is_ended_with_its_children_when_the_lease_is_lost(tmp_path: Path) -> None:
    heartbeat = Heartbeat()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            CommandRunner(tmp_path).run(a_family(tmp_path), a_context(heartbeat))
        except LeaseLostError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until((tmp_path / "up").exists)
    heartbeat.interrupt(LeaseLostError("m", "gone"))
    thread.join(60)
    assert errors
    wait_until(lambda: gone(tmp_path))


def test_cancelling_an_async_agent_ends_the_program_that_it_runs(tmp_path: Path) -> None:
    context = ToolExecutionContext(
        Prompt[str]("p", "x"),
        Session(),
        heartbeat=Heartbeat(),
        resources=Resources({CommandRunner: CommandRunner(tmp_path)}),
    )
    call = ToolCall("c", "run_command", msgspec.json.encode({"command": a_family(tmp_path)}).decode())

    async def main() -> None:
        work = asyncio.ensure_future(AsyncToolExecutor([run_command]).execute(call, context=context))
        while not (tmp_path / "up").exists():
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())
    wait_until(lambda: gone(tmp_path))


def test_without_a_container_engine_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="neither podman nor docker"):
        CommandRunner(tmp_path, container=Container("alpine")).run(["true"], a_context())


def container_engine() -> str:
    """One that works and has an image, or a loud skip."""
    for name in ("podman", "docker"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, timeout=30).returncode == 0:
            images = subprocess.run(
                [name, "images", "--format", "{{.Repository}}:{{.Tag}}"], capture_output=True, text=True
            )
            if os.environ.get("TENURE_TEST_IMAGE") or "alpine:latest" in images.stdout:
                return name
    pytest.skip(
        "NOT RUN: no podman or docker with a running engine and an alpine image here; commands in containers are not tested. "
        "tools/podman_for_tests.sh makes one"
    )


def test_a_command_in_a_container_beats_per_line_and_nothing_of_it_is_left_when_its_time_or_the_works_is_over(
    tmp_path: Path,
) -> None:
    engine = container_engine()
    image = os.environ.get("TENURE_TEST_IMAGE", "alpine:latest")
    runner = CommandRunner(tmp_path, container=Container(image, engine), timeout_s=60)

    def left() -> str:
        names = subprocess.run([engine, "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True)
        return names.stdout

    heartbeat = Heartbeat()
    context = a_context(heartbeat)
    assert runner.run(["sh", "-c", "pwd; touch made; seq 20"], context).output.startswith("/work\n1\n2")
    assert (tmp_path / "made").exists()
    assert heartbeat.count >= 20
    with pytest.raises(AgentError, match="was ended"):
        runner.run(["sleep", "60"], context, timeout_s=3)
    assert "tenure-" not in left()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(runner.run, ["sh", "-c", "touch begun; sleep 60 & sleep 60"], context)
        wait_until((tmp_path / "begun").exists)
        heartbeat.interrupt(LeaseLostError("m", "gone"))
        with pytest.raises(LeaseLostError):
            running.result(60)
    assert "tenure-" not in left()

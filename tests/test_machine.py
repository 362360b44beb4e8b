"""The questions to the operating system: both answers agree on this machine, and no other file asks."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import machine
from tenure.clock import SystemClock
from tenure.machine import TICKS_A_SECOND, LinuxMachine, PortableMachine
from tenure.work.slots.processes import StartedProcesses, descendants, is_alive, kill_tree

SOURCE = Path(machine.__file__).parent
ASKS = ("/proc", "/sys/fs", "/dev/shm", "posix_fallocate", "prctl", "CDLL", "pidfd_open", "memfd_create")
# A program of its own, which starts only where `confinement.py` found Linux.
ALLOWED = {"machine.py", "agent/toolbox/command_guard.py"}


def asked(path: Path) -> Iterator[str]:
    """Yields what a file asks of Linux: names that it uses, and texts that are paths. Prose in docstrings and messages does not count."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in ASKS:
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(ASKS[:3]):
            yield node.value


def test_no_other_file_asks_linux() -> None:
    found = {
        f"{path.relative_to(SOURCE)}: {what}"
        for path in SOURCE.rglob("*.py")
        if str(path.relative_to(SOURCE)) not in ALLOWED
        for what in asked(path)
    }
    assert found == {"cli/doctor.py: /sys/fs/cgroup/memory.max"}, "which says nothing where there is no such file"
    assert list(asked(SOURCE / "machine.py")), "the search finds what it looks for"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
    yield running
    running.kill()
    running.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="compares with Linux")
def test_ps_says_of_a_process_what_proc_says(child: subprocess.Popen[bytes]) -> None:
    by_ps, by_proc = PortableMachine().read_stat(child.pid), LinuxMachine().read_stat(child.pid)
    assert by_ps is not None
    assert by_proc is not None
    assert (by_ps.pid, by_ps.parent, by_ps.session) == (by_proc.pid, by_proc.parent, by_proc.session)
    # One is in the order of pids and the other in that of births: they differ once the pids of the machine have begun anew.
    assert sorted(PortableMachine().own_children()) == sorted(LinuxMachine().own_children())
    clock = SystemClock()
    age = PortableMachine().started_now(clock.boottime(), clock.wall()) - by_ps.started
    assert -TICKS_A_SECOND <= age < 60 * TICKS_A_SECOND


@pytest.mark.parametrize("portable", [True, False], ids=["portable", "linux"])
def test_trees_are_found_and_killed(
    portable: bool, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "here", PortableMachine() if portable else LinuxMachine())
    stat = machine.here.read_stat(child.pid)
    assert stat is not None
    assert is_alive(child.pid, stat.started)
    assert child.pid in descendants(os.getpid())
    kill_tree(child.pid)
    child.wait()
    assert child.returncode == -signal.SIGKILL
    assert not is_alive(child.pid, stat.started)
    assert not machine.here.exists(child.pid)


def test_processes_that_an_attempt_left_are_ended_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "here", PortableMachine())
    started = StartedProcesses(SystemClock(), grace_s=0.5)
    started.keep_present()
    started.begin(1)
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    assert started.end(1) >= 1
    assert left.poll() is not None or left.wait(60) is not None


def test_a_file_gets_its_blocks(tmp_path: Path) -> None:
    with (tmp_path / "page").open("w+b") as file:
        PortableMachine().allocate(file.fileno(), 200_000)
        status = os.fstat(file.fileno())
    assert status.st_size == 200_000
    assert status.st_blocks * 512 >= 200_000


def test_questions_without_an_answer_are_answered_so() -> None:
    here = PortableMachine()
    nothing = (here.boot_id(), here.environment_of(1), here.facts_of(1), here.peak_memory(1), here.oom_kills())
    assert nothing == ("", [], {}, "", None)
    assert (here.mounts(), here.memory_percent(), here.alias_of(0)) == ([], 0.0, None)
    here.die_with_parent()
    here.adopt_orphans()


# What Windows lacks, for a process that pretends: modules, functions and constants.
WINDOWS = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "resource", "pwd", "grp", "termios", "tty", "_posixsubprocess_of_ours"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import aiohttp, click, h11, rich.console, nats, psycopg, redis, zoneinfo, asyncio, ctypes, os, signal, socket, ssl, subprocess, tempfile, time, selectors, multiprocessing.connection  # theirs, before they are cut
for module, names in (
    (os, "fork getuid geteuid sysconf posix_fallocate sched_getaffinity statvfs waitid pwrite fchmod"),
    (signal, "SIGKILL SIGSTOP SIGCONT SIGHUP SIGUSR1 SIGCHLD pthread_sigmask"),
    (socket, "AF_UNIX socketpair_of_unix"),
    (time, "clock_gettime CLOCK_MONOTONIC CLOCK_BOOTTIME"),
):
    for name in names.split():
        vars(module).pop(name, None)
sys.platform = "win32"
"""


def as_windows(code: str) -> subprocess.CompletedProcess[str]:
    program = WINDOWS + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)


def test_on_windows_clients_and_server_engines_import_and_work() -> None:
    done = as_windows(
        """
        import tenure, tenure.errors
        from tenure import AsyncClient, Client, Retry, workflow, submit_in
        from tenure.engines import Engine
        import tenure.engines.postgres, tenure.engines.redis, tenure.engines.nats
        with Engine.open("memory://") as engine:
            engine.mailbox("a", str).send("hello")
            print(engine.mailbox("a", str).receive(1, 0.1)[0].body)
        try:
            Client("127.0.0.1:9", patience_s=0.1).job("any")
        except tenure.errors.NodeUnavailableError as error:
            print("nobody answers")
        """
    )
    assert done.stdout.split("\n")[:2] == ["hello", "nobody answers"], done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import tenure; tenure.embedded('x')",
        "from tenure.cli import main; import sys; sys.argv = ['tenure', 'worker', 'app.py', '--engine', 'memory://']; main()",
    ],
    ids=["embedded", "worker"],
)
def test_on_windows_the_rest_says_so_at_once(code: str, tmp_path: Path) -> None:
    done = as_windows(f"import os; os.chdir({str(tmp_path)!r})\n{code}")
    assert "needs Linux or macOS" in done.stderr + done.stdout
    assert done.returncode != 0
    assert list(tmp_path.iterdir()) == [], "before anything was written"

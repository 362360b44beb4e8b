"""Programs that an agent may run, here or in a container: one beat per line of output, and an end with all their children.

Where the machine allows it, a program gets a pid namespace of its own with its own /proc: when the call ends, the kernel ends the namespace, and the program does not
read the memory of the process that runs it. Elsewhere, as in most containers, `command_guard` stands between us and the program. This is order, not a prison: see
`CommandRunner` for the part that is not promised.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tenure import machine
from tenure.agent.tools import ToolContext, ToolResult, tool
from tenure.clock import Clock, SystemClock
from tenure.errors import AgentError, ConfigurationError, LimitError
from tenure.randomness import new_id
from tenure.work import subprocesses
from tenure.work.slots.processes import kill_tree, read_stat

_DEATH_S = 5.0
"""A call waits so long for the processes that it killed. On a busy machine a killed one is there, and holds its folder, until its turn comes."""
_SAFE_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a program ended, and the end of its output."""

    exit_code: int
    output: str


@dataclass(frozen=True, slots=True)
class Container:
    """Where commands run when not on this machine's own system: without network, with the folder as /work.

    `engine` is podman or docker; the first one that is found, when empty.
    """

    image: str
    engine: str = ""
    options: tuple[str, ...] = ("--network=none",)

    def find_engine(self) -> str:
        for name in (self.engine,) if self.engine else ("podman", "docker"):
            if (found := shutil.which(name)) is not None:
                return found
        raise ConfigurationError(
            "neither podman nor docker is installed", remedy="Install one of them, or run without a Container"
        )


@dataclass(frozen=True)
class CommandRunner:
    """Runs programs in a folder, with little of our environment: no keys of providers, no passwords.

    `allowed` are the names of programs that may be run; None allows all of them, which is wise only in a container. It is a list of first words, and no more:
    a program on it may start others, read and write every file that this user may, and use the network. A call ends with everything that it started,
    and this process is made unreadable to it, but a program that means harm has the rights of this user. What must be kept from it belongs into a `Container`.
    """

    folder: Path
    allowed: frozenset[str] | None = None
    timeout_s: float = 600.0
    max_output_chars: int = 50_000
    env: Mapping[str, str] = field(default_factory=dict)
    container: Container | None = None
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise LimitError("CommandRunner.timeout_s", self.timeout_s, "above 0 seconds")

    def run(self, command: list[str], context: ToolContext, timeout_s: float | None = None) -> CommandResult:
        """Run a program to its end. Raises when it takes too long or the work is cancelled; then nothing of it is left."""
        if not command:
            raise AgentError("the command is empty")
        if self.allowed is not None and command[0] not in self.allowed:
            raise AgentError(f"{command[0]!r} may not be run here; these may: {', '.join(sorted(self.allowed))}")
        limit = min(self.timeout_s, timeout_s or self.timeout_s)
        watch = _Watch(context, command[0], limit, self.clock.monotonic() + limit, self.clock)
        environment = self._environment()
        with self._placed(command, environment) as placed:
            try:
                done = subprocesses.run_command(
                    watch, placed, cwd=self.folder, env=environment, check=False, end=self._end_all
                )
            except OSError as error:
                raise AgentError(f"{command[0]!r} cannot be run: {error.strerror}") from error
        output = done.output
        if len(output) > self.max_output_chars:
            output = (
                f"[the first {len(output) - self.max_output_chars} characters are left out]\n"
                + output[-self.max_output_chars :]
            )
        return CommandResult(done.returncode, output)

    def _end_all(self, root: int) -> None:
        """Kills the program with all below it, and returns when they are gone: until then they hold the folder."""
        left, until = kill_tree(root), self.clock.monotonic() + _DEATH_S
        while (left := {pid for pid in left if _is_there(pid)}) and self.clock.monotonic() < until:
            self.clock.sleep(0.005)

    def _environment(self) -> dict[str, str]:
        return {**{name: os.environ[name] for name in _SAFE_ENVIRONMENT if name in os.environ}, **self.env}

    def _check_program(self, program: str, environment: Mapping[str, str]) -> None:
        """Raises when there is no such program. The one that is started is another: it starts this one."""
        path = str(self.folder / program) if "/" in program else program
        if shutil.which(path, path=environment.get("PATH", os.defpath)) is None:
            code = errno.EACCES if "/" in program and Path(path).exists() else errno.ENOENT
            raise AgentError(f"{program!r} cannot be run: {os.strerror(code)}")

    @contextmanager
    def _placed(self, command: list[str], environment: Mapping[str, str]) -> Iterator[list[str]]:
        """Yields the command as it is started here; a container is removed in any case."""
        if self.container is None:
            self._check_program(command[0], environment)
            machine.here.hide_memory()  # its environment has the keys of the agent
            yield confined(command)
            return
        engine, name = self.container.find_engine(), f"tenure-{new_id()[:16]}"
        mount = f"{self.folder.resolve()}:/work"
        variables = [part for key, value in self.env.items() for part in ("--env", f"{key}={value}")]
        place = [engine, "run", "--rm", "--name", name, "--volume", mount, "--workdir", "/work"]
        try:
            yield [*place, *variables, *self.container.options, self.container.image, *command]
        finally:
            # The client was killed with its group, the container is not its child. After a good end it is gone already.
            subprocess.run(  # noqa: S603  the engine that was found, with a name of our own
                [engine, "rm", "--force", name],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=60,
            )


def _is_there(pid: int) -> bool:
    found = read_stat(pid)
    return found is not None and found.state not in "ZX"


@dataclass(frozen=True)
class _Watch:
    """Beats on for the program, and ends it when its time or the work's is over."""

    context: ToolContext
    program: str
    limit_s: float
    until: float
    clock: Clock

    def beat(self) -> None:
        self._look()
        self.context.beat()

    def raise_if_cancelled(self) -> None:
        self._look()
        self.context.raise_if_cancelled()

    def _look(self) -> None:
        if self.clock.monotonic() >= self.until:
            raise AgentError(f"{self.program!r} was ended: it ran for more than {self.limit_s:g} s")


@dataclass(frozen=True, slots=True)
class CommandParams:
    command: list[str]
    timeout_s: float | None = None


@tool
def run_command(params: CommandParams, *, context: ToolContext) -> ToolResult[CommandResult]:
    """Run a program with its arguments, without a shell; its exit code and its output."""
    return ToolResult.ok(context.resources.get(CommandRunner).run(params.command, context, params.timeout_s))


GUARD = Path(__file__).with_name("command_guard.py")
_PROBE_S = 10.0


def confined(command: list[str]) -> list[str]:
    """Returns the command as it is started here."""
    if sys.platform != "linux":
        return command
    if prefix := namespace():
        return [*prefix, *command]
    # Isolated and without site-packages: the folder that it starts in is the agent's, and may hold modules.
    return [sys.executable, "-I", "-S", str(GUARD), *command]


@lru_cache(maxsize=1)
def namespace() -> tuple[str, ...]:
    """Returns the words before a command that put it into a pid namespace, or none where the machine does not allow it."""
    unshare, shell = shutil.which("unshare"), shutil.which("sh")
    if unshare is None or shell is None:
        return ()
    user = () if os.geteuid() == 0 else ("--user", "--map-current-user")
    flags = ("--pid", "--fork", "--kill-child", "--mount-proc", *user)
    # The first process of a namespace ignores most signals. It is a shell, so that the program is an ordinary process.
    prefix = (unshare, *flags, "--", shell, "-c", '"$@"; exit $?', "sh")
    try:
        tried = subprocess.run(  # noqa: S603  two programs of the system
            [*prefix, "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_PROBE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return prefix if tried.returncode == 0 else ()

"""Running a program from a workflow: one beat per line, and its whole process group ends with the attempt."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tenure.errors import CommandFailedError

KEPT_LINES = 10_000
"""The most lines of a program's output; older lines are dropped from the answer, never from `on_line`."""
LONGEST_LINE = 1 << 20
"""A line is cut here: a program that never ends its line must not fill the memory."""


class Beating(Protocol):
    """The runner of the program: the context of a workflow, or of an agent's tool."""

    def beat(self) -> None: ...

    def raise_if_cancelled(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that ended."""

    command: tuple[str, ...]
    returncode: int
    lines: tuple[str, ...]

    @property
    def output(self) -> str:
        return "\n".join(self.lines)


class _Lines:
    """Output cut into lines as it comes, one beat each."""

    def __init__(self, context: Beating, on_line: Callable[[str], None] | None) -> None:
        self._context, self._on_line = context, on_line
        self._pending = b""
        self.kept: deque[str] = deque(maxlen=KEPT_LINES)

    def feed(self, chunk: bytes) -> None:
        *whole, self._pending = (self._pending + chunk).split(b"\n")
        if len(self._pending) > LONGEST_LINE:
            whole, self._pending = [*whole, self._pending], b""
        for line in whole:
            self._take(line)

    def end(self) -> None:
        if self._pending:
            self._take(self._pending)

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._context.beat()
        self.kept.append(text)
        if self._on_line is not None:
            self._on_line(text)


def run_command(
    context: Beating,
    command: list[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    on_line: Callable[[str], None] | None = None,
    end: Callable[[int], object] | None = None,
) -> Finished:
    """Runs a program to its end. `end` ends what the process of this id has left; by default, its process group."""
    process = subprocess.Popen(  # noqa: S603  the workflow names the program
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    lines = _Lines(context, on_line)
    assert process.stdout is not None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                # A quiet program is no progress, so no beat here; but a cancellation ends it within a moment.
                if not selector.select(0.25):
                    context.raise_if_cancelled()
                    continue
                chunk = os.read(process.stdout.fileno(), 65_536)
                if not chunk:
                    break
                lines.feed(chunk)
        lines.end()
        returncode = process.wait()
    finally:
        (end or _end_group)(process.pid)  # before it is waited for: until then no other process has its id
        process.stdout.close()
        process.wait()
    return _finish(command, returncode, lines, check)


async def run_command_async(
    context: Beating,
    command: list[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    on_line: Callable[[str], None] | None = None,
) -> Finished:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        process_group=0,
    )
    lines = _Lines(context, on_line)
    assert process.stdout is not None
    try:
        while chunk := await process.stdout.read(65_536):
            lines.feed(chunk)
        lines.end()
        returncode = await process.wait()
    finally:
        _end_group(process.pid)
        await process.wait()
    return _finish(command, returncode, lines, check)


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # it ended with all its children


def _finish(command: list[str], returncode: int, lines: _Lines, check: bool) -> Finished:
    finished = Finished(tuple(command), returncode, tuple(lines.kept))
    if check and returncode != 0:
        raise CommandFailedError(finished.command, returncode, finished.lines[-20:])
    return finished

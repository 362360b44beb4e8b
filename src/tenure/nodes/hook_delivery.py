"""Delivers a notice to the address or the command of a hook, in threads of its own: neither may hold a node up."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from tenure.errors import NodeUnavailableError
from tenure.nodes.hooks import Hooks, HookSender, HookSettings
from tenure.nodes.process import Environment

MOST_THREADS = 4
MOST_ANSWER_BYTES = 4_096


class HookDelivery:
    """Calls go through a few threads. A hook has at most one call at a time, so a slow one holds up no more than a thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="tenure-hook")

    async def __call__(self, hook: HookSettings, body: bytes, headers: Mapping[str, str]) -> None:
        call = post if hook.url else run_command
        await asyncio.get_running_loop().run_in_executor(self._threads, call, hook, body, dict(headers))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


@asynccontextmanager
async def hooked(settings: Sequence[HookSettings], environment: Environment) -> AsyncIterator[Hooks]:
    """Yields the hooks of a node. Their threads end with it."""
    delivery = HookDelivery()
    clock, random, log = environment.clock, environment.random, environment.log
    try:
        yield Hooks([HookSender(one, delivery, clock=clock, random=random, log=log) for one in settings])
    finally:
        delivery.close()


def post(hook: HookSettings, body: bytes, headers: dict[str, str]) -> None:
    """Sends one request. Redirects are not followed: notices go to the configured address only."""
    parts = urlsplit(hook.url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=hook.timeout_s)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, headers)
        answer = connection.getresponse()
        answer.read(MOST_ANSWER_BYTES)
    except (OSError, HTTPException) as error:
        raise NodeUnavailableError(f"{hook.url} did not answer: {error}") from error
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        raise NodeUnavailableError(f"{hook.url} answered {answer.status}")


def run_command(hook: HookSettings, body: bytes, headers: dict[str, str]) -> None:
    """Runs the command once, without a shell, with the notice on its standard input. It is killed after `timeout_s`."""
    try:
        done = subprocess.run(  # noqa: S603 - only commands of the file that the operator gave
            hook.command, input=body, timeout=hook.timeout_s, capture_output=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NodeUnavailableError(f"{hook.goal} was not run: {error}") from error
    if done.returncode:
        raise NodeUnavailableError(
            f"{hook.goal} exited with {done.returncode}: {done.stderr[-300:].decode(errors='replace')}"
        )

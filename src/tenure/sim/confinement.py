"""Keeps a simulated run from asking the real machine, and keeps what differs between interpreters out of it.

While a kernel runs, its thread may not sleep, start threads or processes, or use sockets: Python's audit events tell us
of the attempt (or, where there is no event, a guard in the function's place), and the caller gets an error that says what
to use instead. An audit hook can never be removed, so it is added with the first simulation of a process and does nothing
while none runs.

Also for that time: the cyclic garbage collector is off, because finalizers that run at its whim would make two runs of
one seed differ; and on Python 3.11 `asyncio.wait_for` is what it became in 3.12 (a timeout around an await, no task of
its own), so that the same callbacks run in the same order everywhere.

The part of an event loop that needs the real machine: a simulated loop refuses all of it, and says what to use.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tenure.errors import SimulationForbiddenError

T = TypeVar("T")

_SLEEP = "Take the host's clock and `await clock.async_sleep(...)`"
_THREAD = "Simulations have one thread: make it a task, or run it through the host's calls"
_NETWORK = "Take the host's transport"
FORBIDDEN = {
    "_thread.start_new_thread": ("a thread", _THREAD),
    "_thread.start_joinable_thread": ("a thread", _THREAD),
    "socket.__new__": ("a socket", _NETWORK),
    "socket.getaddrinfo": ("a name look-up", _NETWORK),
    "subprocess.Popen": ("a process", "Give the node a runner that plays scripted work"),
    "os.fork": ("fork", "Give the node a runner that plays scripted work"),
    "os.forkpty": ("fork", "Give the node a runner that plays scripted work"),
    "os.posix_spawn": ("a process", "Give the node a runner that plays scripted work"),
    "os.system": ("a process", "Give the node a runner that plays scripted work"),
}

_simulating: int | None = None  # the thread in which a kernel runs
_hooked = False


def _audit(event: str, _arguments: tuple[Any, ...]) -> None:
    if _simulating is not None and event in FORBIDDEN and threading.get_ident() == _simulating:
        what, remedy = FORBIDDEN[event]
        raise SimulationForbiddenError(f"simulated code asked the real machine for {what}", remedy=remedy)


def _guarded(function: Callable[..., Any], what: str, remedy: str) -> Callable[..., Any]:
    """Returns the function as it works in every thread but the one that simulates."""

    def guard(*args: Any, **options: Any) -> Any:
        if threading.get_ident() != _simulating:
            return function(*args, **options)
        raise SimulationForbiddenError(f"simulated code asked the real machine for {what}", remedy=remedy)

    return guard


@contextmanager
def _replaced(owner: Any, name: str, function: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


# Not imported by name: this file asks nobody for the time, it keeps others from it.
_time = sys.modules["time"]
# What has no audit event on 3.11 and 3.12.
_sleep = _guarded(vars(_time)["sleep"], "time.sleep", _SLEEP)
_start = _guarded(threading.Thread.start, "a thread", _THREAD)


@contextmanager
def confined() -> Iterator[None]:
    """Confine this thread until the block ends."""
    global _simulating, _hooked
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    collecting, hooks = gc.isenabled(), sys.get_asyncgen_hooks()
    outer, _simulating = _simulating, threading.get_ident()
    gc.disable()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=_finish_generator)
    try:
        with _replaced(_time, "sleep", _sleep), _replaced(threading.Thread, "start", _start), _same_wait_for():
            yield
    finally:
        sys.set_asyncgen_hooks(*hooks)
        _simulating = outer
        if collecting:
            gc.enable()


@contextmanager
def _same_wait_for() -> Iterator[None]:
    if sys.version_info >= (3, 12):
        yield
        return
    with _replaced(asyncio, "wait_for", _wait_for), _replaced(asyncio.tasks, "wait_for", _wait_for):
        yield


def _finish_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """Has the loop of an async generator that was dropped half-way run its `finally`, as asyncio does."""
    loop = asyncio._get_running_loop()
    if loop is not None and not loop.is_closed():
        loop.call_soon(loop.create_task, generator.aclose())


async def _wait_for(fut: Awaitable[T], timeout: float | None) -> T:
    if timeout is not None and timeout <= 0:
        fut = asyncio.ensure_future(fut)
        if fut.done():
            return fut.result()
        fut.cancel()
        try:
            await fut
        except asyncio.CancelledError as error:
            raise TimeoutError from error
        return fut.result()
    async with asyncio.timeout(timeout):
        return await fut


THREAD = "Simulations have one thread: await it, or run engine calls through `host.calls.run(...)`"
NETWORK = "Take the host's transport"
PROCESS = "Give the node a runner that plays scripted work"
SIGNAL = "Crash, stall, stop or restart the node through the world"


def _refuse(name: str, remedy: str) -> Any:
    def refusal(self: RefusingLoop, *_args: object, **_options: object) -> Any:
        hint = " (which asyncio.to_thread calls)" if name == "run_in_executor" else ""
        raise SimulationForbiddenError(
            f"{self.name}: loop.{name}{hint} needs the real machine, and this loop is simulated", remedy=remedy
        )

    return refusal


class RefusingLoop(AbstractEventLoop):
    """Refuses threads, sockets, pipes, processes and signals."""

    name: str

    run_in_executor = _refuse("run_in_executor", THREAD)
    set_default_executor = _refuse("set_default_executor", THREAD)

    add_reader = _refuse("add_reader", NETWORK)
    remove_reader = _refuse("remove_reader", NETWORK)
    add_writer = _refuse("add_writer", NETWORK)
    remove_writer = _refuse("remove_writer", NETWORK)
    getaddrinfo = _refuse("getaddrinfo", NETWORK)
    getnameinfo = _refuse("getnameinfo", NETWORK)
    create_connection = _refuse("create_connection", NETWORK)
    create_server = _refuse("create_server", NETWORK)
    create_datagram_endpoint = _refuse("create_datagram_endpoint", NETWORK)
    create_unix_connection = _refuse("create_unix_connection", NETWORK)
    create_unix_server = _refuse("create_unix_server", NETWORK)
    connect_accepted_socket = _refuse("connect_accepted_socket", NETWORK)
    start_tls = _refuse("start_tls", NETWORK)
    sendfile = _refuse("sendfile", NETWORK)
    sock_recv = _refuse("sock_recv", NETWORK)
    sock_recv_into = _refuse("sock_recv_into", NETWORK)
    sock_recvfrom = _refuse("sock_recvfrom", NETWORK)
    sock_recvfrom_into = _refuse("sock_recvfrom_into", NETWORK)
    sock_sendall = _refuse("sock_sendall", NETWORK)
    sock_sendto = _refuse("sock_sendto", NETWORK)
    sock_sendfile = _refuse("sock_sendfile", NETWORK)
    sock_connect = _refuse("sock_connect", NETWORK)
    sock_accept = _refuse("sock_accept", NETWORK)

    connect_read_pipe = _refuse("connect_read_pipe", PROCESS)
    connect_write_pipe = _refuse("connect_write_pipe", PROCESS)
    subprocess_exec = _refuse("subprocess_exec", PROCESS)
    subprocess_shell = _refuse("subprocess_shell", PROCESS)

    add_signal_handler = _refuse("add_signal_handler", SIGNAL)
    remove_signal_handler = _refuse("remove_signal_handler", SIGNAL)
    set_task_factory = _refuse("set_task_factory", "Tasks are numbered by the simulation, so that runs repeat")

    def get_task_factory(self) -> None:
        return None

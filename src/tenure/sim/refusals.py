"""The part of an event loop that needs the real machine: a simulated loop refuses all of it, and says what to use."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import Any

from tenure.errors import SimulationForbiddenError

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

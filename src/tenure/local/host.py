"""The process that hosts a manager, a gate, a worker, or a manager and a worker, for a program on this machine.

    python -m tenure.local.host FD

A process of its own, so that a program that computes with the interpreter's lock held delays no lease. It ends when it is told to, or
when its program is gone: what runs is handed over, and goes on from its checkpoint when the folder is opened again.

`ThreadWorker` is a worker in threads of the program itself, for workflows that no other process can import.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import Any

from tenure import __version__, tracing
from tenure.clock import SystemClock
from tenure.control.async_caller import HttpCaller
from tenure.errors import TenureError
from tenure.jobs.mailbox_names import mailbox_name
from tenure.local.host_process import PRIORITIES, Begin, Failed, HostSaid, Listening, Serving, ToHost, channel_of_host
from tenure.logs import NodeLog, log_to
from tenure.nodes.process import Environment, open_engine
from tenure.nodes.worker.courier import LeaderCourier
from tenure.nodes.worker.inline_slots import InlineSlots
from tenure.nodes.worker.supervised_slots import CONNECT, SupervisedSlots
from tenure.nodes.worker.worker import ManagedWorker
from tenure.nodes.worker.worker_process import WorkerSettings, WorkerThread
from tenure.randomness import fresh_random, new_id
from tenure.work.line_channel import LineChannel
from tenure.work.registry import Registry
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.supervisor import BROKEN, Supervisor

MANAGER_ENDS_S = 10.0


class LocalHost:
    """The parts of one host process. `run` in its main thread, which owns the slots."""

    def __init__(self, begin: Begin, line: LineChannel[ToHost]) -> None:
        self._begin, self._line = begin, line
        self._log = log_to(lambda text: line.send(HostSaid(text)), "worker", begin.name)
        self._stopped = threading.Event()
        self._slots: SupervisedSlots | None = None
        self._manager = ManagerThread(begin, line, self.stop) if begin.manager else None

    def run(self) -> int:
        if self._manager is not None:
            self._manager.start()
        try:
            if self._begin.modules:
                return self._work()
            self._stopped.wait()
            return 0
        finally:
            if self._manager is not None:
                self._manager.stop()

    def stop(self) -> None:
        """Hand over and end. From any thread, and from signal handlers."""
        self._stopped.set()
        if self._slots is not None:
            self._slots.drain()

    def _work(self) -> int:
        begin = self._begin
        lanes = tuple(mailbox_name(begin.queue, priority) for priority in PRIORITIES)
        own = {
            "queue": lanes[0],
            "more_queues": lanes[1:],
            "drain": "handover",
            "courier": CONNECT,
            "token": begin.token,
        }
        settings = SlotSettings(**{**begin.settings, **own})

        def supervisor(on_change: Callable[[], None]) -> Supervisor:
            return Supervisor(
                begin.modules, begin.engine_url, settings, log=self._log, worker=begin.name, on_change=on_change
            )

        clock = SystemClock()
        slots = self._slots = SupervisedSlots(supervisor, clock=clock)
        if self._stopped.is_set():
            return 0
        node = WorkerThread(
            WorkerSettings(begin.name, begin.engine_url, begin.token, __version__), slots, clock=clock, log=self._log
        )
        node.start()
        threading.Thread(target=self._tell_ready, args=(slots.supervisor,), name="tenure-ready", daemon=True).start()
        try:
            code = slots.run()
        finally:
            node.stop()
        broken = slots.supervisor.broken
        if code == BROKEN and broken is not None:
            self._line.send(Failed(broken.reason, broken.trace))
        return code

    def _tell_ready(self, supervisor: Supervisor) -> None:
        supervisor.ready.wait()
        self._line.send(Serving())


class ManagerThread:
    """A manager, or a gate, on an event loop of its own."""

    def __init__(self, begin: Begin, line: LineChannel[ToHost], on_end: Callable[[], None]) -> None:
        self._begin, self._line, self._on_end = begin, line, on_end
        self._thread = threading.Thread(target=self._run, name="tenure-manager", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._may_stop = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Resign, so that the next one need not wait for the end of our term."""
        self._may_stop.wait(MANAGER_ENDS_S)
        if self._loop is not None and self._stop is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                return  # it has ended
        self._thread.join(MANAGER_ENDS_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except TenureError as error:
            self._line.send(Failed(str(error)))
        except Exception as error:
            self._line.send(Failed(f"{type(error).__name__}: {error}", traceback.format_exc()))
        finally:
            self._may_stop.set()
            self._on_end()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._may_stop.set()
        begin = self._begin
        listen = {
            "engine_url": begin.engine_url,
            "name": begin.name,
            "host": begin.host,
            "port": begin.port,
            "token": begin.token,
            "term_s": begin.term_s,
        }
        if begin.datacenters:
            await self._serve_gate(self._stop, listen)
        else:
            await self._serve_manager(self._stop, listen)

    # Imported where they are needed, while the slots are starting: the server is most of what this process loads.

    async def _serve_manager(self, stop: asyncio.Event, listen: dict[str, Any]) -> None:
        from tenure.nodes.manager.serving import ManagerSettings, serve

        tracing.set_up("tenure-manager")
        settings = ManagerSettings(**listen, datacenter=self._begin.datacenter)
        await serve(settings, stop, log=self._log_of("manager"), on_ready=self._on_ready)

    async def _serve_gate(self, stop: asyncio.Event, listen: dict[str, Any]) -> None:
        from tenure.nodes.gate.serving import GateNodeSettings, serve_gate

        tracing.set_up("tenure-gate")
        settings = GateNodeSettings(**listen, datacenters=self._begin.datacenters)
        await serve_gate(settings, stop, log=self._log_of("gate"), on_ready=self._on_ready)

    def _log_of(self, kind: str) -> NodeLog:
        return log_to(lambda text: self._line.send(HostSaid(f"{kind}: {text}")), kind, self._begin.name)

    def _on_ready(self, address: str) -> None:
        self._line.send(Listening(address))


STOP_S = 15.0


class ThreadWorker:
    """One thread with an event loop, which starts a thread for each sync workflow. `start`, then `stop`."""

    def __init__(
        self,
        engine_url: str,
        registry: Registry,
        queue: str,
        settings: dict[str, Any],
        log: NodeLog,
    ) -> None:
        self._engine_url, self._registry, self._log = engine_url, registry, log
        lanes = tuple(mailbox_name(queue, priority) for priority in PRIORITIES)
        self._settings = SlotSettings(**{**settings, "queue": lanes[0], "more_queues": lanes[1:]})
        self._thread = threading.Thread(target=self._run, name="tenure-worker", daemon=True)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(STOP_S)

    def stop(self) -> None:
        if self._loop is not None and self._task is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self._log.error(f"the worker in threads ended: {type(error).__name__}: {error}")
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        clock, name = SystemClock(), f"threads-{new_id()[:8]}"
        async with open_engine(self._engine_url, clock) as (engine, calls):
            with closing(HttpCaller()) as caller:
                environment = Environment(engine, calls, clock, fresh_random(), new_id, self._log)
                slots = InlineSlots(
                    environment,
                    self._registry,
                    self._settings,
                    worker=name,
                    courier=cache(lambda: LeaderCourier(self._engine_url)),
                )
                node = ManagedWorker(name, slots, environment, caller)
                lives = [asyncio.create_task(slots.run()), asyncio.create_task(node.run())]
                self._ready.set()
                try:
                    # The node ends by itself only when the engine lost what it had acknowledged: then the slots end with it.
                    ended, _ = await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
                    for life in ended:
                        life.result()
                finally:
                    for life in lives:
                        life.cancel()
                    await asyncio.gather(*lives, return_exceptions=True)
                    await node.leave()


def main() -> int:
    """Read the first line, then live as it says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then stops us
    line = channel_of_host(socket.socket(fileno=int(sys.argv[1])))
    lines = iter(line)
    begin = next(lines, None)
    if not isinstance(begin, Begin):
        return 1
    host = LocalHost(begin, line)
    signal.signal(signal.SIGTERM, lambda *_: host.stop())

    def listen() -> None:
        next(lines, None)  # told to stop, or nobody is there
        host.stop()

    threading.Thread(target=listen, name="tenure-lifeline", daemon=True).start()
    try:
        return host.run()
    except TenureError as error:
        line.send(Failed(str(error)))
    except Exception as error:
        line.send(Failed(f"{type(error).__name__}: {error}", traceback.format_exc()))
    return 1


if __name__ == "__main__":
    sys.exit(main())

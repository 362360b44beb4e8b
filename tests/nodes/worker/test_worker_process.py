"""A worker's node in its thread: whatever ends it, it begins again, and is heard."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.nodes.cast import Cast
from tests.patience import wait_until

from tenure.clock import SystemClock
from tenure.control.messages.wire import MANAGER_ELECTION, Reply, Request, candidate_at
from tenure.control.messages.workers import WorkerDirective, WorkerReport
from tenure.control.transport import HttpServer
from tenure.engines.contracts import Engine
from tenure.health.signals import RoutingDecision
from tenure.logs import log_to
from tenure.nodes.slot_runner import SlotsView
from tenure.nodes.worker.worker_process import WorkerSettings, WorkerThread


class Fragile(Cast):
    """Slots whose board cannot be read, once."""

    breaks = False

    def view(self) -> SlotsView:
        if self.breaks:
            self.breaks = False
            raise RuntimeError("the board is gone")
        return super().view()


class Leader:
    """Hears reports over HTTP, in a thread of its own."""

    def __init__(self) -> None:
        self.heard: list[WorkerReport] = []
        self.address = ""
        self._stop: Callable[[], None] = lambda: None
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._up.wait(60)

    async def _serve(self) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set) and None
        server = HttpServer(self._answer)
        self.address = f"127.0.0.1:{await server.start()}"
        self._up.set()
        await stop.wait()
        await server.stop()

    async def _answer(self, sender: str, request: Request) -> Reply:
        assert isinstance(request, WorkerReport)
        self.heard.append(request)
        await asyncio.sleep(min(request.wait_s, 0.2))
        return WorkerDirective(epoch=1, verdict=RoutingDecision.ROUTE, incarnation=request.incarnation, left_s=30)

    def close(self) -> None:
        self._stop()
        self._thread.join(60)


@contextmanager
def working_thread(url: str, slots: Cast, said: list[str]) -> Iterator[WorkerThread]:
    thread = WorkerThread(WorkerSettings("w-1", url), slots, clock=SystemClock(), log=log_to(said.append))
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


def test_a_node_that_failed_is_started_again_and_its_reports_count_on(tmp_path: Path) -> None:
    """It stayed away for good: its worker went on taking work, and nobody ever saw any of it begin."""
    url, slots, said = f"sqlite:///{tmp_path}/tenure.db", Fragile(), list[str]()
    with closing(Leader()) as leader, Engine.open(url, clock=SystemClock()) as engine:
        engine.election(MANAGER_ELECTION).campaign(candidate_at("m-1", leader.address), 3_600)
        with working_thread(url, slots, said):
            wait_until(lambda: len(leader.heard) > 2)
            slots.breaks = True
            slots.begin()  # it looks at its slots at once
            wait_until(lambda: any("FAILED on loop" in line and "the board is gone" in line for line in said))
            before = max(report.number for report in leader.heard)
            wait_until(lambda: any(report.number > before + 1 for report in leader.heard))
        numbers = [report.number for report in leader.heard if not report.leaving]
        assert len(set(numbers)) == len(numbers)


def test_an_engine_that_refuses_now_may_serve_later(tmp_path: Path) -> None:
    path, said = tmp_path / "tenure.db", list[str]()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE of_another_program (x)")
    with working_thread(f"sqlite:///{path}", Cast(), said) as thread:
        wait_until(lambda: any("database of another program" in line for line in said))
        path.unlink()
        wait_until(lambda: thread.node is not None)

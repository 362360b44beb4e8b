"""A worker in threads of this program, for workflows that no other process can import."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from typing import Any

from tenure.clock import SystemClock
from tenure.control.async_caller import HttpCaller
from tenure.ids import new_id
from tenure.jobs.outbox import mailbox_name
from tenure.local.host_process import PRIORITIES
from tenure.nodes.process import open_engine
from tenure.nodes.worker.courier import LeaderCourier
from tenure.nodes.worker.inline_slots import InlineSlots
from tenure.nodes.worker.worker import ManagedWorker
from tenure.randomness import fresh_random
from tenure.work.registry import Registry, Workflow
from tenure.work.slots.settings import SlotSettings

STOP_S = 15.0


class ThreadWorker:
    """One thread with an event loop, which starts a thread for each sync workflow. `start`, then `stop`."""

    def __init__(
        self,
        engine_url: str,
        workflows: Sequence[Workflow[..., Any]],
        queue: str,
        settings: dict[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self._engine_url, self._registry, self._say = engine_url, Registry(workflows), say
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
            self._say(f"the worker in threads ended: {type(error).__name__}: {error}")
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        clock, name = SystemClock(), f"threads-{new_id()[:8]}"
        async with open_engine(self._engine_url, clock) as (engine, calls):
            with closing(HttpCaller()) as caller:
                slots = InlineSlots(
                    engine,
                    calls,
                    self._registry,
                    self._settings,
                    worker=name,
                    clock=clock,
                    random=fresh_random(),
                    courier=cache(lambda: LeaderCourier(self._engine_url)),
                    say=self._say,
                )
                node = ManagedWorker(
                    name,
                    slots,
                    engine,
                    calls,
                    caller,
                    clock=clock,
                    random=fresh_random(),
                    say=self._say,
                )
                reporting = asyncio.create_task(node.run())
                self._ready.set()
                try:
                    await slots.run()
                finally:
                    reporting.cancel()
                    await asyncio.gather(reporting, return_exceptions=True)
                    await node.leave()

"""Agents in an event loop: what hangs is redelivered, and no engine, however slow, holds the loop up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenure.agent import (
    AsyncMainLoop,
    InnerLoopConfig,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    Prompt,
    Session,
    Tool,
    ToolContext,
    ToolResult,
)
from tenure.beat.lease import LeaseExtenderConfig
from tenure.clock import ManualClock
from tenure.engines.sqlite.message import SqliteMessage
from tenure.engines.urls import open_engine
from tenure.testing import AsyncScriptedAdapter
from tenure.testing.model import calls
from tenure.work import Ending, OnLeaseLost

LINES = [calls(("step", {"n": n})) for n in range(5)]


@dataclass(frozen=True)
class Step:
    n: int


class Agent(AsyncMainLoop[str, str]):
    handler: Callable[..., Any]
    kept: MainLoopResult[str] | None = None

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt("agent", request, tools=(Tool("step", "Do a step.", Step, self.handler),)), Session()

    def discarded(self, message: Any, result: MainLoopResult[str]) -> None:
        self.kept = result


class Rig:
    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.engine = open_engine(url, self.clock)
        self.requests = self.engine.mailbox("requests", MainLoopRequest[str], MainLoopResult[str])
        self.replies = self.engine.mailbox("replies", MainLoopResult[str])

    def loop(self, lines: Any, handler: Callable[..., Any], **settings: Any) -> Agent:
        adapter = AsyncScriptedAdapter(lines, loop=InnerLoopConfig(clock=self.clock, model_silence_s=10))
        agent = Agent(adapter=adapter, requests=self.requests, clock=self.clock, **settings)
        agent.handler = handler
        return agent

    def ask(self) -> None:
        self.requests.send(MainLoopRequest("go", "r1"), reply_to=self.replies)

    def reply(self) -> MainLoopResult[str]:
        (message,) = self.replies.receive()
        assert isinstance(message.body, MainLoopResult)
        return message.body


@pytest.fixture(params=["memory", "sqlite"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/work.db")
    yield rig
    rig.engine.close()


@pytest.mark.parametrize("where", ["an await", "a thread"])
def test_an_async_agent_that_hangs_is_redelivered_resumed_from_its_session_and_finished_once(
    rig: Rig, where: str
) -> None:
    ran: list[tuple[str, int]] = []
    hung, let_go = threading.Event(), threading.Event()
    released: list[Callable[[], object]] = []

    async def awaits(params: Step, *, context: ToolContext) -> ToolResult[int]:
        ran.append(("first", params.n))
        if params.n == 3:
            loop, event = asyncio.get_running_loop(), asyncio.Event()
            released.append(lambda: loop.call_soon_threadsafe(event.set))
            hung.set()
            await event.wait()
        return ToolResult.ok(params.n)

    def blocks(params: Step, *, context: ToolContext) -> ToolResult[int]:
        ran.append(("first", params.n))
        if params.n == 3:
            released.append(let_go.set)
            hung.set()
            let_go.wait(60)
        return ToolResult.ok(params.n)

    async def well(params: Step, *, context: ToolContext) -> ToolResult[int]:
        ran.append(("second", params.n))
        return ToolResult.ok(params.n)

    first = rig.loop([*LINES, "done by the first"], awaits if where == "an await" else blocks)
    second = rig.loop([LINES[4], "done by the second"], well)
    rig.ask()
    worker = threading.Thread(target=lambda: first.run(max_iterations=1, visibility_timeout=30, wait_time_seconds=0))
    worker.start()
    assert hung.wait(60)
    rig.clock.advance(30)
    second.run(max_iterations=1, visibility_timeout=30, wait_time_seconds=0)
    released[0]()
    worker.join(60)
    assert not worker.is_alive()
    assert ran[:6] == [("first", 0), ("first", 1), ("first", 2), ("first", 3), ("second", 3), ("second", 4)]
    reply = rig.reply()
    assert (reply.output, reply.tool_calls) == ("done by the second", 5)
    assert (first.endings[Ending.LOST], second.endings[Ending.DONE]) == (1, 1)
    assert first.kept is not None
    assert first.kept.lease_lost is not None
    assert rig.replies.receive() == []


def test_with_cancel_a_lost_lease_ends_an_async_agent_at_a_beat(rig: Rig) -> None:
    async def slow(params: Step, *, context: ToolContext) -> ToolResult[int]:
        rig.clock.advance(31)
        while True:  # the engine is asked elsewhere: the loss is known some beats later
            context.beat()
            await asyncio.sleep(0.001)

    agent = rig.loop(LINES[:1], slow, on_lease_lost=OnLeaseLost.CANCEL)
    rig.ask()
    agent.run(max_iterations=1, visibility_timeout=30, wait_time_seconds=0)
    assert (agent.endings[Ending.LOST], rig.replies.receive()) == (1, [])


def test_a_slow_engine_does_not_hold_up_the_event_loop_and_has_one_renewal_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/work.db")
    extend = SqliteMessage.extend_visibility
    answer, busy, threads = threading.Event(), threading.Semaphore(1), list[str]()
    overlaps: list[str] = []

    def slow(message: Any, seconds: float, checkpoint: bytes | None = None) -> None:
        threads.append(threading.current_thread().name)
        if checkpoint is None:  # a renewal
            if not busy.acquire(blocking=False):
                overlaps.append("two renewals at once")
            # Only the event loop lets it go: if a beat waited for this in the loop, it would wait here in vain.
            assert answer.wait(60), "the event loop was held up"
            busy.release()
        extend(message, seconds, checkpoint)

    async def busy_step(params: Step, *, context: ToolContext) -> ToolResult[int]:
        for _ in range(100):
            context.beat()  # each one would renew: the interval is 0
            await asyncio.sleep(0)
        answer.set()
        return ToolResult.ok(params.n)

    config = MainLoopConfig(lease_extender=LeaseExtenderConfig(interval=0))
    agent = rig.loop([*LINES[:2], "done"], busy_step, config=config, name="slow")
    rig.ask()
    monkeypatch.setattr(SqliteMessage, "extend_visibility", slow)
    runner = threading.Thread(target=lambda: agent.run(max_iterations=1, wait_time_seconds=0), name="the loop")
    runner.start()
    runner.join(60)
    assert not runner.is_alive()
    monkeypatch.undo()
    assert (rig.reply().output, overlaps) == ("done", [])
    assert "the loop" not in threads, "the event loop's own thread made an engine call"
    assert "tenure-calls-slow" in threads
    rig.engine.close()

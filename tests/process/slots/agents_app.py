"""Agents as workflows, sync and async, for the tests that kill them. Served by a real worker."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from typing import Any

from tests.process.slots.app import SOON, note

from tenure import workflow
from tenure.agent import (
    AsyncMainLoop,
    InnerLoopConfig,
    MainLoop,
    MainLoopResult,
    ModelRequest,
    ModelSaid,
    Prompt,
    Session,
    Tool,
    ToolContext,
    ToolResult,
)
from tenure.agent.events import ToolAnswered
from tenure.testing import AsyncScriptedAdapter, ScriptedAdapter
from tenure.testing.model import calls, says

STEPS = 5
HANGS_AT = 2
LOOP = InnerLoopConfig(model_silence_s=1)


@dataclass(frozen=True)
class Step:
    n: int


def model(request: ModelRequest) -> ModelSaid:
    done = sum(isinstance(turn, ToolAnswered) for turn in request.turns)
    return calls(("step", {"n": done})) if done < STEPS else says("done")


def prompt(request: str, handler: Any) -> Prompt[str]:
    return Prompt("agent", request, tools=(Tool("step", "Do a step.", Step, handler),))


class Agent(MainLoop[str, str]):
    def __init__(self, ctx: Any, log: str) -> None:
        super().__init__(adapter=ScriptedAdapter([model] * 50, loop=LOOP))
        self.ctx, self.log_path = ctx, log

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        return prompt(request, self.step), Session()

    def step(self, params: Step, *, context: ToolContext) -> ToolResult[int]:
        note(self.log_path, f"{self.ctx.attempt} {params.n} {os.getpid()}")
        if params.n == HANGS_AT and self.ctx.attempt == 1:
            threading.Event().wait()
        return ToolResult.ok(params.n)


class AsyncAgent(AsyncMainLoop[str, str]):
    def __init__(self, ctx: Any, log: str) -> None:
        super().__init__(adapter=AsyncScriptedAdapter([model] * 50, loop=LOOP))
        self.ctx, self.log_path = ctx, log

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        return prompt(request, self.step), Session()

    async def step(self, params: Step, *, context: ToolContext) -> ToolResult[int]:
        note(self.log_path, f"{self.ctx.attempt} {params.n} {os.getpid()}")
        if params.n == HANGS_AT and self.ctx.attempt == 1:
            await asyncio.Event().wait()
        return ToolResult.ok(params.n)


@workflow(stall=120, max_attempts=2, retry=SOON)
def killed_agent(ctx: Any, log: str) -> MainLoopResult[str]:
    """Waits in its third step until somebody kills its process."""
    return Agent(ctx, log).execute_in(ctx, "go")


@workflow(stall=4, max_attempts=2, retry=SOON)
async def hung_agent(ctx: Any, log: str) -> MainLoopResult[str]:
    """Hangs in its third step until the supervisor has enough of it."""
    return await AsyncAgent(ctx, log).execute_in(ctx, "go")

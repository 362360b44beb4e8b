"""Agents that talk to a provider over HTTP. Served by real workers, for the test in which the provider goes away."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from tenure import workflow
from tenure.agent import (
    InnerLoopConfig,
    MainLoop,
    MainLoopResult,
    ModelRequest,
    ModelRetry,
    ModelSaid,
    Prompt,
    Session,
    Tool,
    ToolContext,
    ToolResult,
)
from tenure.agent.events import ToolAnswered
from tenure.backoff import Retry
from tenure.errors import ProviderUnavailableError
from tenure.testing import ScriptedAdapter
from tenure.testing.model import calls, says

# Four calls in about 14 seconds: a leader on a busy machine may need some of them until it says that the provider is down.
LOOP = InnerLoopConfig(
    provider="fake-provider", model_retry=ModelRetry(attempts=4, backoff=Retry(delay=2.0, max_delay=8.0))
)


@dataclass(frozen=True)
class Step:
    n: int


class Agent(MainLoop[str, str]):
    def __init__(self, url: str) -> None:
        super().__init__(adapter=ScriptedAdapter([self.model] * 500, loop=LOOP))
        self._url = url

    def model(self, request: ModelRequest) -> ModelSaid:
        try:
            said = urllib.request.urlopen(self._url, timeout=20).read()
        except urllib.error.URLError as error:
            raise ProviderUnavailableError(f"the provider says {error}") from error
        # It goes on until the provider has been down and is up again, however long the machine takes to start all agents.
        done = sum(isinstance(turn, ToolAnswered) for turn in request.turns)
        return says("done") if said == b"enough" else calls(("step", {"n": done}))

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt("agent", request, tools=(Tool("step", "Do a step.", Step, self.step),)), Session()

    def step(self, params: Step, *, context: ToolContext) -> ToolResult[int]:
        time.sleep(0.3)
        return ToolResult.ok(params.n)


@workflow(stall=30, max_attempts=1)
def agent(ctx: Any, url: str) -> MainLoopResult[str]:
    return Agent(url).execute_in(ctx, "go")

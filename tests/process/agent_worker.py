"""An agent in a process of its own, for the tests that kill it: `agent_worker.py FOLDER hang|work`."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from tenure.agent import (
    InnerLoopConfig,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    ModelRequest,
    ModelSaid,
    Prompt,
    Session,
    ToolContext,
    ToolResult,
    tool,
)
from tenure.agent.events import ToolAnswered
from tenure.engines import Engine
from tenure.testing import ScriptedAdapter
from tenure.testing.model import calls, says

FOLDER, MODE = Path(sys.argv[1]), sys.argv[2]
STEPS = 5


@dataclass(frozen=True)
class Ask:
    text: str


@dataclass(frozen=True)
class Step:
    n: int


@tool
def step(params: Step, *, context: ToolContext) -> ToolResult[int]:
    """Do a step, and write down who did it."""
    with (FOLDER / "log").open("a") as log:
        log.write(f"{MODE} {params.n}\n")
    if MODE == "hang" and params.n == 2:
        (FOLDER / "hung").touch()
        threading.Event().wait()
    return ToolResult.ok(params.n)


def model(request: ModelRequest) -> ModelSaid:
    done = sum(isinstance(turn, ToolAnswered) for turn in request.turns)
    return calls(("step", {"n": done})) if done < STEPS else says(f"done by {MODE}")


class Agent(MainLoop[Ask, str]):
    def prepare(self, request: Ask) -> tuple[Prompt[str], Session]:
        return Prompt("agent", request.text, tools=(step,)), Session()


if __name__ == "__main__":
    with Engine.open(f"sqlite:///{FOLDER}/work.db") as engine:
        requests = engine.mailbox("requests", MainLoopRequest[Ask], MainLoopResult[str])
        adapter = ScriptedAdapter([model] * 50, loop=InnerLoopConfig(model_silence_s=1))
        agent = Agent(adapter=adapter, requests=requests)
        lease_s = 5 if MODE == "hang" else 120  # only the one that hangs is to lose its lease
        agent.run(max_iterations=1, visibility_timeout=lease_s, wait_time_seconds=60)
        print(os.getpid(), agent.endings)

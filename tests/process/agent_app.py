"""Workflows that run an agent in a slot process, for the tests in which its model never answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenure import workflow
from tenure.agent import AsyncMainLoop, InnerLoopConfig, MainLoop, Prompt, Session
from tenure.agent.providers import AsyncOpenAIAdapter, OpenAIAdapter
from tenure.errors import Cancelled

PATIENT = InnerLoopConfig(model_silence_s=3_600)


class Asker(MainLoop[str, str]):
    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt("ask", request), Session()


class AsyncAsker(AsyncMainLoop[str, str]):
    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt("ask", request), Session()


@workflow(stall=600)
def ask(ctx: Any, url: str, folder: str) -> str | None:
    adapter: Any = OpenAIAdapter("m", base_url=url, api_key="none", loop=PATIENT)
    try:
        return Asker(adapter=adapter).execute_in(ctx, "go").stop
    except Cancelled as error:
        (Path(folder) / "ended").write_text(str(error))
        raise


@workflow(stall=600)
async def ask_async(ctx: Any, url: str, folder: str) -> str | None:
    adapter: Any = AsyncOpenAIAdapter("m", base_url=url, api_key="none", loop=PATIENT)
    try:
        return (await AsyncAsker(adapter=adapter).execute_in(ctx, "go")).stop
    except BaseException as error:
        (Path(folder) / "ended").write_text(type(error).__name__)
        raise

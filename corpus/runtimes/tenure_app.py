"""The workflows that `tenure worker` serves for the corpus."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from corpus.case import all_cases
from corpus.job import Job, perform, perform_async
from tenure import workflow
from tenure.work.context import BaseContext, Context

FOLDER = Path(os.environ.get("CORPUS_RUN", "."))
CASES = all_cases()


class TenureJob(Job):
    """Passes everything on to `ctx`."""

    def __init__(self, ctx: BaseContext) -> None:
        self.ctx: Any = ctx

    def beat(
        self, done: int | None = None, total: int | None = None, fraction: float | None = None, note: str | None = None
    ) -> None:
        self.ctx.beat(progress=fraction, note=note, completed_items=done, total_items=total)

    def checkpoint(self, state: Any) -> None:
        self.ctx.save(state)
        self.ctx.beat()

    @property
    def resume(self) -> Any:
        return self.ctx.resume

    def silence(self, max_s: float, why: str) -> Any:
        return self.ctx.silence(max_s, why)

    def thread(self) -> Any:
        return self.ctx.thread()

    def log(self, text: str) -> None:
        self.ctx.log.info(text)

    def sleep(self, seconds: float) -> None:
        self.ctx.sleep(seconds)

    def track(self, items: Iterable[Any], total: int | None = None) -> Any:
        return self.ctx.track(items, total)

    def polling(self, every_s: float, most_s: float, why: str) -> Any:
        return self.ctx.polling(every_s, most_s, why)

    def program(self, *command: str) -> None:
        self.ctx.run(list(command))


@workflow
def case(ctx: Context, name: str) -> str:
    return perform(CASES[name], TenureJob(ctx), FOLDER)


@workflow
async def async_case(ctx: BaseContext, name: str) -> str:
    return await perform_async(CASES[name], TenureJob(ctx), FOLDER)

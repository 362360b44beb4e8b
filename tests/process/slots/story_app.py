"""The workflows of the attempt stories, and a courier that shows the jobs that they submit to the test. Slot processes import it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from tenure import workflow
from tenure.attempt_data import Signal
from tenure.backoff import Retry
from tenure.engines import Engine
from tenure.errors import Cancelled
from tenure.jobs.model import JobSubmission
from tenure.work.job_submission import ChildView
from tenure.work.registry import Workflow

SOON = Retry(max_attempts=3, delay=0.0)
CHILDREN = "children"


@workflow
async def succeeds(ctx: Any) -> int:
    return 3


@workflow
async def fails(ctx: Any) -> None:
    raise ValueError("as its story says")


@workflow(retry=SOON)
async def succeeds_later(ctx: Any) -> int:
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return int(ctx.attempt)


@workflow
async def beats_for_ever(ctx: Any) -> None:
    while True:
        ctx.beat()
        await asyncio.sleep(0.02)


@workflow(stall=0.7)
async def falls_silent(ctx: Any) -> None:
    ctx.beat()
    await asyncio.sleep(1_000)


@workflow(stall=0.7)
async def hangs_while_a_helper_beats(ctx: Any) -> None:
    over = threading.Event()

    def help_out() -> None:
        with contextlib.suppress(Cancelled):
            while not over.wait(0.02):
                ctx.beat()

    helper = threading.Thread(target=help_out, daemon=True)
    helper.start()
    try:
        await asyncio.sleep(1_000)
    finally:
        over.set()


@workflow
async def stays_at_item_7(ctx: Any) -> None:
    while True:
        ctx.beat(progress=0.1, completed_items=7)
        await asyncio.sleep(0.02)


@workflow(retry=SOON)
async def resumes(ctx: Any) -> Any:
    if ctx.resume is None:
        await ctx.checkpoint({"at": 7})
        raise ValueError("the next attempt goes on")
    return ctx.resume


@workflow
async def submits(ctx: Any) -> Any:
    return await (await ctx.submit("child", {"n": 1})).wait()


@workflow
async def logs(ctx: Any) -> None:
    ctx.log.warning("a line of the story")


class MailCourier:
    """Answers as a manager would whose jobs all end at once, and leaves a note of each in a mailbox."""

    poll_s = 0.01

    def __init__(self, engine_url: str, token: str = "") -> None:
        self._engine_url = engine_url

    def submit(self, submission: JobSubmission, workflow: Workflow[..., Any] | None) -> str:
        job_id = submission.job_id or ""
        with Engine.open(self._engine_url) as engine:
            engine.mailbox(CHILDREN, str).send(job_id)
        return job_id

    def look(self, job_id: str, wait_s: float) -> ChildView:
        return ChildView(
            state="completed",
            ended=True,
            completed=True,
            reason="",
            progress=(1, 1, "completed"),
            left_s=1.0,
            result=job_id,
        )

    def cancel(self, job_id: str, reason: str) -> None:
        raise AssertionError("no story cancels a child")

    def why(self, job_id: str) -> str:
        return ""

    def signals(self, job_id: str, after: int) -> list[Signal]:
        return []


def connect(engine_url: str, token: str) -> MailCourier:
    return MailCourier(engine_url, token)


WORKFLOWS = [
    *(succeeds, fails, succeeds_later, beats_for_ever, falls_silent, hangs_while_a_helper_beats, stays_at_item_7),
    *(resumes, submits, logs),
]

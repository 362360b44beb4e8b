"""A real manager on the memory engine with a manual clock, in this process, behind a real port: what is told does not depend on how busy the machine is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from tests.nodes.manager.disasters import DISASTERS, Stage
from tests.nodes.manager.harness import ask

from tenure.backoff import Retry
from tenure.control.messages.jobs import SubmitMany
from tenure.control.transport import HttpServer
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.nodes.manager.serving import answering
from tenure.nodes.node_process import NodeDoor

IDS = {name: f"encode-{number}" for number, name in enumerate(DISASTERS, 1)}
"""Ids that give nothing away to somebody who looks at a picture."""


@contextlib.asynccontextmanager
async def served(stage: Stage) -> AsyncIterator[str]:
    """Yields the address of the manager that leads, for which time stands still from now on."""
    door = NodeDoor("manager")
    server = HttpServer(door.answer, streams=door.streams)
    door.open(answering(stage.manager_now))
    try:
        yield f"http://127.0.0.1:{await server.start()}/"
    finally:
        await stage.end()
        await server.stop()


@contextlib.asynccontextmanager
async def all_disasters() -> AsyncIterator[str]:
    """Plays the twelve in one datacenter."""
    stage = Stage()
    await stage.raise_curtain()
    for name, (story, _, _) in DISASTERS.items():
        await story(stage, IDS[name])
    async with served(stage) as address:
        yield address


@contextlib.asynccontextmanager
async def many_jobs(count: int, at_once: int = 500) -> AsyncIterator[str]:
    """A datacenter with so many jobs, all of which wait."""
    stage = Stage()
    await stage.raise_curtain()
    spec = WorkflowSpec(name="encode", arguments={"path": "a.mov"}, retry=Retry(max_attempts=1))
    for begin in range(0, count, at_once):
        jobs = (JobSubmission(job_id=f"many-{one}", workflows=(spec,)) for one in range(begin, begin + at_once))
        await ask(stage.manager_now, SubmitMany(submissions=tuple(jobs)))
    async with served(stage) as address:
        yield address

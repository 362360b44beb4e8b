"""`client.workflow(name)`: a workflow whose code the program does not have, with its arguments as the catalogue has them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.one_datacenter import datacenter

from tenure import AsyncClient
from tenure.client.submissions import WorkflowHandle
from tenure.control.messages.workflows import WorkflowEntry
from tenure.errors import ArgumentsError, ConfigurationError, UnknownWorkflowError
from tenure.served_workflow import ServedWorkflow
from tenure.work.registry import workflow


def double(n: int) -> int: ...


def halve(m: int) -> int: ...


def nothing() -> None: ...


def test_a_handle_submits_by_name_and_checks_before_it_sends() -> None:
    async def story() -> None:
        async with datacenter() as address, AsyncClient(address) as client:
            while not (await client.catalogue("double")).workflows:
                await asyncio.sleep(0.02)
            known = await client.workflow("double", like=double)
            assert (known.name, known.parameters, known.served.result) == ("double", ("n",), "int")
            assert repr(known) == "<workflow double 1 (n) -> int>"
            assert await (await known.submit(4)).wait() == 8
            job = await known.options(job_id="mine", labels={"for": "x"}).submit(n=5)
            assert (job.id, await job.wait()) == ("mine", 10)
            assert (await job.status()).labels == {"for": "x"}
            any_of: Any = known
            with pytest.raises(ArgumentsError, match="'n' is 'four', and should be an integer"):
                await any_of.submit("four")
            with pytest.raises(ArgumentsError, match="2 values are given to double, which takes 1"):
                await any_of.submit(1, 2)
            with pytest.raises(ArgumentsError, match="given twice"):
                await any_of.submit(1, n=1)
            with pytest.raises(UnknownWorkflowError, match=r"'duoble' within 7 days. Did you mean 'double'\?"):
                await client.workflow("duoble")
            with pytest.raises(UnknownWorkflowError, match=r"version '2' of workflow 'double'.*Known are: 1"):
                await client.workflow("double", version="2")
            with pytest.raises(ConfigurationError, match="it has 'm', which the workflow has not"):
                await client.workflow("double", like=halve)
            with pytest.raises(ConfigurationError, match="it lacks 'n', which the workflow needs"):
                await client.workflow("double", like=nothing)

    asyncio.run(asyncio.wait_for(story(), 60))


def entry(name: str, version: str, workers: tuple[str, ...] = ("w",)) -> WorkflowEntry:
    return WorkflowEntry(served=ServedWorkflow(name=name, version=version), workers=workers)


def test_a_handle_is_of_the_newest_version_that_is_served() -> None:
    entries = [entry("e", "1.9"), entry("e", "1.10"), entry("e", "2", ())]
    handle: WorkflowHandle[..., Any] = WorkflowHandle(None, entries, "e")  # type: ignore[arg-type]
    assert (handle.served.version, handle.version, handle.parameters) == ("1.10", "", None)
    assert WorkflowHandle(None, entries, "e", "2").served.version == "2"  # type: ignore[arg-type, var-annotated]
    with pytest.raises(ArgumentsError, match="nobody here knows"):
        handle.submit(1)


def test_the_order_of_arguments_is_that_of_the_function() -> None:
    @workflow
    def render(ctx: Any, scene: str, frames: int, alpha: bool = False) -> None: ...

    handle: WorkflowHandle[..., Any] = WorkflowHandle(None, [WorkflowEntry(served=render.served)], "render")  # type: ignore[arg-type]
    assert handle.parameters == ("scene", "frames", "alpha")

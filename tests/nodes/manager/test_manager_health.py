"""The health that a manager tells: it accepts no jobs while it is drained, at its budget or on a full engine, and its numbers are counted (document 001)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.nodes.manager.harness import GatedManagers, ask, from_gate, run_gated, submission, tell

from tenure.clock import ManualClock
from tenure.control.messages.gates import AskDatacenter
from tenure.control.messages.jobs import Done, Submit
from tenure.control.messages.nodes import DrainNode, ListNodes, UndrainNode
from tenure.control.messages.wire import Problem
from tenure.engines.aio import InlineCalls
from tenure.engines.memory.journal import MemoryJournal
from tenure.errors import EngineFullError
from tenure.nodes.manager.manager_health import FULL_FOR_S, WatchedCalls


def test_a_drained_manager_refuses_new_jobs_answers_for_known_ones_and_says_so_to_everybody() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await ask(manager, Submit(submission=submission("before")))
        await ask(manager, DrainNode(node="manager/m-1", reason="new rack", by="ops"))
        view = await ask(manager, AskDatacenter())
        assert (view.accepting_jobs, view.closed) == (False, "drained by ops: new rack")
        refused = await ask(manager, Submit(submission=submission("after")))
        assert isinstance(refused, Problem)
        assert "job 'after' is not accepted: this manager is drained by ops: new rack" in refused.fact
        assert "tenure drain manager/m-1 --undo" in refused.remedy
        assert refused.retryable
        assert isinstance(await ask(manager, Submit(submission=submission("before"))), Done)  # a retry is answered
        # A gate gets no answer, so it still owes the job and sends it again.
        assert (await tell(manager, from_gate("gated"))).reports == ()
        nodes = await ask(manager, ListNodes())
        assert nodes.workers == ()  # a manager's drain is no worker
        assert manager.node("m-1", "m-1:8470").closed == "drained by ops: new rack"
        await ask(manager, UndrainNode(node="manager/m-1", by="ops"))
        assert (await ask(manager, AskDatacenter())).accepting_jobs
        assert [one.job_id for one in (await tell(manager, from_gate("gated"))).reports] == ["gated"]
        assert isinstance(await ask(manager, Submit(submission=submission("after"))), Done)

    run_gated(story)


def test_the_name_of_a_worker_drains_no_manager_of_that_name() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await ask(manager, DrainNode(node="m-1", by="ops"))
        assert (await ask(manager, AskDatacenter())).accepting_jobs

    run_gated(story)


class FullJournal:
    """A journal on an engine without room, while `full` is set; all else is the real one's."""

    full = False

    def __init__(self, inner: MemoryJournal) -> None:
        self._inner = inner

    def append(self, *args: Any, **options: Any) -> int:
        if FullJournal.full:
            raise EngineFullError("no room to write")
        return self._inner.append(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_full_engine_counts_as_full_until_an_append_succeeds_or_for_a_time() -> None:
    full = True

    def append() -> None:
        if full:
            raise EngineFullError("no room to write")

    def renew() -> None:
        """Needs no room."""

    async def story() -> None:
        nonlocal full
        clock = ManualClock()
        calls = WatchedCalls(InlineCalls(clock), clock)
        for end in (append, None):
            full = True
            with pytest.raises(EngineFullError):
                await calls.run(append)
            await calls.run(renew)
            assert calls.full == "no room to write"
            full = False
            if end:
                await calls.run(end)
            else:
                clock.advance(FULL_FOR_S)
            assert not calls.full

    asyncio.run(story())


def test_a_full_engine_closes_the_manager_until_it_may_have_room_again() -> None:
    async def story(group: GatedManagers) -> None:
        journal = group.engine.journal
        group.engine.journal = lambda name: FullJournal(journal(name))  # type: ignore[method-assign, assignment, return-value, arg-type]
        manager = await group.led()
        FullJournal.full = True
        try:
            refused = asyncio.create_task(ask(manager, Submit(submission=submission())))
            await group.until(lambda: manager.closed, 30)
            view = await ask(manager, AskDatacenter())
            assert (view.accepting_jobs, view.closed) == (False, "its engine is full: no room to write")
            asked = asyncio.create_task(ask(manager, Submit(submission=submission("j-2"))))
            await group.until(asked.done, 5)  # at once, where the first one waits for room
            told = asked.result()
            assert isinstance(told, Problem)
            assert told.fact == "job 'j-2' is not accepted: its engine is full: no room to write"
            assert told.retryable
            assert told.retry_after_s >= 1
            assert not refused.done()
        finally:
            FullJournal.full = False
        await group.until(refused.done, 60)
        # The append that waited has found room.
        await group.until(lambda: manager.leads and not manager.closed, FULL_FOR_S / 3)
        assert (await ask(manager, AskDatacenter())).accepting_jobs
        assert isinstance(await ask(manager, Submit(submission=submission("j-2"))), Done)

    run_gated(story)


def test_the_numbers_that_a_manager_tells_are_counted() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        assert manager.flow() == (0, 0, 0.0, 0)
        for number in range(3):
            await ask(manager, Submit(submission=submission(f"j-{number}")))
        await group.rest()
        flow = manager.flow()
        assert (flow.accepted, flow.dispatched, flow.expected, flow.waiting) == (3, 3, 3.0, 0)
        view = await ask(manager, AskDatacenter())
        assert (view.jobs_accepted_last_interval, view.workflows_dispatched_last_interval) == (3, 3)
        await group.passes(120)
        assert manager.flow().dispatched == 0

    run_gated(story)

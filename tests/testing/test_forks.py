"""`tenure retry JOB --from STEP`: a new job that begins again from a recorded step of an ended one, on the code of now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import Permanent, workflow
from tenure.codec import Codec
from tenure.engines.aio import calls_for
from tenure.engines.contracts import Fence
from tenure.engines.memory.engine import MemoryEngine
from tenure.errors import ConfigurationError, EngineCorruptError, NodeRefusedError
from tenure.nodes.manager.ended_work import EndedSteps
from tenure.testing import ManualClock, TestDatacenter

RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def work(name: str) -> str:
    RAN.append(name)
    return f"{name} {len(RAN)}"


def orders(fixed: bool) -> Any:
    @workflow(name="orders", max_attempts=3)
    def run(ctx: Any) -> list[str]:
        done = [ctx.step("fetch", work, "fetch"), ctx.step("count", work, "count"), ctx.step("send", work, "send")]
        if not fixed:
            raise Permanent("the code is wrong")
        return done

    return run


class Reversed(Codec):
    """Seals nothing, and tells a value that is about something else."""

    def encode(self, data: bytes, about: str) -> bytes:
        return about.encode() + b"|" + data[::-1]

    def decode(self, data: bytes, about: str) -> bytes:
        named, _, rest = data.partition(b"|")
        assert named == about.encode(), (named, about)
        return rest[::-1]


@pytest.mark.parametrize("codec", [None, Reversed()])
def test_a_fork_keeps_the_results_of_the_steps_before_it_and_runs_the_rest_on_fixed_code(codec: Codec | None) -> None:
    with TestDatacenter(codec=codec) as datacenter:
        job = datacenter.submit(orders(fixed=False))
        datacenter.advance(seconds=30)
        assert (job.state, RAN) == ("failed", ["fetch", "count", "send"])
        datacenter.deploy(orders(fixed=True))
        datacenter.advance(seconds=10)
        again = job.retry(from_step="count")
        assert again.wait() == ["fetch 1", "count 4", "send 5"]
        assert f"it begins again from step 'count' of job {job.id}" in again.why()
        assert again.status().labels["tenure.retry_of"] == job.id
        assert job.retry(from_step="count").id == again.id  # asked again, it is the same job
        datacenter.advance(minutes=1)
        assert datacenter.engine.store("suspended").list() == [f"{job.id}/orders"]


def test_a_fork_of_a_job_that_was_cancelled_while_it_waited_waits_anew_for_its_own_signals(
    tenure_dc: TestDatacenter,
) -> None:
    @workflow(max_attempts=1)
    def asks(ctx: Any) -> list[Any]:
        first = ctx.wait_event("answer")
        ctx.step("note", work, "note")
        return [first, ctx.wait_event("answer")]

    job = tenure_dc.submit(asks)
    job.signal("answer", "first")
    tenure_dc.advance(seconds=30)
    job.cancel()
    tenure_dc.advance(seconds=30)
    again = job.retry(from_step="note")
    tenure_dc.advance(minutes=5)
    assert again.status().workflows[0].state == "suspended"
    again.signal("answer", "second")
    assert again.wait() == ["first", "second"]
    assert RAN == ["note", "note"]


def test_a_step_that_is_not_there_is_refused_with_those_that_are(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(orders(fixed=False))
    tenure_dc.advance(seconds=30)
    with pytest.raises((ConfigurationError, NodeRefusedError), match="it has fetch, count, send"):
        job.retry(from_step="nowhere")


def undone() -> None:
    RAN.append("undone")


def test_what_was_compensated_is_no_place_to_begin_from(tenure_dc: TestDatacenter) -> None:
    @workflow(max_attempts=1)
    def buys(ctx: Any) -> None:
        ctx.step("pay", work, "pay")
        ctx.compensate(undone)
        ctx.step("ship", work, "ship")
        raise Permanent("no")

    job = tenure_dc.submit(buys)
    tenure_dc.advance(seconds=30)
    assert RAN == ["pay", "ship", "undone"]
    with pytest.raises((ConfigurationError, NodeRefusedError), match="have taken back what its steps did"):
        job.retry(from_step="ship")


def test_a_fork_that_is_killed_and_changes_its_leader_keeps_the_steps_that_it_took_over(
    tenure_dc: TestDatacenter,
) -> None:
    tenure_dc.submit(orders(fixed=False), job_id="first")
    tenure_dc.advance(seconds=30)

    @workflow(name="orders", max_attempts=3)
    def slow(ctx: Any) -> list[str]:
        done = [ctx.step("fetch", work, "fetch"), ctx.step("count", work, "count")]
        ctx.sleep(60)
        return [*done, ctx.step("send", work, "send")]

    tenure_dc.deploy(slow)
    tenure_dc.advance(seconds=10)
    again = tenure_dc.get(tenure_dc.retry("first", from_step="count"))
    tenure_dc.advance(seconds=20)
    tenure_dc.crash_worker()
    tenure_dc.crash_manager()
    tenure_dc.advance(minutes=30)
    assert again.state == "completed"
    assert RAN == ["fetch", "count", "send", "count", "send"]


def test_the_steps_of_a_job_that_did_not_complete_are_kept_for_a_week_and_those_of_another_not_at_all() -> None:
    clock = ManualClock()
    engine = MemoryEngine(clock)
    store = engine.store("suspended")
    steps = EndedSteps(engine, calls_for(engine))
    for key in ("failed/w", "completed/w"):
        store.put(key, b"steps", fence=Fence(3, 1))
    asyncio.run(steps.let_go(["failed/w", "never/w"], wanted=True))
    asyncio.run(steps.let_go(["completed/w"], wanted=False))
    clock.advance(7 * 86_400 - 60)
    assert store.list() == ["failed/w"]
    clock.advance(120)
    assert store.list() == []


def test_steps_that_the_store_damaged_refuse_that_fork_alone(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(orders(fixed=False))
    tenure_dc.advance(seconds=30)
    tenure_dc.engine.store("suspended").put(f"{job.id}/orders", b"\xc1 no steps")
    with pytest.raises((EngineCorruptError, NodeRefusedError), match="cannot be read"):
        job.retry(from_step="count")

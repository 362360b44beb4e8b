"""What the first release left in an engine is found whole, and a manager goes on from it. Recorded on each engine, opened on the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from tests.formats.restoring import Restored

from tenure.clock import SystemClock
from tenure.engines import Engine, Mailbox
from tenure.engines.aio import calling
from tenure.engines.contracts import Fence, Message
from tenure.errors import KeyRefusedError, StaleFenceError
from tenure.jobs.queues import SetQueue
from tenure.nodes.gate.leader import ARCHIVE as GATE_ARCHIVE
from tenure.nodes.gate.leader import GateRules
from tenure.nodes.ledger import NodeLedger
from tenure.nodes.loop_keeper import ProductFailures
from tenure.nodes.manager.leader import JobLeadership
from tenure.nodes.manager.ledger import RESULTS, DatacenterRules
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.process import Environment
from tenure.randomness import Random, new_id
from tenure.work.delivery import WorkItem, WorkResult

WITHIN_S = 60.0


@contextmanager
def opened(restored: Restored) -> Iterator[Engine]:
    with Engine.open(restored.url) as engine:
        yield engine


async def folded(url: str, rules: Any) -> Any:
    """The state that a node of today reads from the journal."""
    engine = Engine.open(url)
    async with calling(engine) as calls:
        environment = Environment(engine, calls, SystemClock(), Random(1), new_id)
        failures = ProductFailures(SystemClock(), environment.log)
        ledger: NodeLedger[Any, Any] = NodeLedger(rules, environment, failures=failures, engine_now=engine.now)
        await ledger.load()
        return whole(ledger.book.state)


def whole(value: Any) -> Any:
    """The value as plain data with every field, also those that an encoding leaves out because they have their default."""
    if isinstance(value, msgspec.Struct):
        stored = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {name: getattr(value, field) for name, field in stored}
        return {name: whole(one) for name, one in fields.items() if one is not msgspec.UNSET}
    if isinstance(value, dict):
        return {key: whole(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [whole(one) for one in value]
    return msgspec.to_builtins(value)


def lost(recorded: Any, found: Any, path: str = "") -> list[str]:
    """Where `found` differs from what was recorded. More fields than then are no loss."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        return [
            where
            for name, value in recorded.items()
            for where in (
                lost(value, found[name], f"{path}/{name}") if name in found else [f"{path}/{name} is missing"]
            )
        ]
    if isinstance(recorded, list) and isinstance(found, (list, tuple)) and len(recorded) == len(found):
        pairs = enumerate(zip(recorded, found, strict=True))
        return [where for place, (one, other) in pairs for where in lost(one, other, f"{path}/{place}")]
    return [] if recorded == found else [f"{path} was {recorded!r}, and is {found!r}"]


def test_a_manager_reads_every_job_schedule_worker_and_queue(restored: Restored) -> None:
    found = asyncio.run(folded(restored.url, DatacenterRules()))
    recorded = restored.datacenter["state"]
    assert lost(recorded, found) == []
    assert {part: list(found[part]) for part in recorded if isinstance(recorded[part], dict)} == {
        part: list(value) for part, value in recorded.items() if isinstance(value, dict)
    }


def test_a_gate_reads_every_job(restored: Restored) -> None:
    found = asyncio.run(folded(restored.url, GateRules()))
    recorded = restored.gate["state"]
    assert lost(recorded, found) == []
    assert list(found["jobs"]) == list(recorded["jobs"])


def test_every_message_is_delivered_with_its_key_fence_and_checkpoint(restored: Restored) -> None:
    wanted = restored.datacenter["claimable"]
    with opened(restored) as engine:
        for name in dict.fromkeys(one["mailbox"] for one in wanted):
            here = [one for one in wanted if one["mailbox"] == name]
            found = everything(engine.mailbox(name, Any, Any))
            keyed = {m.key: m for m in found if m.key}
            assert set(keyed) == {one["key"] for one in here if one["key"]}
            for one in here:
                if one["key"] is None:
                    assert one["body"] in [m.body for m in found if m.key is None]
                else:
                    check_delivery(keyed[one["key"]], one)
            assert len(found) == len(here)


def everything(mailbox: Mailbox[Any, Any]) -> list[Message[Any, Any]]:
    """In several batches: a message whose claim ran out comes alone (0210)."""
    found: list[Message[Any, Any]] = []
    while batch := mailbox.receive(100, 30):
        found += batch
    return found


def check_delivery(message: Any, wanted: dict[str, Any]) -> None:
    assert (message.generation, message.delivery_count) == (wanted["generation"], wanted["delivery"])
    assert (message.checkpoint or b"").decode() == wanted["checkpoint"]
    if "body" in wanted:
        assert message.body == wanted["body"]
        return
    item = msgspec.convert(message.body, WorkItem)
    assert (f"{item.job_id}/{item.workflow_id}", item.attempt) == (message.key, message.generation)
    assert item.args == {"path": "a.mov", "n": [1, 2.5, None]}
    assert item.managed


def test_a_key_of_a_live_message_refuses_the_same_generation(restored: Restored) -> None:
    with opened(restored) as engine:
        for one in restored.datacenter["claimable"]:
            if one["key"]:
                with pytest.raises(KeyRefusedError):
                    engine.mailbox(one["mailbox"], Any, Any).send({}, key=one["key"], generation=one["generation"])


def test_results_and_failures_wait_for_a_leader(restored: Restored) -> None:
    with opened(restored) as engine:
        found = engine.mailbox(RESULTS, WorkResult, WorkItem).receive(100, 30)
        results = {m.body.job_id: m.body.value for m in found if m.failure is None}
        assert results == {"b-waiting": {"result": "waits for the leader"}}
        assert [m.failure.key for m in found if m.failure is not None] == ["b-poison/encode"]


def test_every_dead_letter_is_found_and_can_be_replayed(restored: Restored) -> None:
    with opened(restored) as engine:
        for name, wanted in restored.datacenter["dead_letters"].items():
            letters = engine.mailbox(name, Any, Any).dead_letters
            found = letters.list()
            assert len(found) == len(wanted)
            for letter, one in zip(found, wanted, strict=True):
                seen = {"key": letter.key, "cause": letter.cause, "checkpoint": (letter.checkpoint or b"").decode()}
                assert {**seen, "reason": letter.reason} == {**seen, "reason": letter.reason, **one}
                assert letters.replay(letter.id)
                (again,) = engine.mailbox(name, Any, Any).receive(1, 30)
                assert again.key == one["key"]


def test_stored_values_and_their_fences_are_kept(restored: Restored) -> None:
    with opened(restored) as engine:
        for name, sizes in restored.datacenter["stored"].items():
            store = engine.store(name)
            # Results are kept for a week by the engine itself: an old fixture may have lost them by then.
            if name != "results":
                assert {key: len(store.get(key) or b"") for key in store.list()} == sizes
        logs = engine.store("logs")
        assert logs.get("plain") == bytes(range(256))
        with pytest.raises(StaleFenceError):
            logs.put("a-done/encode/1", b"stale", fence=Fence(1, 1))
        assert engine.store(GATE_ARCHIVE).list() == restored.gate["stored"][GATE_ARCHIVE]


def test_a_manager_starts_on_it_and_completes_the_jobs(restored: Restored) -> None:
    asyncio.run(completes(restored))


async def completes(restored: Restored) -> None:
    engine = Engine.open(restored.url)
    async with calling(engine) as calls:
        environment = Environment(engine, calls, SystemClock(), Random(1), new_id)
        manager = Manager("m-new", "127.0.0.1:8470", environment, ManagerSetup(term_s=5.0))
        leadership = manager.leadership
        tasks = [asyncio.create_task(manager.run()), asyncio.create_task(work(engine, calls, restored))]
        try:
            async with asyncio.timeout(WITHIN_S):
                live, paused = restored.datacenter["live"], restored.datacenter["paused"]
                await until(tasks, lambda: leadership.leader is not None)
                failing = restored.datacenter["failing"]
                await until(tasks, lambda: ended(leadership, live + failing))
                assert {standing(leadership, job) for job in paused} == {"pending"}
                for queue in paused:
                    await leadership.commit(SetQueue(queue=queue, paused=False))
                await until(tasks, lambda: ended(leadership, paused))
            assert {job: standing(leadership, job) for job in live + paused} == dict.fromkeys(
                live + paused, "completed"
            )
            assert {standing(leadership, job) for job in failing} == {"failed"}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def until(tasks: list[asyncio.Task[None]], holds: Any) -> None:
    while not holds():
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.05)


def standing(leadership: JobLeadership, job_id: str) -> str:
    book = leadership.ledger.book
    info = book.jobs.get(job_id)
    return str(info.state if info is not None else book.state.archive[job_id].state)


def ended(leadership: JobLeadership, jobs: list[str]) -> bool:
    return not {standing(leadership, job) for job in jobs} & {"pending", "running"}


async def work(engine: Engine, calls: Any, restored: Restored) -> None:
    """Serves every mailbox of the fixture as a worker would: claims, and settles with a result."""
    names = dict.fromkeys(one["mailbox"] for one in restored.datacenter["claimable"] if one["mailbox"] != "notes")
    names |= dict.fromkeys(f"{p}-{queue}.p0" for p in "ab" for queue in ("paused", "poison"))
    boxes = [engine.mailbox(name, WorkItem, WorkResult) for name in names]
    while True:
        for box in boxes:
            for message in await calls.run(box.receive, 10, 30.0, 0.0):
                item = message.body
                result = WorkResult(
                    job_id=item.job_id,
                    workflow_id=item.workflow_id,
                    workflow=item.workflow,
                    attempt=item.attempt,
                    fence=tuple(message.fence),
                    worker="w-new",
                    result=msgspec.Raw(b'"finished"'),
                )
                await calls.run(message.settle, result)
        await asyncio.sleep(0.05)

"""A leader's verdict at the slots of a real supervisor: none, one at a time, all; and an eviction that ends with a new incarnation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.process.slots.conftest import APP, PATIENCE_S

from tenure.clock import SystemClock
from tenure.engines import Engine
from tenure.nodes.worker.worker_process import SupervisedSlots
from tenure.work.envelope import WorkItem, WorkResult
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.supervisor import Supervisor


@contextmanager
def served(url: str, settings: SlotSettings) -> Iterator[SupervisedSlots]:
    def make(on_change: Callable[[], None]) -> Supervisor:
        return Supervisor([str(APP)], url, settings, say=lambda text: None, worker="anna", on_change=on_change)

    slots = SupervisedSlots(make, clock=SystemClock())
    running = threading.Thread(target=slots.run)
    running.start()
    try:
        assert slots.supervisor.ready.wait(PATIENCE_S)
        yield slots
    finally:
        slots.drain()
        slots.drain()
        running.join(PATIENCE_S)
        assert not running.is_alive()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.mark.slow
def test_verdicts_close_and_open_the_intake_at_once_and_an_eviction_ends_with_somebody_new(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    settings = SlotSettings(queue="work", more_queues=("low",), slots=2, grace_s=0.5, lease_s=30, claim_s=5)
    with Engine.open(url) as engine, served(url, settings) as slots:
        work, low = (engine.mailbox(name, WorkItem, WorkResult) for name in ("work", "low"))
        replies = engine.mailbox("replies", WorkResult)
        rings: list[int] = []
        slots.listen(lambda: rings.append(1))
        running = lambda: len(slots.view().attempts)  # noqa: E731

        def send(mailbox: object, job: str, seconds: float) -> None:
            item = WorkItem(
                workflow="beat_for", args={"seconds": seconds}, job_id=job, workflow_id=job, attempt=1, managed=True
            )
            mailbox.send(item, reply_to="replies")  # type: ignore[attr-defined]

        slots.allow(0)
        time.sleep(0.5)  # the slots that wait for work are woken, and wait for leave instead
        send(work, "first", 60)
        send(low, "second", 60)
        time.sleep(1.0)
        assert (running(), work.depth().ready, low.depth().ready) == (0, 1, 1)

        slots.allow(1)
        until(lambda: running() == 1)
        time.sleep(1.0)
        assert (running(), slots.view().free) == (1, 1)
        slots.allow(None)
        until(lambda: running() == 2)
        assert {one.job_id for one in slots.view().attempts} == {"first", "second"}
        assert rings

        before = slots.incarnation
        slots.evict("its deadline passed")
        until(lambda: slots.incarnation != before and slots.supervisor.ready.is_set())
        # What it had goes back uncounted, and the new incarnation takes nothing until it is allowed to.
        until(lambda: (work.depth().ready, low.depth().ready) == (1, 1))
        time.sleep(0.5)
        assert (running(), slots.view().completed, slots.view().steps) == (0, 0, 0)
        for mailbox in (work, low):
            mailbox.purge()
        slots.allow(None)
        send(low, "third", 0.01)
        [reply] = replies.receive(1, 60, 20) or replies.receive(1, 60, 20)
        assert (reply.body.job_id, reply.body.worker, reply.body.ok) == ("third", "anna", True)
        until(lambda: slots.view().completed == 1)

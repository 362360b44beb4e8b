"""A leader's verdict at the slots of a real supervisor: none, one at a time, all; and an eviction that ends with a new incarnation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.process.slots.conftest import APP

from tenure.clock import SystemClock
from tenure.engines import Engine, Mailbox
from tenure.engines.contracts import Message
from tenure.nodes.worker.supervised_slots import SupervisedSlots
from tenure.work.delivery import WorkItem, WorkResult
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.supervisor import Supervisor


@contextmanager
def served(url: str, settings: SlotSettings) -> Iterator[SupervisedSlots]:
    def make(on_change: Callable[[], None]) -> Supervisor:
        return Supervisor([str(APP)], url, settings, worker="anna", on_change=on_change)

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

        def send(mailbox: Mailbox[WorkItem, WorkResult], job: str, seconds: float) -> None:
            item = WorkItem(
                workflow="beat_for", args={"seconds": seconds}, job_id=job, workflow_id=job, attempt=1, managed=True
            )
            mailbox.send(item, reply_to="replies")

        def left_for_others(*mailboxes: Mailbox[WorkItem, WorkResult]) -> list[Message[WorkItem, WorkResult]]:
            """Claims what the slots leave lying. A slot that took work at the moment of the verdict gives it back."""
            return [one for mailbox in mailboxes for one in mailbox.receive(1, 60, PATIENCE_S)]

        slots.allow(0)
        send(work, "first", 600)
        send(low, "second", 600)
        left = left_for_others(work, low)
        assert (len(left), running()) == (2, 0)
        for message in left:
            message.release()

        slots.allow(1)
        wait_until(lambda: running() == 1)
        [left_one] = left_for_others(low if slots.view().attempts[0].job_id == "first" else work)
        assert (running(), slots.view().free) == (1, 1)
        left_one.release()
        slots.allow(None)
        wait_until(lambda: running() == 2)
        assert {one.job_id for one in slots.view().attempts} == {"first", "second"}
        wait_until(lambda: bool(rings))

        before = slots.incarnation
        slots.evict("its deadline passed")
        wait_until(lambda: slots.incarnation != before and slots.supervisor.ready.is_set())
        # What it had goes back uncounted, and the new incarnation takes nothing until it is allowed to.
        left = left_for_others(work, low)
        assert [message.attempt for message in left] == [1, 1]
        assert (running(), slots.view().completed, slots.view().steps) == (0, 0, 0)
        for message in left:
            message.acknowledge()
        slots.allow(None)
        send(low, "third", 0.01)
        [reply] = replies.receive(1, 60, PATIENCE_S)
        assert (reply.body.job_id, reply.body.worker, reply.body.ok) == ("third", "anna", True)
        wait_until(lambda: slots.view().completed == 1)

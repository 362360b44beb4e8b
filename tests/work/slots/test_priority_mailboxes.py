"""Claiming from several mailboxes: order, fairness, and who wakes whom. On the memory engine, with real threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tenure.engines import MemoryEngine
from tenure.work.envelope import WorkItem, WorkResult
from tenure.work.slots.priority_mailboxes import FAIR_EVERY, PriorityMailboxes


class Queues:
    """Three mailboxes, highest priority first, and the `PriorityMailboxes` of a slot over them."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.mailboxes = {name: self.engine.mailbox(name, WorkItem, WorkResult) for name in ("q.p9", "q.p5", "q.p0")}
        self.claims = PriorityMailboxes(list(self.mailboxes.items()))

    def send(self, queue: str, count: int = 1) -> None:
        for _ in range(count):
            self.mailboxes[queue].send(WorkItem(workflow="w"))

    def claim(self, wait_s: float = 0.0) -> str:
        claim = self.claims.claim(60, wait_s)
        return claim.queue if claim else ""


@pytest.fixture
def queues() -> Iterator[Queues]:
    queues = Queues()
    yield queues
    queues.claims.close()
    queues.engine.close()


def test_the_highest_priority_that_has_work_goes_first(queues: Queues) -> None:
    for queue in ("q.p0", "q.p5", "q.p9"):
        queues.send(queue)
    assert [queues.claim() for _ in range(4)] == ["q.p9", "q.p5", "q.p0", ""]


def test_a_busy_high_priority_leaves_the_others_an_eighth(queues: Queues) -> None:
    queues.send("q.p9", 100)
    queues.send("q.p0", 100)
    claimed = [queues.claim() for _ in range(10 * FAIR_EVERY)]
    assert claimed.count("q.p0") == 10
    assert claimed.count("q.p9") == 70


@pytest.mark.parametrize("queue", ["q.p9", "q.p5", "q.p0"])
def test_work_in_any_of_them_ends_the_wait_at_once(queues: Queues, queue: str) -> None:
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(queues.claim(wait_s=50)))
    waiting.start()
    time.sleep(0.05)
    queues.send(queue)
    waiting.join(30)
    assert found == [queue]


def test_two_that_have_work_at_one_moment_give_one_claim_and_nothing_is_lost(queues: Queues) -> None:
    claimed: list[str] = []

    def take() -> None:
        while not (found := queues.claim(wait_s=50)):
            continue  # a wake that came late ends the next wait
        claimed.append(found)

    for _ in range(50):
        waiting = threading.Thread(target=take)
        waiting.start()
        queues.send("q.p0")
        queues.send("q.p9")
        waiting.join(30)
    assert len(claimed) == 50
    left = [message for mailbox in queues.mailboxes.values() for message in mailbox.receive(100, 60)]
    assert [message.delivery_count for message in left] == [1] * 50  # what lost a race went back uncounted


def test_a_wake_ends_the_wait(queues: Queues) -> None:
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(queues.claim(wait_s=50)))
    waiting.start()
    time.sleep(0.05)
    queues.claims.wake()
    waiting.join(30)
    assert found == [""]

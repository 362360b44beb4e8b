"""The mailboxes of a slot, in their order, and the work that a worker leaves to others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.memory import kept_bytes

from tenure.engines import MemoryEngine
from tenure.work.envelope import WorkItem, WorkResult
from tenure.work.slots.claims import FAIR_EVERY, MOST_PAUSE_S, STRANGER_PATIENCE_S, ClaimFilter, PriorityMailboxes


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


def item(*excluded: str, attempt: int = 2) -> WorkItem:
    return WorkItem(workflow="w", job_id="j", workflow_id="w", attempt=attempt, excluded=excluded)


def test_a_name_that_no_worker_can_have_is_not_left_to_others() -> None:
    claim_filter = ClaimFilter("w", knows=lambda *named: False)
    assert claim_filter.declines(WorkItem(workflow="nobody"), 3, 0.0)
    assert not claim_filter.declines(WorkItem(workflow="w" * 9_000), 3, 0.0)


def test_a_worker_leaves_work_that_excludes_it_to_others() -> None:
    claim_filter = ClaimFilter("w-1")
    assert claim_filter.declines(item("w-1", "w-3"), peers=1, now=0)
    assert not claim_filter.declines(item("w-3"), peers=1, now=0)
    assert not claim_filter.declines(item(), peers=1, now=0)


def test_a_worker_that_is_alone_takes_it() -> None:
    assert not ClaimFilter("w-1").declines(item("w-1"), peers=0, now=0)


def test_work_of_a_version_that_is_not_here_is_left_to_those_who_have_it() -> None:
    def knows(workflow: str, version: str | None) -> bool:
        return (workflow, version) == ("encode", "2")

    old = WorkItem(workflow="encode", version="1", job_id="j", workflow_id="w", attempt=1)
    new = WorkItem(workflow="encode", version="2", job_id="k", workflow_id="w", attempt=1)
    claim_filter = ClaimFilter("w-1", knows=knows, unknown_patience_s=300)
    assert claim_filter.declines(old, peers=1, now=0)
    assert not claim_filter.declines(new, peers=1, now=0)
    assert claim_filter.declines(old, peers=1, now=299)
    # Then it is a clear failure, and nobody waits for ever; alone, it is one at once.
    assert not claim_filter.declines(old, peers=1, now=300)
    assert not claim_filter.declines(old, peers=0, now=1)


def test_a_worker_that_has_just_started_waits_to_hear_whether_there_are_others() -> None:
    claim_filter = ClaimFilter("w-1", knows=lambda workflow, version: False)
    assert claim_filter.declines(item(), peers=None, now=0)
    assert not claim_filter.declines(item(), peers=0, now=1)
    assert not claim_filter.declines(item(), peers=None, now=STRANGER_PATIENCE_S)
    # What it knows it takes: an exclude list counts only where others are known.
    assert not ClaimFilter("w-1").declines(item("w-1"), peers=None, now=0)


def test_nobody_declines_the_same_attempt_for_ever() -> None:
    claim_filter = ClaimFilter("w-1", patience_s=30)
    assert claim_filter.declines(item("w-1"), 5, 100.0)
    assert claim_filter.declines(item("w-1"), 5, 129.9)
    assert not claim_filter.declines(item("w-1"), 5, 130.0)
    assert claim_filter.declines(item("w-1", attempt=3), 5, 130.0)  # another attempt is another matter


def test_what_is_given_back_again_and_again_is_left_alone_for_longer() -> None:
    claim_filter = ClaimFilter("w-1")
    pauses = []
    for n in range(6):
        assert claim_filter.declines(item("w-1"), 5, n)
        pauses.append(claim_filter.pause_s)
    assert pauses == sorted(pauses)
    assert pauses[-1] == MOST_PAUSE_S
    assert not claim_filter.declines(item(), 5, 10)
    assert claim_filter.pause_s < pauses[0]


def test_what_it_remembers_is_bounded() -> None:
    def after(declined: int) -> Callable[[], ClaimFilter]:
        def fill() -> ClaimFilter:
            claim_filter = ClaimFilter("w-1")
            for n in range(declined):
                claim_filter.declines(item("w-1", attempt=n), 1, 0)
            return claim_filter

        return fill

    assert kept_bytes(after(5_000)) < 1.5 * kept_bytes(after(1_000))

"""A leader names the delivery that a worker shall stop: one that the worker has claimed since is not meant."""

from __future__ import annotations

from tenure.beat.record import Occupant
from tenure.control.messages.workers import AttemptReport
from tenure.engines.contracts import Fence, Ticket


def test_a_wish_to_stop_an_attempt_names_the_delivery_that_was_reported() -> None:
    report = AttemptReport(job_id="j", workflow="w", attempt=1, delivery=2, steps=0, generation=3)
    wish = report.unwanted("delivery 2 was replaced by delivery 3")
    assert (wish.job_id, wish.workflow, wish.attempt, wish.generation, wish.delivery) == ("j", "w", 1, 3, 2)


def test_the_next_delivery_of_the_same_attempt_is_not_meant() -> None:
    """A worker that had slept claimed its own work again, and stopped that for good when it was told to stop what it had lost."""
    ticket = Ticket(id="m", receipt_handle="r", delivery_count=3, enqueued_at=0.0, lease_until=9.0, generation=3)
    now = Occupant(ticket=ticket, job="j", workflow="w", workflow_id="w", attempt=1, queue="q", stall_s=30.0)
    assert not now.is_of("j", "w", 1, Fence(3, 2))
    assert not now.is_of("j", "w", 1, Fence(2, 3))
    assert now.is_of("j", "w", 1, Fence(3, 3))
    assert now.is_of("j", "w", 1)  # as a leader of an earlier release asks
    assert not now.is_of("j", "w", 2)

"""What becomes of an attempt's message, on a plain queue and under a leader; and when the engine is away meanwhile."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest

from tenure.backoff import Retry
from tenure.clock import ManualClock
from tenure.engines import MemoryEngine
from tenure.engines.contracts import Message
from tenure.errors import EngineUnavailableError
from tenure.logs import NodeLog, log_to
from tenure.work.attempt_steps import run_steps
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.settler import Settler


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.work = self.engine.mailbox("work", WorkItem, WorkResult)
        self.replies = self.engine.mailbox("replies", WorkResult)
        self.said: list[str] = []
        self.settler = Settler(self.engine, clock=self.clock, random=Random(1), log=log_to(self.said.append))

    def take(self, **options: Any) -> Message[WorkItem, WorkResult]:
        self.work.send(WorkItem(workflow="w", job_id="j"), **options)
        return self.work.receive(1, 60, provisional=True)[0]

    def settle(self, message: Any, failure: WorkFailure | None = None, **options: Any) -> str:
        result = WorkResult(
            job_id="j", workflow_id="", workflow="w", attempt=1, fence=message.fence, worker="w-1", failure=failure
        )
        settle = partial(self.settler.settle, message, **{"managed": False, "retry": Retry(max_attempts=2), **options})
        return run_steps(self.settler.until_settled(settle, result, lambda: message.lease_until), self.clock)


def failure(cause: Cause = Cause.EXCEPTION, **evidence: str) -> WorkFailure:
    return WorkFailure(cause=cause, reason="because", evidence=evidence)


def test_a_result_is_a_reply_where_one_was_asked_for_and_an_acknowledgement_otherwise() -> None:
    desk = Desk()
    assert desk.settle(desk.take(reply_to="replies")) == "done"
    assert desk.settle(desk.take()) == "done"
    assert desk.work.approximate_count() == 0
    assert desk.replies.approximate_count() == 1


def test_a_plain_queue_tries_again_after_a_backoff_and_then_gives_up() -> None:
    desk = Desk()
    message = desk.take(reply_to="replies")
    assert desk.settle(message, failure(), retry=Retry(delay=5, jitter=0)).startswith("retried in 5.0 s")
    assert desk.work.receive(1, 60) == []
    desk.clock.advance(5)
    assert desk.settle(desk.work.receive(1, 60)[0], failure()) == "dead letter"
    [news] = desk.replies.receive(1, 60)
    assert news.failure is not None
    assert "exception: because" in news.failure.reason


@pytest.mark.parametrize("cause", [Cause.UNKNOWN_WORKFLOW, Cause.BAD_ARGUMENTS, Cause.BAD_RESULT])
def test_what_would_fail_the_same_way_again_is_not_tried_again(cause: Cause) -> None:
    desk = Desk()
    assert desk.settle(desk.take(), failure(cause)) == "dead letter"


def test_under_a_leader_every_failure_is_a_reply() -> None:
    desk = Desk()
    assert desk.settle(desk.take(reply_to="replies"), failure(Cause.STALL), managed=True) == "failed"
    [reply] = desk.replies.receive(1, 60)
    assert reply.body.failure is not None
    assert reply.body.failure.cause is Cause.STALL


def test_work_that_is_handed_over_goes_back_and_costs_no_attempt() -> None:
    desk = Desk()
    message = desk.take()
    message.extend_visibility(60)
    assert desk.settle(message, failure(Cause.DRAINED)) == "handed over"
    assert desk.work.receive(1, 60)[0].attempt == 1


def test_an_outcome_whose_lease_is_lost_is_refused_and_said() -> None:
    desk = Desk()
    message = desk.take()
    desk.clock.advance(60)
    assert desk.settle(message).startswith("refused")
    assert "was refused" in desk.said[0]


def test_evidence_is_kept_beside_the_job() -> None:
    desk = Desk()
    desk.settle(desk.take(), failure(Cause.STALL, stacks="in main"))
    [key] = desk.engine.store("evidence").list()
    assert key == "j//1"
    assert b"in main" in (desk.engine.store("evidence").get(key) or b"")


def test_an_engine_that_is_away_is_tried_again_until_the_lease_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    message = desk.take()
    tries = 0

    def away() -> None:
        nonlocal tries
        tries += 1
        raise EngineUnavailableError("away")

    monkeypatch.setattr(message, "acknowledge", away)
    monkeypatch.setattr(desk.clock, "sleep", desk.clock.advance)
    assert desk.settle(message).startswith("not settled")
    assert tries > 10
    assert desk.clock.boottime() < message.lease_until


def test_what_fails_is_said_ever_more_rarely_and_always_counted() -> None:
    said: list[str] = []
    errors = IsolatedErrors(log_to(said.append))
    for _ in range(100):
        with errors.isolate("looking at record 3"):
            raise ArithmeticError("injected")
    with errors.isolate("looking at record 4"):
        raise ArithmeticError("another")
    assert errors.count == 101
    assert len(said) == 8  # 1, 2, 4, 8, 16, 32, 64; and the other one
    assert "looking at record 3 failed, time 64" in said[6]
    assert "ArithmeticError" in said[7]


def test_what_goes_well_is_not_counted_and_what_ends_a_process_is_not_held_up() -> None:
    errors = IsolatedErrors(NodeLog("worker"))
    with errors.isolate("nothing"):
        pass
    with pytest.raises(KeyboardInterrupt), errors.isolate("an interrupt"):
        raise KeyboardInterrupt
    assert errors.count == 0

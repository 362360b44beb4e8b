"""What a slot makes of a message before any code of the user's runs, and what it makes of whatever that code raises."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tenure import workflow
from tenure.beat.board import BeatBoard
from tenure.beat.record import Phase
from tenure.clock import ManualClock
from tenure.engines import MemoryEngine
from tenure.engines.contracts import Message
from tenure.errors import BoardError
from tenure.logs import NodeLog
from tenure.work.attempt import Attempt
from tenure.work.attempt_failures import failure_of_exception, failure_of_tenure
from tenure.work.delivery import MAX_REASON_CHARS, Cause, EngineDelivery, WorkFailure, WorkItem, WorkResult
from tenure.work.registry import Registry
from tenure.work.settler import Settler

STARTED: list[int] = []


@workflow(max_attempts=3)
def poison(ctx: Any) -> str:
    STARTED.append(ctx.attempt)
    return "done"


class Picky(msgspec.Struct):
    kind: str

    def __post_init__(self) -> None:
        raise KeyError(self.kind)


@workflow
def picky(ctx: Any, given: Picky) -> None:
    raise AssertionError


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.work = self.engine.mailbox("work", WorkItem, WorkResult)
        self.record = BeatBoard.private(1).records[0]

    def deliver(self, item: WorkItem, times: int) -> Message[WorkItem, WorkResult]:
        """The delivery of a message whose earlier ones were lost with their holders."""
        self.work.send(item)
        for _ in range(times - 1):
            assert self.work.receive(1, 10)
            self.clock.advance(11)
        return self.work.receive(1, 10)[0]

    def attempt(self, message: Message[WorkItem, WorkResult]) -> Attempt:
        settler = Settler(self.engine, clock=self.clock, random=Random(1), log=NodeLog("worker"))
        return Attempt(
            EngineDelivery(message, "work", settler, self.clock),
            self.record,
            registry=Registry([poison, picky]),
            clock=self.clock,
            stall_s=60,
            worker="w-1",
        )


@pytest.mark.parametrize(
    ("item", "limit"),
    [
        (WorkItem(workflow="poison"), 3),
        (WorkItem(workflow="poison", managed=True, attempt=4, tries=2), 2),
        (WorkItem(workflow="poison", managed=True, attempt=1), 3),  # a leader of the first release does not say
    ],
    ids=["plain", "managed", "older leader"],
)
def test_work_is_started_up_to_its_limit_and_a_delivery_beyond_it_is_not(item: WorkItem, limit: int) -> None:
    last = Desk()
    attempt = last.attempt(last.deliver(item, limit))
    assert attempt.prepare() is None
    assert last.record.read().phase is Phase.RUNNING

    beyond = Desk()
    attempt = beyond.attempt(beyond.deliver(item, limit + 1))
    failure = attempt.prepare()
    assert failure is not None
    assert failure.cause is Cause.WORKER_DIED
    assert f"its worker died {limit} times while it ran" in failure.reason
    assert failure.evidence == {
        "deliveries": str(limit + 1),
        "of which uncounted": "0",
        "attempts allowed": str(limit),
    }
    assert beyond.record.read().phase is Phase.CLAIMED
    assert attempt.result(failure).redelivered == (limit if item.managed else 0)


def test_deliveries_that_were_handed_over_do_not_count() -> None:
    desk = Desk()
    desk.work.send(WorkItem(workflow="poison"))
    for _ in range(5):
        [message] = desk.work.receive(1, 10)
        message.extend_visibility(10)
        message.release()
    assert desk.attempt(desk.work.receive(1, 10)[0]).prepare() is None


def test_the_board_says_running_before_the_users_types_see_the_arguments() -> None:
    desk = Desk()
    attempt = desk.attempt(desk.deliver(WorkItem(workflow="picky", args={"given": {"kind": "k"}}), 1))
    failure = attempt.prepare()
    assert failure is not None
    assert (failure.cause, desk.record.read().phase) == (Cause.BAD_ARGUMENTS, Phase.RUNNING)


def test_a_name_that_does_not_fit_is_a_bad_message_and_leaves_the_record_empty() -> None:
    desk = Desk()
    message = desk.deliver(WorkItem(workflow="w" * 9_000), 1)
    with pytest.raises(BoardError, match="do not fit") as refused:
        desk.attempt(message)
    assert failure_of_tenure(refused.value).cause is Cause.BAD_MESSAGE
    assert desk.record.read().phase is Phase.EMPTY


def test_an_error_of_our_own_is_internal_and_has_its_traceback() -> None:
    try:
        raise ZeroDivisionError("ours")
    except ZeroDivisionError as error:
        failure = failure_of_tenure(error)
    assert (failure.cause, failure.reason) == (Cause.INTERNAL, "Tenure failed on it: ZeroDivisionError: ours")
    assert "in test_an_error_of_our_own" in failure.evidence["traceback"]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Mute(), "Mute, which cannot be written as text"),
        (ValueError("\udc80"), "ValueError: ?"),
        (SystemExit(Mute()), "sys.exit('Mute')"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_whatever_was_raised_can_be_written(error: BaseException, said: str) -> None:
    failure = failure_of_exception(error)
    assert said in failure.reason
    assert msgspec.json.decode(msgspec.json.encode(failure), type=WorkFailure) == failure


def test_a_long_reason_is_cut_once_and_says_how_long_it_was() -> None:
    failure = WorkFailure(cause=Cause.EXCEPTION, reason="x" * 2_000_000, evidence={"traceback": "y" * 100_000})
    assert len(failure.reason) == MAX_REASON_CHARS
    assert failure.reason.endswith("(2,000,000 characters)")
    assert msgspec.json.decode(msgspec.json.encode(failure), type=WorkFailure) == failure

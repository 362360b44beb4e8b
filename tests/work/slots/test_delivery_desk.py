"""The desk of a supervisor over a real engine, with slots that run in threads of this test."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.changed import changed

from tenure.backoff import Retry
from tenure.clock import SystemClock
from tenure.engines import Engine, Outgoing
from tenure.engines.contracts import Exchanged
from tenure.errors import EngineUnavailableError
from tenure.logs import log_to
from tenure.randomness import new_id
from tenure.work import mailbox_for
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.log_lines import FileLines
from tenure.work.slots.claim_page import ClaimPage
from tenure.work.slots.delivery_calls import DeliveryCalls
from tenure.work.slots.delivery_desk import DeliveryDesk
from tenure.work.slots.engine_exchange import EngineExchange, ExchangePlan
from tenure.work.slots.frames import (
    FrameChannel,
    HandOver,
    SlotAnswer,
    SlotFrame,
    SlotRequest,
    WorkDeclined,
    WorkFinished,
)
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.slot_channel import KEEP

PATIENCE_S = 60.0


class ThreadSlot:
    """A slot in a thread: `work` returns the frames that answer an item."""

    def __init__(self, desk: DeliveryDesk, page: ClaimPage, work: Callable[[HandOver], list[SlotFrame]]) -> None:
        ours, theirs = socket.socketpair()
        self.desk, self.page, self.work = desk, page, work
        self.channel, self.theirs = FrameChannel(ours), FrameChannel(theirs)
        self.answers: list[SlotAnswer] = []
        self.handed: list[HandOver] = []
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in (self._listen, self._hear)]
        for thread in self._threads:
            thread.start()
        desk.add_seat(0, 1, self.channel, is_open=True)

    def close(self) -> None:
        """The page may be closed after this: no thread looks at it any more."""
        for end in (self.channel.socket, self.theirs.socket):
            end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self.channel.close()
        self.theirs.close()

    def _listen(self) -> None:
        while self.theirs.open:
            for frame in self.theirs.read():
                if isinstance(frame, SlotAnswer):
                    self.answers.append(frame)
                elif isinstance(frame, HandOver):
                    self.handed.append(frame)
                    may = self.page.start(frame.entry, frame.number)
                    self.theirs.send(*(self.work(frame) if may else [WorkDeclined(frame.number)]))

    def _hear(self) -> None:
        """What the supervisor's loop does."""
        while self.channel.open:
            self.desk.hear(0, self.channel.read(), "what the slot said")
            self.desk.go_on()


class Counter:
    """Stands before a consumer, and counts or loses its answers."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.exchanges = 0
        self.lose = 0
        """Of the next exchanges that claim or settle something, so many answers are lost."""

    def exchange(self, settlements: Any, **options: Any) -> Exchanged[Any, Any]:
        self.exchanges += 1
        found: Exchanged[Any, Any] = self._consumer.exchange(settlements, **options)
        if self.lose and (settlements or found.messages):
            self.lose -= 1
            raise EngineUnavailableError("the answer was lost")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


class Site:
    """A desk over an engine in a file."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.engine = Engine.open(f"sqlite:///{folder}/t.db")
        self.work = self.engine.mailbox("work", WorkItem, WorkResult)
        self.replies = self.engine.mailbox("replies", WorkResult)
        self.counter = Counter(self.engine.consumer(msgspec.Raw, msgspec.Raw))
        self.engine.consumer = lambda *types: self.counter  # type: ignore[method-assign]
        self.page = ClaimPage.create(folder, "desk", 200)
        self.said: list[str] = []
        self.slots: list[ThreadSlot] = []
        self.threads = ThreadPoolExecutor(4)
        clock, log, random = SystemClock(), log_to(self.said.append), Random(1)
        errors = IsolatedErrors(log)
        calls = DeliveryCalls(
            self.engine,
            "w-1",
            FileLines(folder),
            self.threads,
            self.threads,
            _no_courier,
            clock=clock,
            random=random,
            log=log,
            errors=errors,
            on_engine_lost=_never,
        )
        self.desk = DeliveryDesk(
            SlotSettings(**{"wait_s": 1.0, **settings}),
            self.engine,
            self.page,
            "w-1",
            calls,
            clock=clock,
            random=random,
            ids=new_id,
            log=log,
            errors=errors,
            on_engine_lost=_never,
        )
        self.errors = errors

    def add_slot(self, work: Callable[[HandOver], list[SlotFrame]]) -> ThreadSlot:
        slot = ThreadSlot(self.desk, self.page, work)
        self.slots.append(slot)
        self.desk.serve([("w", "1")])
        return slot

    def send(self, count: int, **item: Any) -> None:
        for start in range(0, count, 500):
            work = Outgoing(WorkItem(workflow="w", **item), reply_to="replies")
            self.work.send_many([work] * min(500, count - start))

    def answered(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (done := self.replies.approximate_count()) < count:
            assert time.monotonic() < deadline, f"{done} of {count}: {self.said}"
            time.sleep(0.002)

    def close(self) -> None:
        self.desk.close(10.0)
        for slot in self.slots:
            slot.close()
        self.threads.shutdown()
        self.page.close()
        self.engine.close()


def _no_courier() -> Any:
    raise AssertionError("nobody submits here")


def _never(error: Exception) -> None:
    raise AssertionError(error)


@contextmanager
def site(
    folder: Path, work: Callable[[HandOver], list[SlotFrame]], **settings: Any
) -> Iterator[tuple[Site, ThreadSlot]]:
    made = Site(folder, **settings)
    slot = made.add_slot(work)
    try:
        yield made, slot
    finally:
        made.close()


def result(failure: WorkFailure | None = None) -> bytes:
    made = WorkResult(job_id="", workflow_id="", workflow="w", attempt=1, fence=(0, 1), worker="w-1", failure=failure)
    return msgspec.json.encode(made)


def done(work: HandOver) -> list[SlotFrame]:
    return [WorkFinished(work.number, 0.0002, True, result())]


def test_under_load_one_round_trip_serves_many_jobs(tmp_path: Path) -> None:
    """The counted figure of `docs/performance.md`: one at a time, a job costs two round trips and two syncs."""
    made = Site(tmp_path)
    made.send(1_000)
    made.add_slot(done)
    made.answered(1_000)
    made.close()
    assert made.counter.exchanges <= 200, f"{made.counter.exchanges} exchanges for 1,000 jobs"
    assert made.work.name == "work"


def test_an_idle_worker_settles_at_once_and_waits_in_the_same_exchange(tmp_path: Path) -> None:
    with site(tmp_path, done) as (made, _):
        made.send(1)
        made.answered(1)
        before, begun = made.counter.exchanges, time.monotonic()
        made.send(1)
        made.answered(2)
        took = time.monotonic() - begun
        assert made.counter.exchanges - before <= 2 + math.ceil(took / 1.0)  # long polls of a second end meanwhile


def test_ended_work_keeps_no_supervisor_awake_while_the_claim_that_settles_it_waits(tmp_path: Path) -> None:
    with site(tmp_path, done, wait_s=4 * PATIENCE_S) as (made, _):
        made.send(1)
        made.answered(1)
        _until(lambda: made.desk.is_empty)


def test_work_that_a_slot_has_keeps_the_supervisor_awake(tmp_path: Path) -> None:
    hold = threading.Event()

    def slow(work: HandOver) -> list[SlotFrame]:
        hold.wait(PATIENCE_S)
        return done(work)

    with site(tmp_path, slow) as (made, slot):
        assert made.desk.is_empty
        made.send(1)
        _until(lambda: bool(slot.handed))
        assert not made.desk.is_empty
        hold.set()
        made.answered(1)


def test_jobs_whose_duration_nobody_knows_are_claimed_one_at_a_time(tmp_path: Path) -> None:
    hold = threading.Event()

    def slow(work: HandOver) -> list[SlotFrame]:
        hold.wait(PATIENCE_S)
        return done(work)

    with site(tmp_path, slow) as (made, slot):
        made.send(10)
        _until(lambda: bool(slot.handed))
        time.sleep(0.05)
        assert made.work.depth().leased == 1
        hold.set()
        made.answered(10)


def test_what_waits_behind_work_that_hangs_is_given_back_uncounted(tmp_path: Path) -> None:
    hold, hang = threading.Event(), threading.Event()

    def work(work: HandOver) -> list[SlotFrame]:
        if hang.is_set():
            hold.wait(PATIENCE_S)
        return done(work)

    with site(tmp_path, work) as (made, slot):
        made.send(300)
        _until(lambda: len(slot.handed) > 50)  # it has learned how short they are
        hang.set()
        _until(lambda: (made.desk.look(), made.work.depth().leased)[1] == 1)
        assert {message.delivery_count for message in made.work.receive(100, 60)} == {1}
        hold.set()


def test_a_lost_answer_strands_nothing_and_does_not_look_like_a_lost_lease(tmp_path: Path) -> None:
    with site(tmp_path, done) as (made, slot):
        made.counter.lose = 5
        made.send(40)
        made.answered(40)
        assert made.counter.lose == 0
        assert len({work.ticket.id for work in slot.handed}) == len(slot.handed) == 40
        assert not [line for line in made.said if "refused" in line]
        _until(lambda: sum(made.work.depth()) == 0)


def test_a_claim_that_is_asked_for_under_another_id_is_stranded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of the rule above (RULINGS 11)."""
    whole = EngineExchange.exchange

    def forgetful(self: EngineExchange, plan: ExchangePlan) -> Any:
        return whole(self, changed(plan, claim_id=new_id()))

    monkeypatch.setattr(EngineExchange, "exchange", forgetful)
    with site(tmp_path, done) as (made, slot):
        made.counter.lose = 1
        made.send(1)
        _until(lambda: made.counter.lose == 0)
        time.sleep(0.5)
        assert not slot.handed


def test_a_checkpoint_and_the_outcome_behind_it_are_executed_in_order(tmp_path: Path) -> None:
    def keeps(work: HandOver) -> list[SlotFrame]:
        asked = [SlotRequest(n, work.number, KEEP, b"%d" % n) for n in range(5)]
        return [*asked, *done(work)]

    with site(tmp_path, keeps) as (made, slot):
        made.send(20)
        made.answered(20)
        _until(lambda: len(slot.answers) == 100)
        assert [answer.error for answer in slot.answers] == [""] * 100


def test_an_outcome_that_does_not_wait_for_the_checkpoints_loses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of the rule above (RULINGS 10)."""
    monkeypatch.setattr(DeliveryCalls, "in_order", lambda self, held, what, call: self.submit(what, call))

    def keeps(work: HandOver) -> list[SlotFrame]:
        return [*(SlotRequest(n, work.number, KEEP, b"x") for n in range(5)), *done(work)]

    with site(tmp_path, keeps) as (made, slot):
        made.send(20)
        made.answered(20)
        _until(lambda: len(slot.answers) == 100)
        assert "ReceiptHandleExpiredError" in {answer.error for answer in slot.answers}


def test_a_failure_is_settled_by_the_policy_of_its_workflow(tmp_path: Path) -> None:
    failure = WorkFailure(cause=Cause.EXCEPTION, reason="no")

    def fails(work: HandOver) -> list[SlotFrame]:
        retry = Retry(max_attempts=2, delay=0.01, max_delay=0.01)
        return [WorkFinished(work.number, 0.001, False, result(failure), "", retry)]

    with site(tmp_path, fails) as (made, slot):
        made.send(1)
        _until(lambda: made.work.dead_letters.count() == 1)
        assert [work.ticket.delivery_count for work in slot.handed] == [1, 2]


@pytest.mark.parametrize(("size", "taken"), [(600_000, True), (9_000_000, False)])
def test_a_large_result_is_stored_and_one_that_the_engine_does_not_take_is_a_failure_that_says_so(
    tmp_path: Path, size: int, taken: bool
) -> None:
    def large(work: HandOver) -> list[SlotFrame]:
        whole = msgspec.structs.replace(
            msgspec.json.decode(result(), type=WorkResult), result=msgspec.Raw(b'"' + b"x" * size + b'"')
        )
        return [WorkFinished(work.number, 0.001, True, msgspec.json.encode(whole))]

    with site(tmp_path, large) as (made, _):
        made.send(1, managed=True)
        made.answered(1)
        [reply] = made.replies.receive(1, 60)
        assert (reply.body.ok, reply.body.stored) == (taken, taken)
        if taken:
            [key] = made.engine.store("results").list()
            assert len(made.engine.store("results").get(key) or b"") == size + 2
        else:
            assert "could not be handed over" in reply.body.failure.reason


def test_a_body_that_is_no_work_is_a_dead_letter_and_the_next_one_is_done(tmp_path: Path) -> None:
    with site(tmp_path, done) as (made, _):
        made.engine.mailbox("work").send({"not": "work"})
        made.send(1)
        made.answered(1)
        _until(lambda: made.work.dead_letters.count() == 1)


def test_work_that_was_cancelled_before_it_started_is_answered_and_not_run(tmp_path: Path) -> None:
    hold = threading.Event()

    def work(work: HandOver) -> list[SlotFrame]:
        if len(slot.handed) > 100:
            hold.wait(PATIENCE_S)
        return done(work)

    with site(tmp_path, work) as (made, slot):
        made.send(102, managed=True)
        made.send(1, managed=True, job_id="unwanted", workflow_id="w")
        _until(lambda: len(slot.handed) > 100)
        while made.desk.cancel("unwanted", "", 0, None, "not wanted"):
            made.desk.look()
            time.sleep(0.01)
        hold.set()
        made.answered(103)
        ended = [message.body for _ in range(2) for message in made.replies.receive(100, 60)]
        cancelled = [one for one in ended if one.failure is not None]
        if cancelled:  # else it was still in the engine, where the leader's revoke finds it
            assert [(one.job_id, one.failure.cause) for one in cancelled if one.failure] == [
                ("unwanted", Cause.CANCELLED)
            ]


def test_what_was_taken_back_behind_long_work_starts_when_that_ends_and_is_not_declined_again(tmp_path: Path) -> None:
    hold = threading.Event()

    def work(work: HandOver) -> list[SlotFrame]:
        if len(slot.handed) == 100:
            hold.wait(PATIENCE_S)
        return done(work)

    with site(tmp_path, work) as (made, slot):
        made.send(120)
        _until(lambda: len(slot.handed) == 100)
        queue, long = made.desk._queue, slot.handed[-1].number

        def all_taken_back() -> bool:
            made.desk.look()  # it hears meanwhile that some have ended, which the slot had done before the long one
            try:
                return all(claim.withdrawn_at is not None for claim in queue.handed if claim.number != long)
            except RuntimeError:  # the thread that hears of an end changed it while we read
                return False

        _until(all_taken_back)
        hold.set()
        made.answered(120)
        assert len(slot.handed) <= 240, "what is left behind the long item is not declined again and again"


def test_what_the_desk_holds_is_bounded_by_what_it_claimed(tmp_path: Path) -> None:
    with site(tmp_path, done) as (made, slot):
        made.send(500)
        made.answered(500)
        receipts = [work.ticket.receipt_handle for work in slot.handed]
        _until(lambda: not any(map(made.desk.message_of, receipts)))
        assert sorted(made.page.free_entries) == list(range(made.page.entries))


def test_an_error_of_ours_in_the_exchange_is_counted_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]
    whole = EngineExchange.take_in

    def sometimes(self: EngineExchange, *args: Any) -> None:
        if broken and broken.pop():
            raise KeyError("a bug")
        whole(self, *args)

    monkeypatch.setattr(EngineExchange, "take_in", sometimes)
    with site(tmp_path, done, claim_s=1.0) as (made, _):
        made.send(3)
        made.answered(3)
        assert made.errors.count == 1


def test_a_frame_that_fails_costs_none_of_those_that_came_with_it(tmp_path: Path) -> None:
    handed: list[HandOver] = []

    def keep(work: HandOver) -> list[SlotFrame]:
        handed.append(work)
        return []

    with site(tmp_path, keep) as (made, _):
        made.send(1)
        _until(lambda: len(handed) == 1)
        broken: Any = SlotRequest(1, 1, [], None)  # type: ignore[arg-type]  # no kind can be looked up in a set by a list
        made.desk.hear(0, [broken, broken, *done(handed[0]), broken], "what the slot said")
        made.desk.go_on()
        made.answered(1)
        assert made.errors.count == 3


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def test_without_managers_nothing_waits_behind_names_that_the_worker_does_not_have(tmp_path: Path) -> None:
    """They were given back at once, claimed again, and the whole mailbox was left alone meanwhile: what was behind them waited for 10 s and more."""

    def work(handed: HandOver) -> list[SlotFrame]:
        return [WorkFinished(handed.number, 0.001, True, result())]

    with site(tmp_path, work) as (desk, _):
        desk.work.send_many([Outgoing(WorkItem(workflow="lnog"), reply_to="replies") for _ in range(5)])
        desk.send(3)
        desk.answered(3)
        desk.desk.drain()  # it holds them no longer: another worker may have them
        taken = []
        deadline = time.monotonic() + PATIENCE_S
        while len(taken) < 5:  # a claim that was under way may meet them once more, and gives them back
            assert time.monotonic() < deadline, f"{taken} {desk.work.depth()}"
            taken += desk.work.receive(5 - len(taken), wait_time_seconds=1)
        assert [one.delivery_count for one in taken] == [1] * 5, "they were never started"


def test_without_managers_a_worker_also_takes_what_is_sent_to_the_mailbox_of_its_workflow(tmp_path: Path) -> None:
    def work(handed: HandOver) -> list[SlotFrame]:
        return [WorkFinished(handed.number, 0.001, True, result())]

    with site(tmp_path, work) as (desk, slot):
        for name in (mailbox_for("work", "w"), mailbox_for("work", "w", "1"), mailbox_for("work", "other")):
            desk.engine.mailbox(name, WorkItem, WorkResult).send(WorkItem(workflow="w"), reply_to="replies")
        desk.answered(2)
        assert sorted(one.queue for one in slot.handed) == ["work/w/", "work/w/1"]
        assert desk.engine.mailbox("work/other/").depth() == (1, 0, 0)

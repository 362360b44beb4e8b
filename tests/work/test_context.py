from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any

import pytest
from tests.patience import wait_until

from tenure.beat.board import BeatBoard
from tenure.beat.record import Occupant, Phase
from tenure.clock import ManualClock
from tenure.engines import InMemoryMailbox, MemoryEngine
from tenure.errors import (
    Cancelled,
    CommandFailedError,
    LimitError,
    ReceiptHandleExpiredError,
    SerializationError,
    WorkError,
)
from tenure.logs import NodeLog
from tenure.work.attempt_handle import AttemptHandle
from tenure.work.context import (
    LOOK_EVERY_S,
    AsyncContext,
    Context,
    current,
    run_with_context,
)
from tenure.work.delivery import CancelCode, EngineDelivery, WorkItem
from tenure.work.settler import Settler
from tenure.work.slots.processes import read_stat


class Bench:
    """One attempt at a work bench of its own: a board in memory, a mailbox, a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.mailbox: InMemoryMailbox[Any, Any] = InMemoryMailbox(body=WorkItem, clock=self.clock)
        self.board = BeatBoard.private(1)
        self.mailbox.send(WorkItem(workflow="w"), key="job/w")
        self.handle = self.sit()

    def sit(self, **changes: Any) -> AttemptHandle:
        [message] = self.mailbox.receive(1, 60, provisional=True)
        occupant = Occupant(ticket=message.ticket, job="job", workflow="w", attempt=1, queue="q", stall_s=30, **changes)
        self.board.records[0].occupy(Phase.RUNNING, occupant, self.clock.monotonic())
        settler = Settler(MemoryEngine(), clock=self.clock, random=Random(1), log=NodeLog("worker"))
        delivery = EngineDelivery(message, "q", settler, self.clock)
        return AttemptHandle(self.board.records[0], delivery, occupant, self.clock)

    def lease_for_ever(self) -> None:
        self.handle.record.set_lease_until(1e12, self.handle.record.serial)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.board.close()


def test_a_beat_shows_on_the_board(bench: Bench) -> None:
    context = Context(bench.handle)
    bench.clock.advance(5)
    context.beat(progress=0.5, note="half way")
    context.beat()
    reading = bench.handle.record.read()
    assert (reading.steps, reading.beat_at, reading.progress) == (2, bench.clock.monotonic(), 0.5)
    assert reading.occupant is not None
    assert reading.occupant.note == "half way"


def test_a_beat_is_two_calls_and_two_stores_between_two_looks_at_the_thread(bench: Bench) -> None:
    """It asks for the time and counts. `bench_slots` holds it to 250 ns; this finds a third call on any machine."""
    context, calls = Context(bench.handle), []
    context.beat()  # this one looks

    def note(frame: Any, event: str, what: Any) -> None:
        if event in ("call", "c_call"):
            calls.append(frame.f_code.co_name if event == "call" else what.__name__)

    sys.setprofile(note)
    context.beat()
    sys.setprofile(None)
    own = calls[: calls.index("setprofile")]
    inside_the_clock = {"boottime", "__enter__", "__exit__", "monotonic"}  # a manual clock is slower than the machine's
    assert [name for name in own if name not in inside_the_clock] == ["beat", "next"]


def test_absolute_counters_win_over_the_fraction(bench: Bench) -> None:
    Context(bench.handle).beat(progress=0.9, completed_items=1, total_items=4)
    assert bench.handle.record.read().progress == 0.25


@pytest.mark.parametrize("progress", [float("nan"), -0.1, 1.1, float("inf")])
def test_progress_that_is_none_is_refused(bench: Bench, progress: float) -> None:
    with pytest.raises(LimitError, match="progress is"):
        Context(bench.handle).beat(progress=progress)


def test_negative_items_are_refused(bench: Bench) -> None:
    with pytest.raises(LimitError, match="completed_items"):
        Context(bench.handle).beat(completed_items=-1, total_items=5)


def test_each_tracked_item_is_a_beat_and_moves_the_fraction(bench: Bench) -> None:
    context = Context(bench.handle)
    fractions = []
    for _ in context.track(["a", "b", "c", "d"]):
        fractions.append(bench.handle.record.read().progress)
    assert fractions == [0.0, 0.25, 0.5, 0.75]
    assert bench.handle.record.read().progress == 1.0
    assert bench.handle.record.read().steps == 5


def test_tracking_works_in_async_for_over_both_kinds_of_items(bench: Bench) -> None:
    async def numbers() -> AsyncIterator[int]:
        for n in range(3):
            yield n

    async def main() -> list[int]:
        context = AsyncContext(bench.handle)
        found = [n async for n in context.track(numbers(), total=3)]
        return found + [n async for n in context.track(range(3, 5))]

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]
    with pytest.raises(WorkError, match="async for"):
        list(Context(bench.handle).track(numbers()))


def test_a_cancellation_is_raised_from_the_next_beat_and_from_every_later_one(bench: Bench) -> None:
    context = Context(bench.handle)
    context.beat()
    bench.handle.record.request_cancel(CancelCode.STALL, bench.handle.record.serial)
    bench.clock.advance(0.06)
    for _ in range(2):
        with pytest.raises(Cancelled, match="stall"):
            context.beat()
    assert context.cancelled
    assert not context.lease_lost


def test_the_slot_counts_its_lease_down_by_itself(bench: Bench) -> None:
    context = Context(bench.handle)
    bench.clock.advance(59)
    context.beat()
    bench.clock.advance(1)
    with pytest.raises(Cancelled, match="lease was lost"):
        context.beat()
    assert context.lease_lost


def test_an_extension_by_the_supervisor_keeps_it_going(bench: Bench) -> None:
    context = Context(bench.handle)
    bench.clock.advance(30)
    bench.mailbox.adopt(bench.handle.occupant.ticket).extend_visibility(60)
    bench.handle.record.set_lease_until(bench.clock.boottime() + 60, bench.handle.record.serial)
    bench.clock.advance(59)
    context.beat()
    assert not context.cancelled


def test_a_checkpoint_is_durable_when_it_returns_and_the_next_attempt_resumes_from_it(bench: Bench) -> None:
    context = Context(bench.handle)
    assert context.resume is None
    context.checkpoint({"frame": 17})
    bench.clock.advance(60)
    second = Context(bench.sit())
    assert second.resume == {"frame": 17}


def test_a_stale_attempt_cannot_overwrite_the_checkpoint(bench: Bench) -> None:
    first = Context(bench.handle)
    first.checkpoint(1)
    bench.clock.advance(60)
    second_seat = bench.sit()
    with pytest.raises(ReceiptHandleExpiredError):
        first.checkpoint(999)
    bench.clock.advance(60)
    del second_seat
    assert Context(bench.sit()).resume == 1


def test_a_checkpoint_moves_no_lease(bench: Bench) -> None:
    bench.clock.advance(30)
    Context(bench.handle).checkpoint("x")
    bench.clock.advance(30)
    assert bench.mailbox.receive(1, 60) != []


def test_a_checkpoint_that_is_no_json_is_an_error_with_a_remedy(bench: Bench) -> None:
    with pytest.raises(SerializationError, match="plain JSON"):
        Context(bench.handle).checkpoint(object())


def test_asking_for_the_fence_makes_the_delivery_count(bench: Bench) -> None:
    assert Context(bench.handle).fence == (0, 1)
    bench.clock.advance(60)
    second = bench.sit()
    assert Context(second).fence == (0, 2)


def test_a_delivery_that_never_started_keeps_its_number_and_is_no_attempt(bench: Bench) -> None:
    bench.clock.advance(60)
    second = bench.sit()
    assert Context(second).fence == (0, 2)
    assert second.delivery.attempt == 1


def test_a_declared_silence_is_on_the_board_while_it_lasts_and_is_no_step(bench: Bench) -> None:
    bench.lease_for_ever()
    context = Context(bench.handle)
    context.beat()
    with context.silence(max_s=900, why="model call"):
        reading = bench.handle.record.read()
        assert reading.silent_until == bench.clock.monotonic() + 900
        assert reading.occupant is not None
        assert "model call" in reading.occupant.note
        bench.clock.advance(600)
    reading = bench.handle.record.read()
    # The stall clock starts anew, and nothing was proven.
    assert (reading.silent_until, reading.steps, reading.beat_at) == (0.0, 1, bench.clock.monotonic())


def test_a_silence_after_a_silence_needs_a_step_in_between(bench: Bench) -> None:
    bench.lease_for_ever()
    context, record = Context(bench.handle), bench.handle.record
    context.beat()
    with context.silence(60, "first"):
        bench.clock.advance(30)
    beat_at = record.read().beat_at
    with context.silence(60, "second"):
        assert record.read().silent_until == 0.0
        bench.clock.advance(30)
    assert record.read().beat_at == beat_at
    context.beat()
    with context.silence(60, "third"):
        assert record.read().silent_until > bench.clock.monotonic()


def test_a_silence_that_outlasts_its_bound_leaves_the_stall_clock_where_the_bound_was(bench: Bench) -> None:
    context = Context(bench.handle)
    context.beat()
    until = bench.clock.monotonic() + 10
    with context.silence(10, "a call"):
        bench.clock.advance(25)
    assert bench.handle.record.read().beat_at == until


def test_an_inner_silence_leaves_the_outer_one(bench: Bench) -> None:
    context, record = Context(bench.handle), bench.handle.record
    with context.silence(900, "outer"):
        until = record.read().silent_until
        context.beat()
        with context.silence(10, "inner"):
            assert record.read().silent_until == until
        assert record.read().silent_until == until


def in_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_beat_of_another_thread_is_no_proof_unless_the_thread_is_registered(bench: Bench) -> None:
    context, record = Context(bench.handle), bench.handle.record
    context.beat()
    first = record.read()
    bench.clock.advance(5)
    in_thread(lambda: context.beat(progress=0.9))
    found = record.read()
    assert (found.steps, found.beat_at, found.progress, found.others) == (1, first.beat_at, 0.0, 1)

    def registered() -> None:
        with context.thread():
            context.beat()

    in_thread(registered)
    found = record.read()
    assert (found.steps, found.beat_at, found.others) == (2, bench.clock.monotonic(), 1)
    bench.clock.advance(LOOK_EVERY_S)  # so long a beat of its own vouches for the others
    in_thread(context.beat)
    assert record.read().others == 2


def test_a_helper_thread_hears_of_a_cancellation(bench: Bench) -> None:
    context, heard = Context(bench.handle), []
    bench.handle.cancel(CancelCode.CANCEL)

    def beats() -> None:
        try:
            context.beat()
        except Cancelled:
            heard.append("cancelled")

    in_thread(beats)
    assert heard == ["cancelled"]


def test_items_fractions_and_checkpoints_are_news_once(bench: Bench) -> None:
    context, record = Context(bench.handle), bench.handle.record
    marks = []

    def note() -> None:
        marks.append(record.read().mark)

    context.beat()
    note()
    context.beat(completed_items=7, total_items=20)
    note()
    context.beat(completed_items=7, total_items=20)
    context.beat(progress=0.0)
    context.beat(note="another note")
    note()
    context.checkpoint({"at": 7})
    note()
    context.checkpoint({"at": 7})
    note()
    assert marks[0] == 0
    assert marks[1] == marks[2] > marks[0]
    assert marks[3] == marks[4] > marks[2]
    assert (record.read().items, record.read().total) == (7, 20)


def test_a_loop_over_items_asks_for_more_until_its_end_and_the_next_counts_anew(bench: Bench) -> None:
    context, record = Context(bench.handle), bench.handle.record
    for _ in context.track(iter("abcdef")):
        pass
    assert record.read().mark & 1 == 0
    left = iter(context.track("abcdefgh"))
    for _ in range(6):
        next(left)
    loop = iter(context.track("abcdefgh"))
    next(loop)
    before = record.read().mark
    next(loop)
    assert record.read().mark > before
    assert record.read().mark & 1 == 1


def test_polling_beats_at_each_turn_is_declared_and_ends_at_its_bound(bench: Bench) -> None:
    context, record, clock = Context(bench.handle), bench.handle.record, bench.clock
    begun = clock.monotonic()
    turns = []
    for _ in context.polling(every_s=10, most_s=25, why="the export"):
        turns.append(clock.monotonic() - begun)
        assert record.read().polling_until == begun + 25
        threading.Timer(0.01, lambda: clock.advance(10)).start()
    assert turns[0] == 0
    assert len(turns) >= 3
    assert record.read().polling_until == 0.0
    assert record.read().steps >= 3
    with pytest.raises(LimitError, match="polling every_s"):
        context.polling(10, 5, "x")


@pytest.mark.parametrize("seconds", [0, -1, 90_000, float("nan")])
def test_a_silence_needs_a_bound(bench: Bench, seconds: float) -> None:
    with pytest.raises(LimitError, match="silence max_s"):
        Context(bench.handle).silence(seconds, "x")


def test_sleep_is_the_clocks_and_a_cancellation_ends_it(bench: Bench) -> None:
    context = Context(bench.handle)
    ended: list[str] = []

    def work() -> None:
        try:
            context.sleep(40)
            ended.append("slept")
            context.sleep(10_000)
        except Cancelled as error:
            ended.append(error.reason)

    thread = threading.Thread(target=work)
    thread.start()
    while not ended:
        bench.clock.until_waiting(1)
        bench.clock.advance(0.5)
    bench.handle.cancel(CancelCode.CANCEL)
    thread.join(60)
    assert ended == ["slept", "cancelled by request"]


def test_the_current_context_is_found_inside_and_refused_outside(bench: Bench) -> None:
    context = Context(bench.handle)
    assert run_with_context(context, current) is context
    with pytest.raises(WorkError, match="no workflow runs here"):
        current()


def test_the_time_left_is_told(bench: Bench) -> None:
    assert Context(bench.handle).deadline is None
    bench.clock.advance(60)
    context = Context(bench.sit(deadline=bench.clock.boottime() + 10))
    bench.clock.advance(4)
    assert context.deadline == 6.0


def test_a_program_beats_per_line_and_its_output_is_kept(bench: Bench) -> None:
    context = Context(bench.handle)
    seen: list[str] = []
    finished = context.run([sys.executable, "-c", "for i in range(5): print('line', i)"], on_line=seen.append)
    assert finished.returncode == 0
    assert seen == list(finished.lines) == [f"line {i}" for i in range(5)]
    assert bench.handle.record.read().steps == 5


def test_a_program_that_fails_is_an_error_with_its_last_lines(bench: Bench) -> None:
    with pytest.raises(CommandFailedError, match=r"ended with 3.*\n.*oops"):
        Context(bench.handle).run(["sh", "-c", "echo oops >&2; exit 3"])
    assert Context(bench.handle).run(["false"], check=False).returncode == 1


def test_async_programs_do_the_same(bench: Bench) -> None:
    async def main() -> tuple[str, ...]:
        return (await AsyncContext(bench.handle).run(["sh", "-c", "echo one; printf two"])).lines

    assert asyncio.run(main()) == ("one", "two")


def test_a_line_without_end_does_not_fill_the_memory(bench: Bench) -> None:
    finished = Context(bench.handle).run([sys.executable, "-c", "print('x' * 3_000_000, end='')"])
    assert max(map(len, finished.lines)) < 1_200_000
    assert sum(map(len, finished.lines)) == 3_000_000


def test_a_cancelled_attempt_takes_its_program_and_its_children_with_it(bench: Bench, tmp_path: Any) -> None:
    context = Context(bench.handle)
    pid_file = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {pid_file}; echo started; wait"

    def cancel(line: str) -> None:
        bench.handle.cancel(CancelCode.CANCEL)

    with pytest.raises(Cancelled):
        context.run(["sh", "-c", script], on_line=cancel)
    child = int(pid_file.read_text())

    def ended() -> bool:
        found = read_stat(child)
        return found is None or found.state == "Z"

    wait_until(ended, f"the grandchild {child} still runs")


@pytest.mark.parametrize(
    ("target", "broken", "rule"),
    [
        (
            "tenure.work.base_context.get_ident",
            lambda: 1,
            test_a_beat_of_another_thread_is_no_proof_unless_the_thread_is_registered,
        ),
        (
            "tenure.work.declared_spells.DeclaredSilence.__enter__",
            lambda self: self._context.beat(),
            test_a_silence_after_a_silence_needs_a_step_in_between,
        ),
        (
            "tenure.beat.record.BeatRecord.touch",
            lambda self, now: None,
            test_a_silence_that_outlasts_its_bound_leaves_the_stall_clock_where_the_bound_was,
        ),
        (
            "tenure.beat.proof.NoveltyMark.end_count",
            lambda self: None,
            test_a_loop_over_items_asks_for_more_until_its_end_and_the_next_counts_anew,
        ),
        (
            "tenure.work.attempt_handle.AttemptHandle.show",
            lambda self, binds: None,
            test_items_fractions_and_checkpoints_are_news_once,
        ),
    ],
)
def test_a_rule_of_the_context_that_was_changed_is_found(
    bench: Bench, target: str, broken: Any, rule: Callable[[Bench], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, broken)
    with pytest.raises(AssertionError):
        rule(bench)

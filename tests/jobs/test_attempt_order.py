"""Attempts that are due at one instant go in one order, whichever book is asked: of the leader that lived through it all, of a standby, read back from
pages and a tail, or folded from the whole journal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec
from tests.jobs.random_commands import JOBS, commands, follow, three_flows, waiting_commands
from tests.jobs.test_paged_book import Store, fold

from tenure.backoff import Retry
from tenure.jobs import JobBook, JobSettings
from tenure.jobs.decisions import Command
from tenure.jobs.formats import RaiseFormat
from tenure.jobs.outbox import to_dispatch
from tenure.jobs.queues import SetQueue
from tenure.jobs.steering import PauseJob, ResumeJob
from tenure.jobs.work_indexes import RestingWork, WorkNeeds

ONCE = Retry(max_attempts=5, delay=10, jitter=0)


def order(book: JobBook, now: float) -> list[tuple[str, str]]:
    """Returns what a leader with this book sends, first to last."""
    return [(one.job_id, one.workflow) for one in to_dispatch(book, now)]


def others(desk: Desk, cut: int) -> dict[str, JobBook]:
    """Returns the other books of the same journal; the pages of one were saved after `cut` events."""
    events = list(enumerate(desk.journal, 1))
    standby, saving, store = JobBook(desk.settings), JobBook(desk.settings), Store()
    fold(standby, events)
    first = next(seq for seq, event in events if b"FormatRaised" in event)
    cut = min(max(cut, first), len(events))
    fold(saving, events[:cut])
    store.save(saving, cut)
    loaded = fold(store.load(desk.settings), events[cut:])
    return {"standby": standby, "pages and tail": loaded, "packed": packed(store.load(desk.settings), events[cut:])}


def packed(book: JobBook, tail: list[tuple[int, bytes]]) -> JobBook:
    assert book.pages is not None
    fold(book, tail)
    for number in list(book.pages.sections["jobs"].members):
        book.jobs.pack(number)
    return book


def by_instant(book: JobBook, now: float) -> dict[tuple[object, float], list[tuple[str, str]]]:
    """Maps each lane and instant to the attempts that are ready and were due then, in their order."""
    book.wake(now)
    found: dict[tuple[object, float], list[tuple[str, str]]] = {}
    for lane, waiting in book.ready.items():
        for job_id, name in waiting:
            info = book.jobs.look(job_id)
            assert info is not None
            found.setdefault((lane, info.workflows[name].not_before), []).append((job_id, name))
    return found


def raised(*, jobs: int = 3) -> Desk:
    desk = Desk(settings=JobSettings(archive_after=0))
    desk.do(RaiseFormat())
    for number in range(jobs):
        desk.submit(f"j-{number}", spec("w", retry=ONCE))
    return desk


@pytest.mark.parametrize("failed", [(2, 0, 1), (1, 2, 0), (0, 1, 2)])
def test_attempts_that_failed_together_are_tried_again_in_the_order_of_their_ends(failed: tuple[int, ...]) -> None:
    desk = raised()
    for number in range(3):
        desk.run(f"j-{number}", "w")
    desk.at = 5.0
    for number in failed:
        desk.fail(f"j-{number}", "w")
    wanted = [(f"j-{number}", "w") for number in failed]
    books = others(desk, len(desk.journal))
    assert order(desk.book, 100.0) == wanted
    assert {name: order(book, 100.0) for name, book in books.items()} == dict.fromkeys(books, wanted)


def test_what_was_withdrawn_and_comes_again_at_the_same_instant_is_behind_the_others() -> None:
    """The leader has dropped the entry of the time before; a book that woke nothing still has it."""
    desk = raised()
    desk.do(SetQueue(queue="default", paused=True))
    desk.book.resting.next_due()
    desk.do(PauseJob(job_id="j-0", by="ada", reason="wait"))
    desk.book.resting.next_due()
    desk.do(ResumeJob(job_id="j-0"))
    desk.do(SetQueue(queue="default", paused=False))
    wanted = [("j-1", "w"), ("j-2", "w"), ("j-0", "w")]
    books = others(desk, 4)
    assert order(desk.book, 100.0) == wanted
    assert {name: order(book, 100.0) for name, book in books.items()} == dict.fromkeys(books, wanted)


def test_a_resumed_job_is_due_from_then_on_and_stands_behind_what_was_due_before() -> None:
    desk = raised(jobs=1)
    desk.do(SetQueue(queue="default", paused=True))
    desk.do(PauseJob(job_id="j-0", by="ada", reason="wait"))
    desk.at = 7.0
    desk.submit("later", spec("w"))
    desk.book.wake(desk.at)
    desk.at = 9.0
    desk.do(ResumeJob(job_id="j-0"))
    desk.do(SetQueue(queue="default", paused=False))
    wanted = [("later", "w"), ("j-0", "w")]
    books = others(desk, 4)
    assert order(desk.book, 100.0) == wanted
    assert {name: order(book, 100.0) for name, book in books.items()} == dict.fromkeys(books, wanted)


@given(
    st.lists(st.tuples(st.one_of(commands, waiting_commands), st.sampled_from((0, 0, 0, 1, 31))), max_size=60),
    st.sets(st.integers(0, 60), max_size=20),
    st.integers(0, 120),
)
def test_every_book_of_one_journal_has_one_order(steps: list[tuple[Command, int]], wakings: set[int], cut: int) -> None:
    desk = Desk(settings=JobSettings(archive_after=100, history_limit=12))
    desk.do(RaiseFormat())
    desk.do(SetQueue(queue="default", paused=True))
    follow(desk, [(three_flows(job_id), 0) for job_id in JOBS])
    for number, step in enumerate(steps):
        follow(desk, [step])
        if number in wakings:
            desk.book.wake(desk.at)
            desk.book.resting.next_due()
    now = desk.at + 1e6
    wanted = by_instant(desk.book, now)
    for name, book in others(desk, cut).items():
        assert by_instant(book, now) == wanted, name


@given(
    st.lists(
        st.tuples(st.sampled_from(("put", "cancel", "wake")), st.integers(0, 4), st.integers(0, 3), st.integers(0, 9)),
        max_size=200,
    )
)
def test_resting_work_agrees_with_a_sorted_list(steps: list[tuple[str, int, int, int]]) -> None:
    resting, model, tickets = RestingWork(), dict[tuple[str, str], tuple[float, int, int]](), 0
    needs = WorkNeeds(("q", 0, "f", ""), False, False)
    for what, number, due, place in steps:
        key = (f"j{number}", "w")
        if what == "wake":
            woken = sorted((one, key) for key, one in model.items() if one[0] <= due)
            assert resting.pop_work(due) == [(key, needs) for _, key in woken]
            for _, key in woken:
                del model[key]
        else:
            resting.cancel(key)
            model.pop(key, None)
            if what == "put":
                tickets += 1
                resting.put(key, needs, due, place)
                model[key] = (due, place, tickets)
        assert (len(resting), set(resting.keys())) == (len(model), set(model))
        assert resting.next_due() == min((one[0] for one in model.values()), default=float("inf"))
        assert resting.due(key) == model.get(key, (float("inf"),))[0]

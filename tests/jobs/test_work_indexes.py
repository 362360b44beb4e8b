"""A look over all waiting work unpacks none of it: after an election, when workers come and go, at a cold start, and when a queue changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec

from tenure.jobs import JobBook, job_records, outbox
from tenure.jobs.attempts import RecordDispatched
from tenure.jobs.catalogue import RegisterWorkflows, offer_digest
from tenure.jobs.formats import RaiseFormat
from tenure.jobs.paged_book import PagedRestore, cut_pages
from tenure.jobs.queues import SetQueue
from tenure.jobs.stored_pages import joined
from tenure.jobs.work_indexes import NeedsTable, WaitingWork, WorkNeeds
from tenure.jobs.workers import ForgetWorker
from tenure.served_workflow import ServedWorkflow

JOBS, OBJECTS = 700, 256
LANES = ("default.p0",)


@pytest.fixture(autouse=True)
def few_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_records, "OBJECTS", OBJECTS)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.do(RaiseFormat())
    join(desk, "first", "w")
    return desk


def join(desk: Desk, worker: str, *names: str) -> None:
    served = tuple(ServedWorkflow(name=name, version="1") for name in names)
    offer = offer_digest(LANES, served)
    desk.do(RegisterWorkflows(worker=worker, incarnation="i1", offer=offer, lanes=LANES, workflows=served))


def leave(desk: Desk, worker: str) -> None:
    desk.do(ForgetWorker(worker=worker, reason="it left"))


def add(desk: Desk, name: str = "w", *, send: bool, park: bool = False, jobs: int = JOBS) -> None:
    for number in range(jobs):
        desk.at += 0.01
        job_id = f"{name}-{number:04}"
        desk.submit(job_id, spec(name, arguments={"number": number, "tenant": f"t{number % 3}"}), park=park)
        if send:
            desk.do(RecordDispatched(job_id=job_id, workflow=name, attempt=1))


def packed_and_left_alone(book: JobBook, *, but: int = 0) -> bool:
    return book.jobs.packed >= JOBS - 2 * OBJECTS and book.jobs.unpackings <= but and book.jobs.copies <= but


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("fgh"), st.sampled_from("fg"), st.booleans())))
def test_attempts_wait_in_the_order_in_which_they_came_whatever_their_names(
    steps: list[tuple[str, str, str, bool]],
) -> None:
    """Workflows named as their functions are kept under the id of their job, and several of one job must not be taken for one another."""
    waiting, model = WaitingWork(), dict[tuple[str, str], WorkNeeds]()
    functions: dict[tuple[str, str], str] = {}
    for job_id, name, function, came in steps:
        key = (job_id, name)
        if came:
            # The function of a workflow never changes, and work comes only while it does not wait.
            needs = WorkNeeds(("q", 0, functions.setdefault(key, function), ""), False, False)
            if key not in model:
                model[key] = needs
                waiting.put(key, needs)
        else:
            assert waiting.pop(key) == model.pop(key, None)
        assert list(waiting.items()) == list(model.items())
        assert (list(waiting), len(waiting)) == (list(model), len(model))
        assert {one for one in functions if one in waiting} == set(model)


def test_what_is_in_the_engine_is_looked_through_after_an_election_without_a_record(desk: Desk) -> None:
    add(desk, send=True)
    desk.elect("m-2")
    assert outbox.to_withdraw(desk.book) == []
    assert packed_and_left_alone(desk.book)


def test_only_work_that_nobody_serves_any_more_is_taken_back(desk: Desk) -> None:
    join(desk, "second", "other")
    add(desk, send=True)
    add(desk, "other", send=True, jobs=3)
    leave(desk, "second")
    assert outbox.to_withdraw(desk.book) == [(f"other-{number:04}", "other") for number in range(3)]
    assert outbox.to_withdraw(desk.book, shared_only=True) == [], "it is in the mailboxes of its workflow"
    desk.run("other-0001", "other")
    assert outbox.to_withdraw(desk.book) == [("other-0000", "other"), ("other-0002", "other")]
    leave(desk, "first")
    assert len(outbox.to_withdraw(desk.book, limit=2 * JOBS)) == JOBS + 2
    assert packed_and_left_alone(desk.book, but=1)


def test_parked_work_is_released_by_the_worker_that_came_and_parked_again_when_it_leaves(desk: Desk) -> None:
    add(desk, "late", send=False, park=True)
    desk.book.wake(desk.at)
    assert sum(map(len, desk.book.parked.values())) == JOBS
    join(desk, "second", "late")
    assert [len(waiting) for waiting in desk.book.ready.values()] == [JOBS]
    leave(desk, "second")
    assert sum(map(len, desk.book.parked.values())) == JOBS
    assert packed_and_left_alone(desk.book)


def test_a_cold_start_wakes_what_waits_without_unpacking_it(desk: Desk) -> None:
    desk.do(SetQueue(queue="default", paused=True))
    add(desk, send=False)
    cut = cut_pages(desk.book, 1, 1)
    reading = PagedRestore(cut.root, desk.settings)
    for section, ref in reading.wanted:
        encoded = joined(cut.blobs[key] for key in ref.keys(section))
        assert encoded is not None
        reading.add(section, ref, encoded)
    book = reading.book
    assert outbox.to_dispatch(book, desk.at) == []
    assert [len(waiting) for waiting in book.ready.values()] == [JOBS]
    assert packed_and_left_alone(book)


def test_a_queue_that_changes_looks_only_at_work_that_may_have_a_key(desk: Desk) -> None:
    add(desk, send=True)
    desk.do(SetQueue(queue="default", max_running=5))
    assert packed_and_left_alone(desk.book)
    desk.do(SetQueue(queue="default", concurrency_key="args.tenant"))
    assert sum(desk.book.turns.load.values()) == JOBS
    assert desk.book.jobs.unpackings == 0, "a copy says which key it has"


def test_jobs_with_the_same_needs_share_one_object(desk: Desk) -> None:
    add(desk, send=True, jobs=5)
    (waiting,) = desk.book.queued.values()
    assert len({id(needs) for _, needs in waiting.items()}) == 1
    table, workflow = NeedsTable(), desk.book.jobs["w-0000"].workflows["w"]
    assert table.of(("default", 0), workflow) is table.of(("default", 0), workflow)

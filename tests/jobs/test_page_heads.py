"""A start by the heads of pages gives the same book as one by their records, and decodes none of these."""

from __future__ import annotations

import zlib
from random import Random

import msgspec
import pytest
from tests.jobs.desk import Desk, spec
from tests.jobs.saved_books import Store, alike, fold, pack, same

from tenure.jobs import JobSettings, page_heads, paged_book
from tenure.jobs.attempt_results import RecordFailure
from tenure.jobs.attempts import RecordDispatched, RecordStarted
from tenure.jobs.decisions import Command
from tenure.jobs.endings import CancelJob
from tenure.jobs.formats import RaiseFormat
from tenure.jobs.job_kinds import KindTable
from tenure.jobs.model import WorkflowSpec
from tenure.jobs.page_heads import head_of, read_head
from tenure.jobs.queues import SetQueue
from tenure.jobs.state_pages import PAGE_RECORDS
from tenure.jobs.states import AttemptCause
from tenure.jobs.steering import PauseJob
from tenure.jobs.stored_pages import SavedRecords, joined, parted
from tenure.served_workflow import KeyLimit, Unique


def one_spec(rng: Random, *, keyed: bool) -> WorkflowSpec:
    return spec(
        rng.choice("ab"),
        function=rng.choice(("", "", "f")),
        arguments={"tenant": rng.choice("xy")},
        version=rng.choice(("", "", "2")),
        concurrency=KeyLimit(key="args.tenant") if keyed else None,
    )


def one_job(desk: Desk, rng: Random, job_id: str, *, keyed: bool) -> None:
    desk.submit(
        job_id,
        one_spec(rng, keyed=keyed),
        queue=rng.choice(("", "", "q1", "q2")),
        priority=rng.choice((None, None, 5)),
        idempotency_key=rng.choice(("", "", f"key {job_id}")),
        labels=rng.choice(({}, {}, {"tenant": "t"}, {"n": job_id})),
        timeout_seconds=rng.choice((None, None, 600)),
        delay=rng.choice((0.0, 0.0, 50.0)),
        unique=rng.choice((None, None, Unique(key=job_id, for_s=100))),
        park=True,
    )


def one_act(desk: Desk, rng: Random, job_id: str) -> None:
    """Does something to a job whose only workflow is "a" or "b"."""
    info = desk.book.jobs.look(job_id)
    if info is None or info.state.terminal:
        return
    (name,), (workflow,) = info.workflows, info.workflows.values()
    about = {"job_id": job_id, "workflow": name, "attempt": workflow.attempt}
    acts: list[Command] = [
        RecordDispatched(**about),
        RecordDispatched(**about),
        RecordDispatched(**about),
        RecordStarted(**about, worker="w1", incarnation="i", delivery=1),
        RecordFailure(**about, worker="w1", cause=AttemptCause.ERROR, error="no", delivery=1),
        PauseJob(job_id=job_id, by="ada"),
        CancelJob(job_id=job_id),
    ]
    desk.do(rng.choice(acts))


@pytest.mark.parametrize("seed", range(12))
def test_a_book_is_the_same_by_the_heads_of_its_pages_and_by_their_records(seed: int) -> None:
    rng, store = Random(seed), Store()
    settings = JobSettings(history_limit=rng.choice((0, 3, 200)), archive_after=0)
    desk = Desk(settings=settings)
    desk.do(RaiseFormat())
    heads, saved, keyed = 0, 0, seed % 4 == 0
    for seq in range(1, 7):
        desk.book.position = seq
        for number in range(PAGE_RECORDS):
            job_id = f"j-{seq}-{number}"
            one_job(desk, rng, job_id, keyed=keyed)
            if rng.random() < 0.9:
                desk.do(RecordDispatched(job_id=job_id, workflow=only(desk, job_id), attempt=1))
        for _ in range(rng.choice((0, 0, 1, 5))):
            one_act(desk, rng, f"j-{rng.randint(1, seq)}-{rng.randrange(PAGE_RECORDS)}")
        desk.at += 1.0
        if rng.random() < 0.5:
            desk.elect(f"m-{seq}")
        if rng.random() < 0.3:
            desk.do(SetQueue(queue="q1", concurrency_key=rng.choice(("", "labels.tenant"))))
        if rng.random() < 0.5:
            pack(desk.book)
        if rng.random() < 0.7 or seq == 6:
            store.save(desk.book, seq)
            heads, saved = heads + store.heads, seq
            alike(store.load(settings), store.load(settings, heads=False))
            same(store.load(settings), desk.book)
    tail = len(desk.journal)
    for _ in range(100):
        one_act(desk, rng, f"j-{rng.randint(1, 6)}-{rng.randrange(PAGE_RECORDS)}")
    events = [(saved + 1, event) for event in desk.journal[tail:]]
    same(fold(store.load(settings), events), desk.book)
    alike(fold(store.load(settings), events), fold(store.load(settings, heads=False), events))
    assert heads, "no page of this history had a head"


def only(desk: Desk, job_id: str) -> str:
    info = desk.book.jobs.look(job_id)
    assert info is not None
    return next(iter(info.workflows))


def waiting(jobs: int, **options: object) -> Desk:
    desk = Desk()
    desk.do(RaiseFormat())
    for number in range(jobs):
        desk.submit(f"j-{number}", spec("w", **options))
        desk.do(RecordDispatched(job_id=f"j-{number}", workflow="w", attempt=1))
    return desk


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the sections of the pages whose records are decoded from here on."""
    found: list[str] = []
    usual = paged_book.read_page

    def read_page(section: object, encoded: bytes) -> object:
        found.append(str(section))
        return usual(section, encoded)  # type: ignore[arg-type]

    monkeypatch.setattr(paged_book, "read_page", read_page)
    return found


def test_a_start_decodes_no_record_of_jobs_that_wait_and_all_of_a_page_with_one_that_runs(decoded: list[str]) -> None:
    desk, store = waiting(3 * PAGE_RECORDS), Store()
    store.save(desk.book, 1)
    book = store.load()
    assert (decoded, book.jobs.copies, book.jobs.unpackings) == ([], 0, 0)
    desk.book.position = 2
    desk.run("j-70", "w")
    store.save(desk.book, 2)
    same(store.load(), desk.book)
    assert decoded == ["jobs"]


def test_a_page_that_was_packed_is_saved_without_decoding_it(decoded: list[str]) -> None:
    desk, store = waiting(2 * PAGE_RECORDS), Store()
    pack(desk.book)
    store.save(desk.book, 1)
    assert (store.heads, desk.book.jobs.copies) == (2, 0)
    alike(store.load(), store.load(heads=False))
    desk.book.position = 2
    desk.elect("m-2")
    pack(desk.book)
    desk.book.jobs["j-0"].reason = "changed"
    desk.book.pages.sections["jobs"].changed("j-0", 2)  # type: ignore[union-attr]
    store.save(desk.book, 2)
    alike(store.load(), store.load(heads=False))
    same(store.load(), desk.book)


def test_heads_of_work_whose_queue_got_a_key_since_are_not_enough(decoded: list[str]) -> None:
    desk, store = waiting(PAGE_RECORDS, arguments={"tenant": "t"}), Store()
    store.save(desk.book, 1)
    desk.book.position = 2
    desk.do(SetQueue(queue="default", concurrency_key="args.tenant"))
    assert not store.save(desk.book, 2).blobs
    assert store.load().turns.load == desk.book.turns.load == {("default", "t"): PAGE_RECORDS}
    assert decoded == ["jobs"]


def changed_head(store: Store, change: object) -> None:
    """Changes the heads of all pages, and mends their checksums."""
    for key, blob in store.blobs.items():
        records, head = parted(joined([blob]) or b"")
        stored = SavedRecords(records, 0, change(head)).stored  # type: ignore[operator]
        store.blobs[key] = page_checksum(stored) + stored


def page_checksum(stored: bytes) -> bytes:
    return zlib.crc32(stored).to_bytes(4, "little")


def field(place: int, value: object) -> object:
    def change(head: bytes) -> bytes:
        fields = msgspec.msgpack.decode(head)
        fields[place] = value
        return msgspec.msgpack.encode(fields)

    return change


IDS, RUNS, KINDS, ATTENDED = 1, 2, 3, 9


@pytest.mark.parametrize(
    "change",
    [
        lambda head: b"",
        lambda head: head[: len(head) // 2],
        lambda head: b"\x91" * 5_000,
        field(0, "another release"),
        field(IDS, ["j-0"]),
        field(IDS, ["j-0"] * PAGE_RECORDS),
        field(RUNS, []),
        field(KINDS, []),
        field(ATTENDED, [PAGE_RECORDS]),
        field(ATTENDED, [-1]),
    ],
)
def test_a_head_that_is_damaged_or_of_another_release_counts_for_nothing(change: object, decoded: list[str]) -> None:
    desk, store = waiting(PAGE_RECORDS), Store()
    store.save(desk.book, 1)
    changed_head(store, change)
    book = store.load()
    same(book, desk.book)
    assert decoded == ["jobs"]
    (page,) = book.jobs.packed_pages.values()
    assert parted(page.bytes) == (page.bytes, b""), "it is not kept in memory"


def test_records_that_end_as_a_head_would_are_read_whole(decoded: list[str]) -> None:
    desk, store = waiting(2), Store()
    store.save(desk.book, 1)
    ((key, blob),) = store.blobs.items()
    records = parted(joined([blob]) or b"")[0]
    for tail in (b"head", b"\0\0\0\0head", b"\5\0\0\0head", b"\xff\xff\xff\xffhead"):
        store.blobs[key] = page_checksum(records + tail) + records + tail
        same(store.load(), desk.book)
    assert decoded == ["jobs"] * 4


def test_a_release_without_heads_reads_pages_with_them() -> None:
    desk, store = waiting(PAGE_RECORDS), Store()
    store.save(desk.book, 1)
    ((_, blob),) = store.blobs.items()
    stored = joined([blob]) or b""
    assert parted(stored)[1]
    inflating = zlib.decompressobj()
    assert inflating.decompress(stored) == zlib.decompress(parted(stored)[0]), "what such a release did"
    assert inflating.eof


def test_a_head_is_not_believed_by_a_release_whose_records_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = waiting(2)
    head = head_of(map(desk.book.jobs.__getitem__, ("j-0", "j-1")), KindTable())
    assert read_head(head) is not None
    monkeypatch.setattr(page_heads, "readers_mark", lambda: "another")
    assert read_head(head) is None


def test_a_head_takes_a_few_bytes_for_each_job() -> None:
    desk = waiting(PAGE_RECORDS)
    assert len(head_of(desk.book.jobs.values(), KindTable())) < 12 * PAGE_RECORDS

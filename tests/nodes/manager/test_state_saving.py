"""The state of a datacenter of format 2 is saved in pages: managers on one memory engine, with a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.nodes.manager.harness import ManagerGroup, submission
from tests.nodes.manager.harness import run_group as run

from tenure.cli.journal import KINDS
from tenure.clock import ManualClock
from tenure.engines import MemoryEngine
from tenure.engines.aio import calls_for
from tenure.engines.contracts import Store
from tenure.jobs import JobBook, state_pages
from tenure.jobs.endings import CancelJob
from tenure.jobs.state_pages import PackedPages, PageName, StatePages, is_paged
from tenure.jobs.submission import SubmitJob
from tenure.nodes.journal_checksum import opened
from tenure.nodes.journal_repair import examine, mend
from tenure.nodes.manager.leader import JobLeadership
from tenure.nodes.manager.ledger import JOURNAL
from tenure.nodes.saved_journal import PACKED_AT_ONCE
from tenure.nodes.state_saving import DELETED_AT_ONCE, UNNAMED_FOR_S, StateCut, StateSaver

PAGED = {"raise_format": None, "snapshot_every": 5}


class Calls:
    """Passes calls on. `before` is called with the name of each, and may raise."""

    def __init__(self, group: ManagerGroup) -> None:
        self._calls = calls_for(group.engine)
        self.before: Callable[[str], None] = lambda name: None

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.before(getattr(function, "__name__", ""))
        return await self._calls.run(function, *args, **options)


def saved_at(group: ManagerGroup) -> int:
    snapshot = group.engine.journal(JOURNAL).latest_snapshot()
    return snapshot.seq if snapshot is not None and is_paged(opened(snapshot).state) else 0


def pages(group: ManagerGroup) -> list[str]:
    return group.engine.store(f"{JOURNAL}.pages").list()


async def submit(node: JobLeadership, *numbers: int) -> None:
    for number in numbers:
        await node.commit(SubmitJob(submission=submission(f"j-{number}")))


async def leading(group: ManagerGroup, name: str, **options: Any) -> JobLeadership:
    _, node = group.open(name, setup=PAGED, **options)
    await group.until(lambda: node.leader and node.ledger.book.pages is not None)
    return node


def test_a_new_manager_reads_the_pages_and_what_came_after_them() -> None:
    async def story(group: ManagerGroup) -> None:
        first = await leading(group, "m-1")
        await submit(first, *range(200))
        await group.until(lambda: saved_at(group) >= 150)
        assert len(pages(group)) >= 3
        await submit(first, 200)
        second = group.manager("m-2", setup=PAGED)
        await group.until(lambda: len(second.ledger.book.jobs) == 201)
        await group.until(lambda: second.ledger.book.snapshot() == first.ledger.book.snapshot())
        assert second.ledger.book.pages is not None

    run(story)


def test_a_takeover_saves_only_what_changed() -> None:
    async def story(group: ManagerGroup) -> None:
        first = await leading(group, "m-1")
        await submit(first, *range(300))
        second = group.manager("m-2", setup=PAGED)
        await group.until(lambda: saved_at(group) >= 300 and second.ledger.seq >= 300)
        await group.kill("m-1")
        await group.until(lambda: second.leader, seconds=30)
        before, at = set(pages(group)), saved_at(group)
        for _ in range(10):
            await second.commit(SubmitJob(submission=submission("j-new")))
            await second.commit(CancelJob(job_id="j-299"))
            await submit(second, 301, 302)
        await group.until(lambda: saved_at(group) > at)
        new = {key for key in pages(group) if key not in before}
        assert {key.split("/")[1] for key in new if key.startswith("jobs/")} == {"4"}

    run(story)


@pytest.mark.parametrize("step", ["put", "snapshot", "truncate"])
def test_a_leader_that_dies_while_it_saves_leaves_a_state_that_can_be_read(step: str) -> None:
    async def story(group: ManagerGroup) -> None:
        calls = Calls(group)
        first = await leading(group, "m-1", calls=calls)
        await submit(first, *range(100))
        await group.until(lambda: saved_at(group) >= 90)
        died = asyncio.Event()

        def die(name: str) -> None:
            if name == step:
                died.set()
                raise asyncio.CancelledError

        calls.before = die
        for number in range(100, 120):
            await submit(first, number)
        await group.until(died.is_set)
        await group.kill("m-1")
        second = await leading(group, "m-2")
        assert [f"j-{number}" for number in range(120)] == list(second.ledger.book.jobs)
        await submit(second, *range(120, 140))
        at = saved_at(group)
        await group.until(lambda: saved_at(group) > at or saved_at(group) >= 140)
        third = group.manager("m-3", setup=PAGED)
        await group.until(lambda: third.ledger.book.snapshot() == second.ledger.book.snapshot())

    run(story)


def test_pages_that_no_snapshot_names_are_deleted_after_a_while() -> None:
    async def story(group: ManagerGroup) -> None:
        first = await leading(group, "m-1")
        await submit(first, *range(100))
        most = 0
        for number in range(60):
            await first.commit(CancelJob(job_id=f"j-{number}"))
            until = group.clock.boottime() + 3
            await group.until(lambda until=until: group.clock.boottime() >= until)  # type: ignore[misc]
            most = max(most, len(pages(group)))
        assert most < 50  # each of the 60 savings wrote at least one
        second = group.manager("m-2", setup=PAGED)
        await group.until(lambda: second.ledger.book.snapshot() == first.ledger.book.snapshot())

    run(story)


def count(store: Store) -> int:
    found, after = 0, None
    while some := store.list(after=after):
        found, after = found + len(some), some[-1]
    return found


def test_pages_that_no_snapshot_names_do_not_pile_up_however_many_each_saving_replaces() -> None:
    async def story() -> list[int]:
        clock, kept = ManualClock(), list[int]()
        engine = MemoryEngine(clock=clock)
        journal, store = engine.journal(JOURNAL), engine.store("pages")
        saver = StateSaver(journal, store, calls_for(engine), clock)
        for seq in range(1, 31):
            journal.append([b"{}"], epoch=1, expect=seq - 1, append_id=f"{seq}")
            blobs = {f"{seq}/{number}": b"page" for number in range(3 * DELETED_AT_ONCE)}
            await saver.save(StateCut(seq, b"root", blobs, frozenset(blobs)), b"root", 1, 0)
            clock.advance(UNNAMED_FOR_S)
            kept.append(count(store))
        return kept

    found = asyncio.run(story())
    assert found[-1] == found[3], (
        "the newest, and those that were replaced a minute ago, which somebody may just be reading"
    )


def test_a_page_that_is_lost_is_damage_and_names_the_page() -> None:
    async def story(group: ManagerGroup) -> None:
        first = await leading(group, "m-1")
        await submit(first, *range(100))
        await group.until(lambda: saved_at(group) >= 90)
        await group.kill("m-1")
        for key in pages(group):
            if key.startswith("jobs/0/"):
                group.engine.store(f"{JOURNAL}.pages").delete(key)
        manager, _ = group.open("m-2", setup=PAGED)
        await group.until(lambda: manager.ledger.damage is not None)
        assert "page 0 of jobs is missing" in manager.unready["journal"]

    run(story)


def test_a_saving_of_hundreds_of_pages_costs_no_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding a page costs time in which nothing else runs. Here it costs a tenth of a second, so all of them cost more than two terms."""
    monkeypatch.setattr(state_pages, "PAGE_RECORDS", 2)
    steps: list[int] = []

    async def story(group: ManagerGroup) -> None:
        encode = StatePages.pack

        def slow(self: StatePages, book: JobBook, some: Iterable[PageName], seq: int, epoch: int) -> PackedPages:
            packed = encode(self, book, some, seq, epoch)
            if packed.blobs:
                steps.append(len(packed.blobs))
                group.clock.advance(0.1 * len(packed.blobs))
            return packed

        monkeypatch.setattr(StatePages, "pack", slow)
        first = group.open("m-1", setup={"raise_format": None, "snapshot_every": 10})[1]
        await group.until(lambda: first.leader and first.ledger.book.pages is not None)
        epoch = first.ledger.epoch
        await first.commit_all([SubmitJob(submission=submission(f"j-{number}")) for number in range(400)])
        await submit(first, *range(400, 412))
        await group.until(lambda: saved_at(group))
        assert sum(steps) > 200
        assert max(steps) <= PACKED_AT_ONCE
        assert first.leader, group.said
        assert first.ledger.epoch == epoch, group.said
        second = group.manager("m-2", setup=PAGED)
        await group.until(lambda: second.ledger.book.snapshot() == first.ledger.book.snapshot())

    run(story)


@pytest.mark.parametrize("raise_format", [None, False])
def test_the_state_is_saved_under_steady_load(raise_format: bool | None) -> None:
    async def story(group: ManagerGroup) -> None:
        _, node = group.open("m-1", setup={"raise_format": raise_format, "snapshot_every": 20})
        await group.until(lambda: node.leader)
        rested = 0
        number = 0

        async def client(name: str) -> None:
            nonlocal rested, number
            while True:
                number += 1
                await submit(node, number)
                rested += not node.ledger.writing

        clients = [asyncio.create_task(client(f"c-{one}")) for one in range(3)]
        journal = group.engine.journal(JOURNAL)
        await group.until(lambda: (found := journal.latest_snapshot()) and found.seq > 60)
        for one in clients:
            one.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    run(story)


def test_a_datacenter_of_an_earlier_release_keeps_its_format_until_it_is_raised() -> None:
    async def story(group: ManagerGroup) -> None:
        _, first = group.open("m-1", setup={"snapshot_every": 5})
        await group.until(lambda: first.leader)
        await submit(first, *range(20))
        await group.kill("m-1")
        _, second = group.open("m-2", setup=PAGED)
        await group.until(lambda: second.leader, seconds=30)
        await submit(second, *range(20, 40))
        journal = group.engine.journal(JOURNAL)
        await group.until(lambda: journal.latest_snapshot() is not None)
        assert second.ledger.book.pages is None
        assert not saved_at(group)
        await group.kill("m-2")
        _, third = group.open("m-3", setup={"snapshot_every": 5, "raise_format": True})
        await group.until(lambda: third.ledger.book.pages is not None, seconds=30)
        await submit(third, *range(40, 60))
        await group.until(lambda: saved_at(group))
        fourth = group.manager("m-4", setup=PAGED)
        await group.until(lambda: fourth.ledger.book.snapshot() == third.ledger.book.snapshot())
        assert len(fourth.ledger.book.jobs) == 60

    run(story)


def test_a_damaged_journal_above_pages_is_mended_in_pages() -> None:
    async def story(group: ManagerGroup) -> None:
        first = await leading(group, "m-1")
        await submit(first, *range(100))
        await group.until(lambda: saved_at(group) >= 90)
        await group.kill("m-1")
        journal, store = group.engine.journal(JOURNAL), group.engine.store(f"{JOURNAL}.pages")
        whole = examine(journal, KINDS["manager"], store)
        assert (whole.damages, whole.paged) == ((), True)
        head = journal.head()
        event = b'{"type":"JobCleaned","at":1.0,"job_id":"nobody"}'
        journal.append([event], epoch=head.epoch, expect=head.seq, append_id="0" * 32)
        found = examine(journal, KINDS["manager"], store)
        assert [one.seq for one in found.damages] == [head.seq + 1]
        mend(journal, found, store)
        assert saved_at(group) == head.seq + 1
        second = await leading(group, "m-2")
        assert len(second.ledger.book.jobs) == 100
        await submit(second, *range(100, 120))
        third = group.manager("m-3", setup=PAGED)
        await group.until(lambda: third.ledger.book.snapshot() == second.ledger.book.snapshot())

    run(story)

"""A manager whose journal is damaged stays up, refuses to lead, says which entry and what to do, and goes on once it is mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.changed import changed
from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control.messages.jobs import Done, GetJob, ListJobs, Submit
from tenure.control.messages.wire import Problem, ProblemKind, Redirect
from tenure.engines.contracts import Entry
from tenure.engines.memory.journal import MemoryJournal
from tenure.jobs.alarms import AlarmKind
from tenure.nodes.manager.ledger import JOURNAL, DatacenterRules


def log_of(group: ManagerGroup) -> Any:
    return group.engine.journal(JOURNAL).log


async def led_and_stopped(
    group: ManagerGroup, until: Callable[[], Any] = lambda: True, setup: dict[str, Any] | None = None, jobs: int = 3
) -> None:
    """A journal with a few entries, and nobody who leads."""
    first, _ = group.open("m-1", setup=setup)
    await group.until(lambda: first.leads)
    for number in range(jobs):
        assert isinstance(await ask(first, Submit(submission=submission(f"j-{number}"))), Done)
        await group.until(lambda: not first.ledger.writing)
    await group.until(until)
    await group.kill("m-1")


def damaged(entry: Entry, **changes: Any) -> Entry:
    return changed(entry, **(changes or {"events": (entry.events[0].replace(b"at", b"ta"), *entry.events[1:])}))


DAMAGE = {
    "a byte": lambda entry: damaged(entry),
    "undecodable": lambda entry: damaged(entry, events=(), damage="its events are no list of byte strings"),
    "not an event": lambda entry: damaged(entry, append_id="0" * 32, events=(b"{",)),
    "not text": lambda entry: damaged(
        entry, append_id="0" * 32, events=(b'{"type":"JobCleaned","at":1.0,"job_id":"\xff"}',)
    ),
    "not applicable": lambda entry: damaged(
        entry, append_id="0" * 32, events=(b'{"type":"JobCleaned","at":1.0,"job_id":"nobody"}',)
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_manager_stays_up_refuses_to_lead_and_says_which_entry(kind: str) -> None:
    async def story(group: ManagerGroup) -> None:
        await led_and_stopped(group)
        log = log_of(group)
        whole = log.entries[2]
        log.entries[2] = DAMAGE[kind](whole)
        manager, _ = group.open("m-2")
        await group.until(lambda: manager.ledger.damage is not None, seconds=60)
        await group.until(lambda: any("refuses to lead" in text for text in group.said))
        assert not manager.leads
        assert "entry 3 of journal 'jobs'" in manager.unready["journal"]
        manager.observer.look()
        (alarm,) = manager.observer.alarms
        assert (alarm.kind, alarm.subject) == (AlarmKind.JOURNAL_DAMAGED, "jobs")
        assert "tenure journal check" in alarm.remedy
        for request in (Submit(submission=submission("j-9")), GetJob(job_id="j-0"), ListJobs()):
            answer = await ask(manager, request)
            assert isinstance(answer, Problem)
            assert (answer.kind, answer.retryable) == (ProblemKind.UNAVAILABLE, False)
            assert "entry 3" in answer.fact
            assert "tenure journal" in answer.remedy
        assert not group.tasks["m-2"].done()
        assert sum("refuses to lead" in text for text in group.said) == 1
        log.entries[2] = whole
        await group.until(lambda: manager.leads, seconds=60)
        assert manager.unready == {}
        assert (await ask(manager, Submit(submission=submission("j-9")))).job_id == "j-9"

    run(story)


def test_a_missing_entry_is_named() -> None:
    async def story(group: ManagerGroup) -> None:
        await led_and_stopped(group)
        log = log_of(group)
        log.entries[2] = log.entries[3]
        manager, _ = group.open("m-2")
        await group.until(lambda: manager.ledger.damage is not None, seconds=60)
        assert "entry 3 of journal 'jobs' is damaged: it is missing" in manager.unready["journal"]

    run(story)


def test_an_event_of_a_newer_release_is_told_from_damage() -> None:
    async def story(group: ManagerGroup) -> None:
        await led_and_stopped(group)
        log = log_of(group)
        log.entries[2] = damaged(log.entries[2], append_id="0" * 32, events=(b'{"type":"ColumnsAdded","at":1.0}',))
        manager, _ = group.open("m-2")
        await group.until(lambda: manager.ledger.damage is not None, seconds=60)
        assert "knows no event of the kind 'ColumnsAdded'" in manager.unready["journal"]
        assert "newer Tenure" in manager.unready["journal"]

    run(story)


@pytest.mark.parametrize("kept", [True, False])
def test_a_damaged_snapshot_is_named_and_says_whether_it_can_be_made_again(kept: bool, monkeypatch: Any) -> None:
    async def story(group: ManagerGroup) -> None:
        if kept:
            monkeypatch.setattr(MemoryJournal, "truncate", lambda self, seq: None)
        log = log_of(group)
        await led_and_stopped(
            group, until=lambda: log.snapshot and (kept or log.first > 1), setup={"snapshot_every": 2}, jobs=12
        )
        state = log.snapshot.state
        log.snapshot = changed(log.snapshot, state=state[:-1] + bytes([state[-1] ^ 1]))
        manager, _ = group.open("m-2")
        await group.until(lambda: manager.ledger.damage is not None, seconds=60)
        assert f"the snapshot at {log.snapshot.seq} of journal 'jobs'" in manager.unready["journal"]
        hint = "can be made again" if kept else "the entries below it are gone"
        assert hint in manager.unready["journal"]

    run(story)


def test_a_snapshot_of_a_newer_format_says_so() -> None:
    async def story(group: ManagerGroup) -> None:
        await led_and_stopped(group)
        log = log_of(group)
        newer = msgspec.msgpack.encode({"version": 3, "jobs": {}})
        group.engine.journal(JOURNAL).snapshot(newer, 2, epoch=log.head.epoch)
        manager, _ = group.open("m-2")
        await group.until(lambda: manager.ledger.damage is not None, seconds=60)
        assert "version 3, and this Tenure reads up to 2" in manager.unready["journal"]
        assert "Start the newer version again" in manager.unready["journal"]

    run(story)


def test_a_standby_that_meets_damage_sends_writers_on_to_the_leader() -> None:
    async def story(group: ManagerGroup) -> None:
        first, _ = group.open("m-1")
        await group.until(lambda: first.leads)
        second, leadership = group.open("m-2")
        await group.until(lambda: second.ledger.seq > 0)
        log = log_of(group)
        assert isinstance(await ask(first, Submit(submission=submission("j-1"))), Done)
        log.entries[-1] = damaged(log.entries[-1])  # before the standby is woken
        await group.until(lambda: second.ledger.damage is not None, seconds=60)
        await group.until(lambda: leadership.term_is_current, seconds=30)
        assert isinstance(await ask(second, Submit(submission=submission("j-2"))), Redirect)
        assert "journal" in second.unready
        assert first.leads
        assert isinstance(await ask(first, Submit(submission=submission("j-2"))), Done)

    run(story)


def test_a_leader_that_lives_heals_the_journal_with_its_next_snapshot() -> None:
    """It has the state in its memory: its standbys come back by themselves, and nothing is lost."""

    async def story(group: ManagerGroup) -> None:
        first, _ = group.open("m-1")
        await group.until(lambda: first.leads)
        second, _ = group.open("m-2")
        await group.until(lambda: second.ledger.seq > 0)
        assert isinstance(await ask(first, Submit(submission=submission("j-1"))), Done)
        log = log_of(group)
        log.entries[-1] = damaged(log.entries[-1])
        await group.until(lambda: second.ledger.damage is not None, seconds=60)
        first.ledger.rules = DatacenterRules(snapshot_every=1)
        assert isinstance(await ask(first, Submit(submission=submission("j-2"))), Done)
        await group.until(lambda: second.ledger.damage is None, seconds=60)
        assert set(second.ledger.book.jobs) == {"j-1", "j-2"}
        assert first.leads

    run(story)

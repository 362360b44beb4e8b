"""Following a datacenter's decisions: in order, without a gap, from any manager, however slow the listener is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control import event_feed
from tenure.control.messages.events import Cursor, EventPage, GetEvents, ProgressLine, parse_cursor
from tenure.control.messages.jobs import Cancel, JobList, JobView, Submit
from tenure.control.messages.wire import Problem
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.control.streams import StreamFormat, StreamItem, encode, format_for
from tenure.errors import ConfigurationError, DeposedError
from tenure.nodes.manager.ledger import JOURNAL
from tenure.nodes.manager.manager import Manager


class Listener:
    """Takes what a stream tells, in the background."""

    def __init__(self, manager: Manager, **asked: Any) -> None:
        self.told: list[StreamItem] = []
        self.task = asyncio.create_task(self._listen(manager.events.stream(GetEvents(**asked))))

    async def _listen(self, stream: AsyncGenerator[list[StreamItem], None]) -> None:
        async with aclosing(stream):
            async for batch in stream:
                self.told += batch

    @property
    def events(self) -> list[StreamItem]:
        return [told for told in self.told if told.what == "event"]

    @property
    def kinds(self) -> list[str]:
        return [told.name for told in self.events]

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def led(group: ManagerGroup, name: str = "m-1") -> Manager:
    manager, _ = group.open(name)
    await group.until(lambda: manager.leads)
    return manager


async def completed(group: ManagerGroup, manager: Manager, job_id: str) -> None:
    await ask(manager, Submit(submission=submission(job_id)))
    await group.until(lambda: group.work.depth().ready)
    group.answer(group.claim(), 1)
    await group.until(lambda: manager.jobs.has_ended(job_id))


async def settled(group: ManagerGroup, manager: Manager) -> None:
    """Nothing is being written, nor about to be."""
    journal, last = group.engine.journal(JOURNAL), -1
    while journal.head().seq != last:
        last = journal.head().seq
        for _ in range(200):
            await asyncio.sleep(0)


def everything(group: ManagerGroup) -> list[bytes]:
    return [event for entry in group.engine.journal(JOURNAL).read() for event in entry.events]


def test_a_stream_tells_everything_in_order_and_a_page_tells_the_same() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        listener = Listener(manager, after="0")
        for number in range(5):
            await completed(group, manager, f"j-{number}")
        await group.until(lambda: [told.data for told in listener.events] == everything(group))
        page = await ask(manager, GetEvents(after="0", limit=1_000))
        assert isinstance(page, EventPage)
        assert [(line.cursor, bytes(line.event)) for line in page.events] == [
            (told.cursor, told.data) for told in listener.events
        ]
        assert len(listener.events) > 20
        await listener.leave()
        assert manager.events.listeners == 0

    run(story)


def test_from_every_cursor_exactly_the_rest_is_told_also_inside_an_append() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await asyncio.gather(*(ask(manager, Submit(submission=submission(f"j-{n}"))) for n in range(6)))
        await asyncio.gather(*(ask(manager, Cancel(job_id=f"j-{n}")) for n in range(6)))
        await settled(group, manager)
        whole = (await ask(manager, GetEvents(after="0", limit=1_000))).events
        assert any("." in line.cursor for line in whole)
        for at, line in enumerate(whole):
            rest = await ask(manager, GetEvents(after=line.cursor, limit=1_000))
            assert rest.events == whole[at + 1 :]
        one_by_one, after = [], "0"
        while (page := await ask(manager, GetEvents(after=after, limit=1))).events:
            one_by_one += page.events
            after = page.cursor
        assert tuple(one_by_one) == whole

    run(story)


def test_without_a_cursor_only_what_comes_is_told() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("before")))
        await group.until(lambda: group.work.depth().ready)
        await asyncio.sleep(0)
        listener = Listener(manager)
        await group.until(lambda: listener.told)
        assert listener.told[0].what == "beat"
        await ask(manager, Submit(submission=submission("after")))
        await group.until(lambda: "JobSubmitted" in listener.kinds)
        assert [b'"after"' in told.data for told in listener.events if told.name == "JobSubmitted"] == [True]
        await listener.leave()

    run(story)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"job_id": "b"}, lambda event: event.get("job_id") == "b"),
        ({"queue": "other"}, lambda event: event.get("job_id") == "c"),
        ({"kind": ("JobSubmitted", "JobEnded")}, lambda event: event["type"] in ("JobSubmitted", "JobEnded")),
        ({"job_id": "a", "kind": ("JobEnded",)}, lambda event: event["type"] == "JobEnded" and event["job_id"] == "a"),
    ],
)
def test_a_filter_leaves_out_exactly_what_was_not_asked_for(asked: Any, wanted: Callable[[Any], bool]) -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        for job_id, queue in (("a", "default"), ("b", "default"), ("c", "other")):
            await ask(manager, Submit(submission=submission(job_id, queue=queue)))
            await ask(manager, Cancel(job_id=job_id))
        await settled(group, manager)
        expected = [event for event in everything(group) if wanted(msgspec.json.decode(event))]
        page = await ask(manager, GetEvents(after="0", limit=1_000, **asked))
        assert [bytes(line.event) for line in page.events] == expected
        assert expected
        # The cursor is past what did not match, so that it need not be looked at again.
        assert parse_cursor(page.cursor) == Cursor(group.engine.journal(JOURNAL).head().seq)

    run(story)


def test_a_page_is_held_back_until_there_is_something() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await settled(group, manager)
        began = group.clock.boottime()
        waiting = asyncio.create_task(ask(manager, GetEvents(kind=("JobEnded",), wait_s=20)))
        await group.until(waiting.done)
        assert (waiting.result().events, group.clock.boottime() - began >= 20) == ((), True)
        waiting = asyncio.create_task(ask(manager, GetEvents(kind=("JobEnded",), wait_s=30)))
        await group.until(lambda: manager.events.listeners)
        began = group.clock.boottime()
        await completed(group, manager, "j")
        await group.until(waiting.done)
        assert [line.cursor for line in waiting.result().events]
        assert group.clock.boottime() - began < 10

    run(story)


def test_a_listener_goes_on_at_another_manager_after_the_leader_was_lost_without_a_gap() -> None:
    async def story(group: ManagerGroup) -> None:
        first = await led(group)
        second, _ = group.open("m-2")
        listener = Listener(first, after="0")
        await completed(group, first, "j-1")
        await group.until(lambda: "JobEnded" in listener.kinds)
        seen = list(listener.events)
        group.tasks["m-1"].cancel()
        await group.until(lambda: second.leads and listener.task.done())
        await completed(group, second, "j-2")
        resumed = Listener(second, after=seen[-1].cursor)
        await group.until(lambda: [told.data for told in seen + resumed.events] == everything(group))
        assert sum(told.name == "LeaderElected" for told in seen + resumed.events) == 2
        await resumed.leave()

    run(story)


def test_behind_what_the_journal_keeps_there_is_a_gap_with_the_state_and_then_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await completed(group, manager, "old")
        ledger = manager.leadership.ledger
        journal = group.engine.journal(JOURNAL)
        await settled(group, manager)
        cut = ledger.seq
        journal.snapshot(ledger.book.snapshot(), cut, epoch=manager.leadership.epoch)
        journal.truncate(cut)
        page = await ask(manager, GetEvents(after="0"))
        assert page.gap is not None
        assert (page.gap.after, parse_cursor(page.gap.cursor).seq >= cut) == ("0", True)
        assert isinstance(page.gap.state, JobList)
        assert [row.job_id for row in page.gap.state.jobs] == ["old"]
        assert "are gone" in page.gap.reason
        listener = Listener(manager, after="1", job_id="old")
        await group.until(lambda: any(told.what == "gap" for told in listener.told))
        told = next(told for told in listener.told if told.what == "gap")
        assert msgspec.json.decode(told.data)["state"]["state"] == "completed"
        await ask(manager, Submit(submission=submission("new")))
        after = await ask(manager, GetEvents(after=told.cursor))
        assert (after.gap, [b'"new"' in bytes(line.event) for line in after.events][:1]) == (None, [True])
        await listener.leave()

    run(story)


def test_a_cursor_that_is_ahead_of_the_journal_is_a_gap_and_not_a_silence() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        page = await ask(manager, GetEvents(after="999999", job_id="nobody"))
        assert page.gap is not None
        assert page.gap.state is None
        assert isinstance(page.gap, event_feed.EventGap)
        assert not isinstance(page.gap.state, JobView)

    run(story)


def test_many_who_come_and_go_at_once_hear_everything_once() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        crowd: list[Listener] = []
        for number in range(12):
            crowd += [Listener(manager, after="0") for _ in range(3)]
            await asyncio.gather(
                ask(manager, Submit(submission=submission(f"j-{number}"))),
                *(ask(manager, GetEvents(after="0", limit=1)) for _ in range(3)),
            )
            if number % 4 == 3:
                for listener in crowd:
                    await listener.leave()
                crowd.clear()
                assert manager.events.listeners == 0
        crowd += [Listener(manager, after="0") for _ in range(5)]
        await group.until(lambda: all(len(one.events) >= len(everything(group)) for one in crowd))
        for listener in crowd:
            assert [told.data for told in listener.events] == everything(group)
            await listener.leave()

    run(story)


def test_a_slow_listener_has_no_queue_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "KEPT_ENTRIES", 3)

    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        stream = manager.events.stream(GetEvents(after="0"))
        first = await anext(stream)
        fast = Listener(manager, after="0")
        for number in range(10):
            await completed(group, manager, f"j-{number}")
        await group.until(lambda: [told.data for told in fast.events] == everything(group))
        assert manager.events.kept_entries <= 3
        slow = list(first)
        while [told.data for told in slow if told.what == "event"] != everything(group):
            slow += await anext(stream)
        await stream.aclose()
        await fast.leave()
        assert manager.events.kept_entries == 0

    run(story)


def test_a_stream_with_nothing_to_tell_says_where_it_is() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        listener = Listener(manager, job_id="nobody")
        await group.until(lambda: len(listener.told) >= 3)
        await ask(manager, Submit(submission=submission("somebody-elses")))
        seq = group.engine.journal(JOURNAL).head().seq
        await group.until(lambda: parse_cursor(listener.told[-1].cursor).seq >= seq)
        assert {told.what for told in listener.told} == {"beat"}
        await listener.leave()

    run(story)


@pytest.mark.parametrize("after", ["x", "-1", "1.x", ".", "1.", "1e3", "٣", "9" * 30, "1.1.1"])
def test_what_is_no_cursor_is_refused(after: str) -> None:
    with pytest.raises(ConfigurationError, match="no cursor"):
        parse_cursor(after)

    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        reply = await ask(manager, GetEvents(after=after))
        assert isinstance(reply, Problem)
        assert reply.kind == "invalid"

    run(story)


def test_on_the_wire_an_event_is_one_block_or_one_line() -> None:
    told = StreamItem("event", "7.2", "JobEnded", b'{"type":"JobEnded"}')
    assert encode(told, StreamFormat.SSE) == b'id: 7.2\nevent: JobEnded\ndata: {"type":"JobEnded"}\n\n'
    assert msgspec.json.decode(encode(told, StreamFormat.LINES)) == {
        "what": "event",
        "cursor": "7.2",
        "event": {"type": "JobEnded"},
    }
    assert encode(StreamItem("beat", "9"), StreamFormat.SSE) == b": beat\nid: 9\n\n"
    assert msgspec.json.decode(encode(StreamItem("beat", "9"), StreamFormat.LINES)) == {"what": "beat", "cursor": "9"}


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", StreamFormat.SSE),
        ("*/*", StreamFormat.SSE),
        ("text/event-stream", StreamFormat.SSE),
        ("application/x-ndjson", StreamFormat.LINES),
        ("application/jsonl;q=0.9, */*", StreamFormat.LINES),
        ("application/json", None),
        ("image/png", StreamFormat.SSE),
    ],
)
def test_the_form_of_a_stream_is_what_was_asked_for(accept: str, form: StreamFormat | None) -> None:
    assert format_for(accept) is form


def test_a_stream_with_progress_tells_what_runs_at_most_once_a_second_and_a_standby_knows_nothing_of_it() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("j")))
        await group.until(lambda: group.work.depth().ready)
        listener = Listener(manager, job_id="j", progress=True)
        for steps in range(1, 31):
            one = AttemptReport(
                job_id="j",
                workflow="encode",
                attempt=1,
                delivery=1,
                steps=steps,
                fraction=steps / 40,
                note=f"n {steps}",
            )
            await ask(manager, WorkerReport(worker="w1", attempts=(one,), slots=1, number=steps))
            for _ in range(50):
                await asyncio.sleep(0)
            group.clock.advance(0.25)
        told = [msgspec.json.decode(one.data, type=ProgressLine) for one in listener.told if one.what == "progress"]
        assert 5 <= len(told) <= 9
        assert told[-1].steps > 20
        assert told[-1].note == f"n {told[-1].steps}"
        assert told[-1].eta is not None
        page = await manager.events.page(GetEvents(job_id="j", progress=True))
        assert page.progress[0].steps == 30
        await listener.leave()
        other, _ = group.open("m-2")
        with pytest.raises(DeposedError):
            await other.events.page(GetEvents(job_id="j", progress=True))

    run(story)

"""Following a datacenter's decisions: in order, without a gap, from any manager, however slow the listener is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from tests.nodes.manager.harness import Office, ask, submission
from tests.nodes.manager.harness import run_office as run

from tenure.control import event_feed
from tenure.control.event_feed import StreamFormat, StreamItem, encode, format_for
from tenure.control.messages.events import Cursor, EventPage, GetEvents, parse_cursor
from tenure.control.messages.jobs import Cancel, JobList, JobView, Problem, Submit
from tenure.errors import ConfigurationError
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


async def led(office: Office, name: str = "m-1") -> Manager:
    manager, _ = office.open(name)
    await office.until(lambda: manager.leads)
    return manager


async def completed(office: Office, manager: Manager, job_id: str) -> None:
    await ask(manager, Submit(submission=submission(job_id)))
    await office.until(lambda: office.work.depth().ready)
    office.answer(office.claim(), 1)
    await office.until(lambda: manager.jobs.has_ended(job_id))


async def settled(office: Office, manager: Manager) -> None:
    """Nothing is being written, nor about to be."""
    journal, last = office.engine.journal(JOURNAL), -1
    while journal.head().seq != last:
        last = journal.head().seq
        for _ in range(200):
            await asyncio.sleep(0)


def everything(office: Office) -> list[bytes]:
    return [event for entry in office.engine.journal(JOURNAL).read() for event in entry.events]


def test_a_stream_tells_everything_in_order_and_a_page_tells_the_same() -> None:
    async def story(office: Office) -> None:
        manager = await led(office)
        listener = Listener(manager, after="0")
        for number in range(5):
            await completed(office, manager, f"j-{number}")
        await office.until(lambda: [told.data for told in listener.events] == everything(office))
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
    async def story(office: Office) -> None:
        manager = await led(office)
        await asyncio.gather(*(ask(manager, Submit(submission=submission(f"j-{n}"))) for n in range(6)))
        await asyncio.gather(*(ask(manager, Cancel(job_id=f"j-{n}")) for n in range(6)))
        await settled(office, manager)
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
    async def story(office: Office) -> None:
        manager = await led(office)
        await ask(manager, Submit(submission=submission("before")))
        await office.until(lambda: office.work.depth().ready)
        await asyncio.sleep(0)
        listener = Listener(manager)
        await office.until(lambda: listener.told)
        assert listener.told[0].what == "beat"
        await ask(manager, Submit(submission=submission("after")))
        await office.until(lambda: "JobSubmitted" in listener.kinds)
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
    async def story(office: Office) -> None:
        manager = await led(office)
        for job_id, queue in (("a", "default"), ("b", "default"), ("c", "other")):
            await ask(manager, Submit(submission=submission(job_id, queue=queue)))
            await ask(manager, Cancel(job_id=job_id))
        await settled(office, manager)
        expected = [event for event in everything(office) if wanted(msgspec.json.decode(event))]
        page = await ask(manager, GetEvents(after="0", limit=1_000, **asked))
        assert [bytes(line.event) for line in page.events] == expected
        assert expected
        # The cursor is past what did not match, so that it need not be looked at again.
        assert parse_cursor(page.cursor) == Cursor(office.engine.journal(JOURNAL).head().seq)

    run(story)


def test_a_page_is_held_back_until_there_is_something() -> None:
    async def story(office: Office) -> None:
        manager = await led(office)
        await settled(office, manager)
        began = office.clock.boottime()
        waiting = asyncio.create_task(ask(manager, GetEvents(kind=("JobEnded",), wait_s=20)))
        await office.until(waiting.done)
        assert (waiting.result().events, office.clock.boottime() - began >= 20) == ((), True)
        waiting = asyncio.create_task(ask(manager, GetEvents(kind=("JobEnded",), wait_s=30)))
        await office.until(lambda: manager.events.listeners)
        began = office.clock.boottime()
        await completed(office, manager, "j")
        await office.until(waiting.done)
        assert [line.cursor for line in waiting.result().events]
        assert office.clock.boottime() - began < 10

    run(story)


def test_a_listener_goes_on_at_another_manager_after_the_leader_was_lost_without_a_gap() -> None:
    async def story(office: Office) -> None:
        first = await led(office)
        second, _ = office.open("m-2")
        listener = Listener(first, after="0")
        await completed(office, first, "j-1")
        await office.until(lambda: "JobEnded" in listener.kinds)
        seen = list(listener.events)
        office.tasks["m-1"].cancel()
        await office.until(lambda: second.leads and listener.task.done())
        await completed(office, second, "j-2")
        resumed = Listener(second, after=seen[-1].cursor)
        await office.until(lambda: [told.data for told in seen + resumed.events] == everything(office))
        assert sum(told.name == "LeaderElected" for told in seen + resumed.events) == 2
        await resumed.leave()

    run(story)


def test_behind_what_the_journal_keeps_there_is_a_gap_with_the_state_and_then_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(office: Office) -> None:
        manager = await led(office)
        await completed(office, manager, "old")
        ledger = manager.leadership.ledger
        journal = office.engine.journal(JOURNAL)
        await settled(office, manager)
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
        await office.until(lambda: any(told.what == "gap" for told in listener.told))
        told = next(told for told in listener.told if told.what == "gap")
        assert msgspec.json.decode(told.data)["state"]["state"] == "completed"
        await ask(manager, Submit(submission=submission("new")))
        after = await ask(manager, GetEvents(after=told.cursor))
        assert (after.gap, [b'"new"' in bytes(line.event) for line in after.events][:1]) == (None, [True])
        await listener.leave()

    run(story)


def test_a_cursor_that_is_ahead_of_the_journal_is_a_gap_and_not_a_silence() -> None:
    async def story(office: Office) -> None:
        manager = await led(office)
        page = await ask(manager, GetEvents(after="999999", job_id="nobody"))
        assert page.gap is not None
        assert page.gap.state is None
        assert isinstance(page.gap, event_feed.EventGap)
        assert not isinstance(page.gap.state, JobView)

    run(story)


def test_many_who_come_and_go_at_once_hear_everything_once() -> None:
    async def story(office: Office) -> None:
        manager = await led(office)
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
        await office.until(lambda: all(len(one.events) >= len(everything(office)) for one in crowd))
        for listener in crowd:
            assert [told.data for told in listener.events] == everything(office)
            await listener.leave()

    run(story)


def test_a_slow_listener_has_no_queue_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "KEPT_ENTRIES", 3)

    async def story(office: Office) -> None:
        manager = await led(office)
        stream = manager.events.stream(GetEvents(after="0"))
        first = await anext(stream)
        fast = Listener(manager, after="0")
        for number in range(10):
            await completed(office, manager, f"j-{number}")
        await office.until(lambda: [told.data for told in fast.events] == everything(office))
        assert len(manager.events._kept) <= 3
        slow = list(first)
        while [told.data for told in slow if told.what == "event"] != everything(office):
            slow += await anext(stream)
        await stream.aclose()
        await fast.leave()
        assert manager.events._kept_bytes == 0

    run(story)


def test_a_stream_with_nothing_to_tell_says_where_it_is() -> None:
    async def story(office: Office) -> None:
        manager = await led(office)
        listener = Listener(manager, job_id="nobody")
        await office.until(lambda: len(listener.told) >= 3)
        await ask(manager, Submit(submission=submission("somebody-elses")))
        seq = office.engine.journal(JOURNAL).head().seq
        await office.until(lambda: parse_cursor(listener.told[-1].cursor).seq >= seq)
        assert {told.what for told in listener.told} == {"beat"}
        await listener.leave()

    run(story)


@pytest.mark.parametrize("after", ["x", "-1", "1.x", ".", "1.", "1e3", "٣", "9" * 30, "1.1.1"])
def test_what_is_no_cursor_is_refused(after: str) -> None:
    with pytest.raises(ConfigurationError, match="no cursor"):
        parse_cursor(after)

    async def story(office: Office) -> None:
        manager = await led(office)
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

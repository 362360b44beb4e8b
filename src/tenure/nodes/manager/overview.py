"""Tells operators the state of a whole datacenter in one reply. It lists the worst troubles first: it is the first look of one who was woken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenure.clock import Clock
from tenure.control.messages.nodes import (
    AskOverview,
    ListNodes,
    ManagerNode,
    NodeList,
    Overview,
    Severity,
    Trouble,
    WorkerNode,
)
from tenure.control.messages.queues import DeadLetterList, ListDeadLetters
from tenure.control.messages.wire import Handlers, Reply
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.jobs import JobBook
from tenure.jobs.alarms import Alarm
from tenure.jobs.answer import quoted
from tenure.jobs.states import JobState
from tenure.nodes.manager.operator_handlers import NodeHandlers, queue_list

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager


FRESH_S = 1.0
"""The leader answers with its last overview for these seconds, so that many open pages cost the leader as much as one."""
LETTERS_S = 10.0
"""The seconds between two counts of dead letters: each count asks the engine for every mailbox."""


class OverviewHandlers:
    """Part of a manager. Only the leader answers."""

    def __init__(self, manager: Manager, nodes: NodeHandlers, clock: Clock) -> None:
        self._manager, self._nodes, self._clock = manager, nodes, clock
        self._kept: tuple[float, int, Overview] | None = None
        """(when it was asked for, epoch, overview): one of an earlier term does not count any more."""
        self._letters: tuple[float, int] = (-LETTERS_S, 0)
        self.handlers: Handlers = {AskOverview: self._overview}

    async def _overview(self, request: AskOverview) -> Reply:
        reports, epoch, asked = self._manager.worker_reports, self._manager.epoch, self._clock.monotonic()
        if self._kept is not None and self._kept[1] == epoch and asked - self._kept[0] < FRESH_S:
            return replace(self._kept[2], now=self._manager.now())
        nodes = await self._nodes.handlers[ListNodes](ListNodes())
        assert isinstance(nodes, NodeList)
        letters = await self._count_letters()
        now, observer = self._manager.now(), self._manager.observer

        def look(book: JobBook) -> Overview:
            running = sum(map(len, book.on_worker.values()))
            queued, held = sum(map(len, book.queued.values())), sum(map(len, book.ready.values()))
            return Overview(
                datacenter=self._manager.datacenter,
                leader=self._manager.name,
                epoch=epoch,
                elected_at=book.state.elected_at,
                now=now,
                troubles=troubles(
                    book,
                    now,
                    alarms=observer.standing_since,
                    workers=nodes.workers,
                    healthcheck_s=reports.fleet.settings.healthcheck_s,
                    managers=nodes.managers,
                    dead_letters=letters,
                    silent=past_their_beat(reports.reported.reports()),
                ),
                jobs={state.value: count for state, count in book.jobs.by_state().items()},
                attempts={"resting": len(book.resting), "held": held, "queued": queued, "running": running},
                workers=dict(Counter(one.verdict for one in nodes.workers)),
                slots=sum(one.slots for one in nodes.workers),
                free=sum(one.free for one in nodes.workers),
                queues=queue_list(book, now).queues,
                dead_letters=letters,
                pulse=observer.pulse.read(now),
            )

        found = await self._manager.ledger.read(look)
        self._kept = asked, epoch, found
        return found

    async def _count_letters(self) -> int:
        at, count = self._letters
        if self._clock.monotonic() - at >= LETTERS_S:
            reply = await self._manager.handlers[ListDeadLetters](ListDeadLetters(limit=1))
            count = reply.count if isinstance(reply, DeadLetterList) else 0
            self._letters = self._clock.monotonic(), count
        return count


LATELY_S = 900.0
"""The list names jobs that ended badly within these seconds."""
SHORT_S = 0.5
"""A worker that has less than this share of its healthcheck deadline left is about to be suspect."""
_BAD = (JobState.FAILED, JobState.TIMED_OUT)
_ORDER = list(Severity)
MOST_SILENT = 5
_LOOKED_AT = 5_000
"""The most ended jobs (newest first), and the most resting attempts, that one look reads: its cost must not grow with their number."""


def troubles(
    book: JobBook,
    now: float,
    *,
    alarms: Mapping[Alarm, float],
    workers: Iterable[WorkerNode],
    healthcheck_s: float,
    managers: Sequence[ManagerNode],
    dead_letters: int,
    silent: Sequence[tuple[str, AttemptReport]] = (),
) -> tuple[Trouble, ...]:
    """Returns all troubles, worst first. `alarms` maps each alarm to the time since which it stands; `silent` are attempts past their beat."""
    found = [_alarm(alarm, since) for alarm, since in alarms.items()]
    for worker in workers:
        found += _worker(worker, healthcheck_s, now)
    found += _ended_badly(book, now)
    found += _resting(book)
    found += _silent(silent, now)
    found += _paused(book)
    if dead_letters:
        count = _some(dead_letters, "message was", "messages were")
        found.append(_make(Severity.LOOK, "dead_letters", "", f"{count} given up", "tenure dlq list"))
    for name, record in book.state.queues.items():
        if record.paused:
            text = f"queue {name} is paused: nothing of it starts"
            found.append(_make(Severity.NOTE, "paused", name, text, f"tenure queue {name} --resume"))
    for manager in managers:
        if manager.closed:
            text = f"manager {manager.name} accepts no new jobs: {manager.closed}"
            found.append(_make(Severity.LOOK, "closed", manager.name, text, "tenure nodes"))
    if len(managers) == 1:
        text = "no other manager would take over from this leader"
        found.append(_make(Severity.NOTE, "one_manager", "", text, "Start a second one: tenure manager --engine URL"))
    return tuple(sorted(found, key=lambda one: (_ORDER.index(one.severity), one.since or now)))


def _make(severity: Severity, kind: str, subject: str, text: str, remedy: str, since: float = 0.0) -> Trouble:
    return Trouble(severity=severity, kind=kind, subject=subject, text=text, remedy=remedy, since=since)


def _alarm(alarm: Alarm, since: float) -> Trouble:
    return _make(Severity.WRONG, alarm.kind.value, alarm.subject, alarm.reason, alarm.remedy, since)


def _worker(worker: WorkerNode, healthcheck_s: float, now: float) -> list[Trouble]:
    name, here = worker.name, bool(worker.incarnation)
    if worker.drained:
        reason = f": {worker.reason}" if worker.reason else ""
        text = f"worker {name} is drained by an operator{reason}"
        return [_make(Severity.NOTE, "drained", name, text, f"tenure drain {name} --undo", worker.since)]
    if here and worker.verdict in ("drain", "evict"):
        text = f"worker {name} takes no work: {worker.reason or worker.health}"
        return [_make(Severity.LOOK, "no_work", name, text, "See the worker's log", worker.since)]
    if here and worker.left_s < healthcheck_s * SHORT_S:
        text = f"worker {name} was last heard {worker.heard_s_ago:.0f} s ago, and has {worker.left_s:.0f} s to prove that it lives or advances"
        return [_make(Severity.LOOK, "silent", name, text, "See the worker's log", now - worker.heard_s_ago)]
    return []


def _ended_badly(book: JobBook, now: float) -> list[Trouble]:
    bad = []
    for job_id in islice(reversed(book.ended), _LOOKED_AT):
        if not book.jobs.may_be_in(job_id, _BAD):
            continue  # no packed record is unpacked, and most pages of ended jobs hold none that ended badly
        info = book.jobs.look(job_id)
        if info is not None and info.state in _BAD and now - info.ended_at < LATELY_S:
            bad.append(info)
    if not bad:
        return []
    newest, oldest = bad[0], min(info.ended_at for info in bad)
    count = _some(len(bad), "job ended", "jobs ended")
    text = f"{count} badly in the last {LATELY_S / 60:.0f} minutes; the last: {newest.id}: {newest.reason[:200]}"
    return [_make(Severity.LOOK, "ended_badly", newest.id, text, f"tenure why {quoted(newest.id)}", oldest)]


def past_their_beat(reports: Iterable[WorkerReport]) -> list[tuple[str, AttemptReport]]:
    """Returns (worker, attempt) for each attempt that has been silent for longer than it may: its worker is about to end it."""
    found = [(report.worker, one) for report in reports for one in report.attempts]
    return [(worker, one) for worker, one in found if one.stall_s and one.silent_s >= one.stall_s and not one.held]


def _silent(silent: Sequence[tuple[str, AttemptReport]], now: float) -> list[Trouble]:
    """Returns a trouble for each of the first jobs that are past their beat."""
    found = []
    for worker, one in silent[:MOST_SILENT]:
        text = f"{one.job_id}: {one.workflow} on {worker} has not beaten for {one.silent_s:.0f} s, and {one.stall_s:g} s are allowed"
        since = now - one.silent_s
        found.append(_make(Severity.LOOK, "past_its_beat", one.job_id, text, f"tenure why {quoted(one.job_id)}", since))
    return found


def _paused(book: JobBook) -> list[Trouble]:
    """Returns a note on jobs that somebody paused."""
    if not book.paused:
        return []
    job_id = next(iter(book.paused))
    count = _some(len(book.paused), "job is", "jobs are")
    return [
        _make(Severity.NOTE, "paused_jobs", job_id, f"{count} paused", f"tenure resume {quoted(job_id)} --reason WHY")
    ]


def _resting(book: JobBook) -> list[Trouble]:
    """Returns a note on attempts after the first that wait for their time: an earlier attempt failed, and the leader tries again by itself."""
    keys = [key for key in islice(book.resting.keys(), _LOOKED_AT) if _attempt(book, key) > 1]
    if not keys:
        return []
    count = _some(len(keys), "workflow waits", "workflows wait")
    job_id = keys[0][0]
    return [_make(Severity.NOTE, "retrying", job_id, f"{count} for another attempt", f"tenure why {quoted(job_id)}")]


def _attempt(book: JobBook, key: tuple[str, str]) -> int:
    info = book.jobs.look(key[0])
    return info.workflows[key[1]].attempt if info is not None else 0


def _some(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"

"""Queues: whether each gives work, how much of it at a time, and how fast. An operator decides that.

The rate is kept as one number (GCRA): the time at which the rate has paid for everything that was sent. It moves with each journaled
dispatch, so a new leader goes on where the last one was, and a failover does not double a rate.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from tenure import bounds as b
from tenure.bound_checks import check
from tenure.bounds import LEAST_RATE
from tenure.jobs import budget
from tenure.jobs.budget import encoded_bytes, text_bytes
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, Outcome, Rule, Rules

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

_EVEN_S = 1e-6  # Unix time as a float is that coarse: an attempt that is due now must not wait for the next look


class QueueRecord(msgspec.Struct, kw_only=True):
    """Holds the decisions of an operator about one queue."""

    paused: bool = False
    max_running: int | None = None
    """The most attempts of the queue that may be in the engine or running."""
    rate: float | None = None
    """The most attempts a second, on average."""
    burst: int = 1
    """The most attempts that may be sent at once after a pause."""
    job_timeout: float | None = None
    """The deadline of jobs of this queue whose submission has none."""
    park: bool = False  # True when the queue accepts work that nobody has registered yet
    keep_archive: float | None = None
    """The seconds for which the record of an archived job of this queue can be read; None for the manager's own setting."""
    preempt_after: float | None = None
    """The seconds after which its work may take the slot of running work with a lower priority (`preemption.py`); None for never."""
    concurrency_key: str = ""
    """Where the key of its work stands, as `args.tenant`. Keys take turns (`fair_lanes.py`)."""
    max_per_key: int | None = None
    """The most attempts of one key that may be in the engine or running."""
    weights: dict[str, int] = {}
    """Maps a key to the turns that it has where others have one."""
    even_at: float = 0.0
    """The time at which the rate has paid for everything that was sent."""


class SetQueue(Command, frozen=True, kw_only=True):
    """An operator changes a queue. A field that is not given stays as it is; None lifts a limit."""

    queue: b.QueueName
    paused: bool | UnsetType = UNSET
    max_running: b.MaxRunning | UnsetType | None = UNSET
    rate: b.Rate | UnsetType | None = UNSET
    burst: b.Burst | UnsetType = UNSET
    job_timeout: b.PositiveSeconds | UnsetType | None = UNSET
    park: bool | UnsetType = UNSET
    keep_archive: b.PositiveSeconds | UnsetType | None = UNSET
    preempt_after: b.PositiveSeconds | UnsetType | None = UNSET
    concurrency_key: b.KeyExpression | UnsetType = UNSET
    max_per_key: b.MaxRunning | UnsetType | None = UNSET
    weights: b.Weights | UnsetType = UNSET


class QueueChanged(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An operator changed a queue. The event holds the whole of its new settings."""

    queue: str
    paused: bool = False
    max_running: int | None = None
    rate: float | None = None
    burst: int = 1
    job_timeout: float | None = None
    park: bool = False
    concurrency_key: str = ""
    max_per_key: int | None = None
    weights: dict[str, int] = msgspec.field(default_factory=dict)
    keep_archive: float | None = None
    preempt_after: float | None = None

    def growth(self) -> int:
        return text_bytes(self.queue, self.concurrency_key) + encoded_bytes(self.weights) + 120


_SETTINGS = (
    "paused",
    "max_running",
    "rate",
    "burst",
    "job_timeout",
    "park",
    "keep_archive",
    "preempt_after",
    "concurrency_key",
    "max_per_key",
    "weights",
)
"""The settings of a queue. The record, the command and the event have them, and so have the request and the view."""


def settings_of(source: object) -> dict[str, Any]:
    """Returns the settings that a record, a command, an event or a request has, by their names."""
    return {field: getattr(source, field) for field in _SETTINGS}


def set_queue(book: JobBook, command: SetQueue, now: float, rules: Rules) -> Decision:
    """Sets the fields that the command gives. The others stay as they are."""
    check(command)
    name = command.queue
    before = book.state.queues.get(name, QueueRecord())
    given = {field: value for field, value in settings_of(command).items() if value is not UNSET}
    after = msgspec.structs.replace(before, **given)
    if after == before and name in book.state.queues:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it stands so already")
    if name not in book.state.queues or after.weights != before.weights:
        budget.check_reserve(book, budget.SMALL_RECORD_BYTES + encoded_bytes(after.weights))
    changed = QueueChanged(at=now, by=command.by, rule=Rule.ASKED, queue=name, **settings_of(after))
    return Decision([changed], Outcome.ACCEPTED, Rule.ASKED)


def queue_changed(book: JobBook, event: QueueChanged) -> None:
    before = book.state.queues.get(event.queue)
    book.state.queues[event.queue] = QueueRecord(
        **settings_of(event),
        even_at=before.even_at if before else 0.0,  # the part of the rate that was used stays used
    )
    book.turns.queue_changed(event.queue)


def note_dispatch(record: QueueRecord, at: float) -> None:
    """Charges one dispatch to the rate, for the fold."""
    if record.rate is not None:
        record.even_at = max(record.even_at, at) + 1 / _rate(record.rate)


def _rate(rate: float) -> float:
    """Returns a rate whose inverse is finite. A journal of an earlier release may hold one whose inverse is not."""
    return max(rate, LEAST_RATE)


def room(record: QueueRecord | None, in_flight: int, now: float) -> int:
    """Returns the number of attempts of this queue that may be sent now."""
    if record is None:
        return sys.maxsize
    if record.paused:
        return 0
    most = sys.maxsize if record.max_running is None else max(0, record.max_running - in_flight)
    if record.rate is None:
        return most
    # The product may be infinite, so `burst` caps it.
    ahead = min(max(0.0, record.even_at - now - _EVEN_S) * _rate(record.rate), record.burst)
    return min(most, max(0, math.floor(record.burst - ahead)))


def opens_at(record: QueueRecord | None, now: float) -> float:
    """Returns when the rate lets the next attempt through; infinity when the rate does not hold the queue."""
    if record is None or record.paused or record.rate is None:
        return math.inf
    opens = record.even_at - (record.burst - 1) / _rate(record.rate)
    return opens if opens > now else math.inf


DECIDE: Decides = {SetQueue: set_queue}
FOLD: Folds = {QueueChanged: queue_changed}

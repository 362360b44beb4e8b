"""How one follows what a datacenter decides: events, the cursor that resumes them, and what is said when some are gone.

A cursor is `SEQ`, when everything up to that entry of the journal was seen, or `SEQ.N`, when only its first N events were. All managers
read one journal, so a cursor that one of them gave is good at every other.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec

from tenure import bounds as b
from tenure.control.messages.wire import Placed, Reply
from tenure.errors import ConfigurationError
from tenure.jobs.eta import Eta

MAX_EVENTS = 1_000


class GetEvents(Placed, frozen=True, kw_only=True, tag="events"):
    """Returns the decisions in order, without a gap: as a page, or with `Accept: text/event-stream` as a stream."""

    after: b.EventCursor | None = None
    """The cursor of the last event that was seen; 0 for the oldest that is kept; without it, from now on."""
    job_id: b.JobIdOrNone = ""
    queue: b.AnyNameOrNone = ""
    kind: Annotated[tuple[b.EventKind, ...], b.items(0, 100)] = ()
    """Types of events; in a query, several with commas between them."""
    limit: b.Listed = 100
    """The most events of one page; a stream goes on."""
    wait_s: b.WaitSeconds = 0.0
    """A page that would be empty is held back until there is something, or this long."""
    progress: bool = False
    """Also what runs between the decisions: progress, notes and beats, at most once a second. Only the leader hears of it; others redirect."""


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event as the journal keeps it, and the cursor to resume after it."""

    cursor: str
    event: Any


class ProgressLine(msgspec.Struct, frozen=True, kw_only=True):
    """How one workflow stands between two decisions. It is in no journal: a listener that was away gets the newest one."""

    job_id: str
    workflow: str
    attempt: int
    at: float
    worker: str = ""
    steps: int = 0
    """Its beats so far."""
    fraction: float | None = None
    note: str = ""
    silent_s: float = 0.0
    """Since its last beat."""
    eta: Eta | None = None


class EventGap(msgspec.Struct, frozen=True, kw_only=True):
    """Events after `after` were folded into a snapshot and removed: what they led to is in `state`, and `cursor` goes on from there."""

    after: str
    cursor: str
    reason: str
    state: Any
    """A job view where one job was asked for, else a list of jobs. It may show more than the cursor says, never less."""


class EventPage(Reply, frozen=True, kw_only=True, tag="event_page"):
    events: tuple[EventLine, ...]
    cursor: str
    """Where the next page begins: past events that did not match, too."""
    gap: EventGap | None = None
    """Set when something before these events is missing."""
    progress: tuple[ProgressLine, ...] = ()
    """The newest progress of what runs, where it was asked for."""


class Cursor(NamedTuple):
    """How far somebody has read: `seen` events of entry `seq`, all of them when it is None."""

    seq: int
    seen: int | None = None

    def __str__(self) -> str:
        return str(self.seq) if self.seen is None else f"{self.seq}.{self.seen}"

    @property
    def before(self) -> int:
        """The journal is to be read after this sequence."""
        return self.seq if self.seen is None else self.seq - 1


def parse_cursor(text: str) -> Cursor:
    seq, dot, seen = text.partition(".")
    digits = seq.isascii() and seq.isdigit() and len(seq) <= 18
    if dot:
        digits = digits and seen.isascii() and seen.isdigit() and len(seen) <= 9
    if not digits:
        raise ConfigurationError(
            f"after is {text!r}, and is no cursor", remedy="Give the id of an event, 0 for the oldest, or nothing"
        )
    # Entries are counted from 1, so nothing of entry 0 can have been seen.
    return Cursor(int(seq), int(seen)) if dot and int(seq) else Cursor(int(seq))

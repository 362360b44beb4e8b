"""Examines a journal that no node can lead with, and mends it (decision 0201).

An examination folds every entry that is whole, recovers what it can of the damaged ones, and lists what is lost. Mending saves that fold as a
snapshot at the journal's end and truncates the entries below it. So it calls only those operations of an engine that every leader uses, and rewrites
no entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tenure.engines.contracts import Engine, Entry, Head, Journal, Snapshot, Store
from tenure.errors import JournalDamagedError, TenureError, Truncated
from tenure.jobs.paged_book import repaged
from tenure.nodes.journal_checksum import (
    begins_as_a_state,
    checked_state,
    entry_damage,
    is_checked,
    kind_of,
    opened,
    salvage,
    salvage_state,
)
from tenure.nodes.journal_reading import restore, unknown_kind
from tenure.nodes.saved_journal import NodeRules
from tenure.nodes.state_saving import PageGone, PageReading, read_pages_now


class JournalKind(NamedTuple):
    """The name of a manager's or a gate's journal, and the functions that fold it."""

    name: str
    election: str
    new_book: Callable[[], Any]
    restored: Callable[[bytes], Any]
    decode: Callable[[bytes], Any]
    restoring: Callable[[bytes], PageReading[Any] | None] = lambda snapshot: None

    @classmethod
    def of(cls, rules: NodeRules[Any, Any], decode: Callable[[bytes], Any]) -> JournalKind:
        """Returns the kind of journal that nodes with these rules write."""
        return cls(rules.journal, rules.election, rules.new_book, rules.restored, decode, rules.restoring)

    def readable(self, event: bytes) -> bool:
        try:
            self.decode(event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True

    def restorable(self, state: bytes) -> bool:
        if not begins_as_a_state(state):
            return False
        try:
            self.restored(state)
        except (TenureError, msgspec.DecodeError, ValueError, TypeError, KeyError, RecursionError):
            return False
        return True


class Damage(NamedTuple):
    """One damaged or missing part of a journal, how mending treats it, and what is lost with it."""

    part: str
    """"entry" or "snapshot"."""
    seq: int
    why: str
    mend: str
    lost: tuple[str, ...] = ()
    newer: bool = False
    """True where nothing is damaged, but a newer release wrote this part."""
    entry: Entry | None = None
    snapshot: Snapshot | None = None

    @property
    def title(self) -> str:
        return f"entry {self.seq}" if self.part == "entry" else f"the snapshot at {self.seq}"


class Examination(NamedTuple):
    """The result of examining a journal. `state` is None where the journal cannot be mended as it is."""

    head: Head
    snapshot: Snapshot | None
    entries: int
    unchecked: int
    """Entries and snapshots without a checksum: the first release wrote them."""
    damages: tuple[Damage, ...]
    seq: int
    state: bytes | None
    paged: bool = False
    """True where the state is saved in pages; `state` is whole all the same."""

    @property
    def newer(self) -> bool:
        return any(one.newer for one in self.damages)


def entries_after(journal: Journal, after: int) -> Any:
    """Yields every entry above `after`; reads them page by page."""
    while page := journal.read(after):
        yield from page
        after = page[-1].seq


def pages_of(engine: Engine, kind: JournalKind) -> Store:
    """Returns the store that holds the pages of a journal's state."""
    return engine.store(f"{kind.name}.pages")


def examine(
    journal: Journal, kind: JournalKind, pages: Store | None = None, *, without_snapshot: bool = False
) -> Examination:
    """Reads the whole journal. With `without_snapshot`, it goes on where nothing of the snapshot can be read."""
    while True:
        try:
            return _Examiner(journal, kind, pages, without_snapshot).examine()
        except Truncated:
            continue  # a leader has saved a newer snapshot meanwhile, and truncated the entries below it


class _Examiner:
    def __init__(self, journal: Journal, kind: JournalKind, pages: Store | None, without_snapshot: bool) -> None:
        self._journal, self._kind, self._pages, self._without = journal, kind, pages, without_snapshot
        self._paged = False
        self._damages: list[Damage] = []
        self._book: Any = kind.new_book()
        self._base = self._book.snapshot()
        self._since: list[bytes] = []
        """Events that were folded since `_base`. `_step_back` folds them again after an event that cannot be applied."""
        self._unchecked = self._count = 0

    def examine(self) -> Examination:
        head, snapshot = self._journal.head(), self._journal.latest_snapshot()
        after = self._start(snapshot) if snapshot is not None else 0
        epoch = snapshot.epoch if snapshot is not None else 0
        if after is None:
            assert snapshot is not None
            return Examination(head, snapshot, 0, self._unchecked, tuple(self._damages), snapshot.seq, None)
        seq = after
        for entry in entries_after(self._journal, after):
            self._missing(seq + 1, entry.seq)
            self._fold(entry, (epoch, head.epoch))
            seq, epoch = entry.seq, entry.epoch or epoch
            self._count += 1
        self._missing(seq + 1, head.seq + 1)
        seq = max(seq, head.seq)
        state = None if any(one.newer for one in self._damages) else checked_state(self._book.snapshot(), seq)
        paged = self._paged or getattr(self._book, "pages", None) is not None
        return Examination(head, snapshot, self._count, self._unchecked, tuple(self._damages), seq, state, paged)

    def _missing(self, first: int, end: int) -> None:
        for seq in range(first, end):
            self._note("entry", seq, "it is missing", "the journal goes on without it", ("all of its events",))

    def _start(self, snapshot: Snapshot) -> int | None:
        """Begins from the snapshot. Returns the sequence after which the examination goes on, or None where it cannot go on."""
        found = opened(snapshot)
        self._unchecked += not found.checked
        try:
            self._begin(self._restored(snapshot))
        except Truncated:
            raise
        except TenureError as error:
            why = getattr(error, "why", str(error))
            return self._start_otherwise(snapshot, why, newer="this Tenure reads up to" in why)
        return snapshot.seq

    def _restored(self, snapshot: Snapshot) -> Any:
        reading = restore(self._journal.name, snapshot, self._kind.restoring) if self._pages is not None else None
        if reading is None or self._pages is None:
            return restore(self._journal.name, snapshot, self._kind.restored)
        self._paged = True
        try:
            book = read_pages_now(self._journal.name, snapshot.seq, reading, self._pages)
        except PageGone as gone:
            newest = self._journal.latest_snapshot()
            if newest is not None and newest.seq > snapshot.seq:
                raise Truncated(snapshot.seq, newest.seq) from gone
            raise JournalDamagedError(self._journal.name, "snapshot", snapshot.seq, f"{gone} is missing") from gone
        # As a whole state from here on: an examination takes it apart and puts it together again.
        return self._kind.restored(book.snapshot())

    def _start_otherwise(self, snapshot: Snapshot, why: str, *, newer: bool) -> int | None:
        if newer:
            self._note("snapshot", snapshot.seq, why, "start the newer version again", newer=True, snapshot=snapshot)
            return None
        if self._from_the_beginning():
            self._note(
                "snapshot",
                snapshot.seq,
                why,
                "made again from all the entries, which are still there",
                snapshot=snapshot,
            )
            return 0
        found = salvage_state(snapshot, self._kind.restorable)
        if found is not None:
            self._note("snapshot", snapshot.seq, why, found.how, snapshot=snapshot)
            self._begin(self._kind.restored(found.state))
            return snapshot.seq
        lost = (f"everything that was decided up to {snapshot.seq}",)
        mend = "nothing of it can be read: restore the engine from a backup, or give it up with --without-snapshot"
        if self._without:
            mend = "given up: the journal goes on from the entries above it"
        self._note("snapshot", snapshot.seq, why, mend, lost, snapshot=snapshot)
        return snapshot.seq if self._without else None

    def _from_the_beginning(self) -> bool:
        try:
            first = self._journal.read(0, limit=1)
        except Truncated:
            return False
        return bool(first) and first[0].seq == 1

    def _begin(self, book: Any) -> None:
        self._book, self._base, self._since = book, book.snapshot(), []

    def _fold(self, entry: Entry, epochs: tuple[int, ...]) -> None:
        self._unchecked += not is_checked(entry)
        why, how, events = entry_damage(entry), "", entry.events
        lost: list[str] = []
        if why:
            found = salvage(entry, epochs, self._kind.readable)
            how, events = found.how, found.events
            lost = [] if found.whole else [named(event) for event in entry.events if event not in events]
            if not events:
                lost = lost or ["all of its events"]
        elif kind := unknown_kind(entry):
            said = f"this Tenure knows no event of the kind {kind!r}"
            self._note("entry", entry.seq, said, "start the newer version again", newer=True, entry=entry)
            return
        for event in events:
            try:
                self._book.replay((event,))
                self._since.append(event)
            except Exception as error:  # any exception of the fold means that the event cannot be applied to this state
                why = why or f"{named(event)} cannot be applied: {type(error).__name__}: {error}"
                how = how or "the other events are kept"
                lost.append(f"{named(event)}: {type(error).__name__}: {error}")
                self._step_back()
        if why:
            self._note("entry", entry.seq, why, how, tuple(lost), entry=entry)

    def _step_back(self) -> None:
        """Builds the state from before an event that may have been half applied."""
        book = self._kind.restored(self._base)
        book.replay(self._since)
        self._begin(book)

    def _note(
        self,
        part: str,
        seq: int,
        why: str,
        mend: str,
        lost: tuple[str, ...] = (),
        *,
        newer: bool = False,
        entry: Entry | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._damages.append(Damage(part, seq, why, mend, lost, newer, entry, snapshot))


def mend(journal: Journal, found: Examination, pages: Store | None = None) -> None:
    """Saves the fold of the examination as a snapshot, or in pages where it was in pages, and truncates the entries below it.

    Raises `StaleEpochError` when a newer leader has written meanwhile.
    """
    assert found.state is not None, "it cannot be mended as it is"
    epoch = max(found.head.epoch, found.snapshot.epoch if found.snapshot is not None else 0)
    state = found.state
    if found.paged and pages is not None:
        cut = repaged(opened(Snapshot(found.seq, epoch, state)).state, found.seq, epoch)
        for key, blob in cut.blobs.items():
            pages.put(key, blob)
        state = checked_state(cut.root, found.seq)
    journal.snapshot(state, found.seq, epoch=epoch)
    journal.truncate(found.seq)


class _Named(msgspec.Struct):
    type: str
    job_id: str = ""
    worker: str = ""
    schedule: Any = ""
    queue: str = ""


_named = msgspec.json.Decoder(_Named)


def named(event: bytes) -> str:
    """Describes an event in a few words: its kind, and the job, worker, queue or schedule that it is about."""
    try:
        found = _named.decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"{kind_of(event) or 'bytes that are no event'} ({len(event)} bytes)"
    about = found.job_id or found.worker or found.queue or (found.schedule if isinstance(found.schedule, str) else "")
    return f"{found.type} of {about}" if about else found.type

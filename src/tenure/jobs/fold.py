"""The base of the two folds over a journal: a manager's `JobBook` and a gate's `GateJobTracker`.

Only `apply` changes the state. Indexes are derived: a fold rebuilds them from the state, and they are never part of a snapshot. Two folds
of the same events have the same snapshot, byte for byte, whether or not one of them was restored on the way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, MutableMapping
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from tenure.errors import EngineVersionError, UnknownJobError
from tenure.jobs.decisions import Event, Folds, encode_event
from tenure.jobs.model import ArchivedJob, JobInfo, Tombstone

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


HISTORY_SHARE = 4
"""The histories of all jobs together take at most one part in HISTORY_SHARE of the budget. Beyond it, each takes `SHORT_HISTORY_BYTES`."""
SHORT_HISTORY_BYTES = 512
_ELECTED = b'{"type":"LeaderElected"'
_PROGRESS = b'{"type":"ProgressRecorded"'


class Histories:
    """The histories of the jobs of one book. They are part of the jobs' records."""

    def __init__(self, book: JobBook) -> None:
        self._book = book

    def note(self, event: Event, encoded: bytes | None) -> None:
        """Keeps the event with the jobs that it is about, so that `why` survives snapshots and truncation."""
        jobs = self._book.jobs
        job_id = getattr(event, "job_id", None)
        if job_id is not None:
            info = jobs.get(job_id)
            if info is not None:
                self.keep(info, encoded or encode_event(event))
            return
        if names := getattr(event, "jobs", None) or ():
            encoded = encoded or encode_event(event)
            for name in names:
                if info := jobs.get(name):
                    self.keep(info, encoded)

    def keep(self, info: JobInfo, encoded: bytes) -> None:
        if encoded.startswith(b'{"type":"JobSubmitted"'):
            return  # the job itself holds its submission
        history = info.history
        if encoded.startswith(_PROGRESS) and history and history[-1].startswith(_PROGRESS):
            self._book.size.line_left(history.pop())  # a run of progress is one line: the newest
            info.elided += 1
        limit = self._book.settings.history_limit
        if len(history) >= limit:
            # The first events of a job explain its end: keep the first tenth, and drop the oldest line after it.
            self._elide(info, limit // 10)
        if self._book.size.history + len(encoded) > self._book.budget // HISTORY_SHARE:
            self._elide_all_but(info, SHORT_HISTORY_BYTES - len(encoded))
            if len(encoded) > SHORT_HISTORY_BYTES:
                info.elided += 1
                return
        history.append(encoded)
        self._book.size.line_came(encoded)

    def _elide(self, info: JobInfo, place: int) -> None:
        self._book.size.line_left(info.history.pop(place))
        info.elided += 1

    def _elide_all_but(self, info: JobInfo, room: int) -> None:
        """Drops the oldest lines of this history until the rest fits into `room`, because all histories together are at their share."""
        held = sum(map(len, info.history))
        while info.history and held > room:
            held -= len(info.history[0])
            self._elide(info, 0)


def note_election(info: JobInfo, line: bytes) -> int:
    """Keeps an election in the history of a job. Returns the bytes of the line that it replaced.

    Of elections in a row only the newest is kept, and no room of other jobs is asked for: so what becomes of one job depends on nothing but that job,
    and a packed one can be given the line later.
    """
    history = info.history
    replaced = 0
    if history and history[-1].startswith(_ELECTED):
        replaced = len(history.pop())
        info.elided += 1
    history.append(line)
    return replaced


def election_bytes(info: JobInfo) -> int:
    """Returns the bytes of the election with which the history of a live job ends."""
    if info.state.terminal or not info.history or not info.history[-1].startswith(_ELECTED):
        return 0
    return len(info.history[-1])


SNAPSHOT_VERSION = 1
"""The newest version of a snapshot that holds everything. `state_pages` has the next."""


class FoldState(Protocol):
    """The contents that the snapshots of both folds have. Dictionaries keep the order in which things happened; `forget_until` relies on it."""

    version: int
    epoch: int
    leader: str
    archive: dict[str, ArchivedJob]
    tombstones: dict[str, Tombstone]
    forgotten_early: int


class FoldedJob(Protocol):
    """The fields that the records of jobs have in both folds."""

    digest: str
    history: list[bytes]


InfoT = TypeVar("InfoT", bound=FoldedJob)
StateT = TypeVar("StateT", bound=FoldState)


class JournalFold(Generic[StateT, InfoT]):
    """Holds the jobs that a journal knows. Folds and decisions of both kinds use what is here."""

    folds: ClassVar[Folds]
    decoder: ClassVar[msgspec.json.Decoder[Event]]
    """Decodes the events of this kind of journal."""

    def __init__(self, state: StateT, jobs: MutableMapping[str, InfoT]) -> None:
        self.state = state
        self.jobs = jobs
        """The jobs in memory."""
        self.keys: dict[str, str] = {
            archived.idempotency_key: job_id for job_id, archived in state.archive.items() if archived.idempotency_key
        }
        """Maps each idempotency key to the id of its job, in memory or archived."""
        self._archived = deque(state.archive)
        """The archived ids, oldest first. A dictionary from whose front entries leave is looked through from its first gap on: 0.2 ms for each of 250,000 ids."""
        self.position = 0
        """The sequence of the entry whose events are folded. Whoever folds an entry sets it first."""

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader(self) -> str:
        """The name of the node that leads, by this journal; empty before the first one."""
        return self.state.leader

    def job(self, job_id: str) -> InfoT:
        """Returns the job, or raises `UnknownJobError`."""
        info = self.jobs.get(job_id)
        if info is None:
            raise UnknownJobError(job_id)
        return info

    def apply(self, event: Event, encoded: bytes | None = None) -> None:
        """Folds one event. A caller that has it `encoded` passes that, which saves encoding it again for the job's history."""
        fold = self.folds.get(type(event))
        if fold is None:
            raise EngineVersionError(f"this Tenure cannot fold a {type(event).__name__}")
        fold(self, event)
        self.folded(event, encoded)

    def folded(self, event: Event, encoded: bytes | None) -> None:
        """Keeps the event in the history of its jobs, so that `why` survives snapshots and truncation."""
        raise NotImplementedError

    def apply_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def replay(self, encoded_events: Iterable[bytes]) -> None:
        """Folds events as the journal keeps them."""
        decode, apply = self.decoder.decode, self.apply
        for encoded in encoded_events:
            apply(decode(encoded), encoded)

    def history(self, job_id: str) -> list[Event]:
        """Returns the events of a job that are still in memory, oldest first. `elided` of the job counts those that are not."""
        return [self.decoder.decode(encoded) for encoded in self.job(job_id).history]

    def known_digest(self, job_id: str) -> str | None:
        """Returns the digest of a job in memory or archived; None when the id is not known."""
        if info := self.jobs.get(job_id):
            return info.digest
        archived = self.state.archive.get(job_id)
        return archived.digest if archived else None

    def holds_older_than(self, until: float) -> bool:
        """Returns True when an archived id or a tombstone is so old that `forget_until` would drop it."""
        oldest = next((self.state.archive[job_id] for job_id in self.oldest_archived(1)), None)
        stone = next(iter(self.state.tombstones.values()), None)
        return (oldest is not None and oldest.archived_at <= until) or (stone is not None and stone.at <= until)

    def oldest_archived(self, count: int) -> list[str]:
        """Returns the ids that were archived first, `count` of them at most."""
        return list(islice(self._archived, count))

    # The folds call these.

    def remember(self, records: Mapping[str, ArchivedJob]) -> None:
        """Takes archived jobs, oldest first, that came later than those that are there."""
        known = self.state.archive
        self._archived.extend(job_id for job_id in records if job_id not in known)
        known.update(records)

    def archive(self, job_id: str, archived: ArchivedJob, forget: Iterable[str]) -> None:
        """Remembers an archived job, and drops older ids that have to go because there are too many."""
        self.remember({job_id: archived})
        for old in forget:
            self.drop_archived(old)
            self.state.forgotten_early += 1

    def forget_until(self, until: float) -> None:
        """Drops archived ids and tombstones up to `until`. Both are in the order of time, so this costs only what it removes."""
        archive, stones = self.state.archive, self.state.tombstones
        while archive and archive[job_id := self._archived[0]].archived_at <= until:
            self.drop_archived(job_id)
        while stones and stones[job_id := next(iter(stones))].at <= until:
            self.drop_tombstone(job_id)

    def drop_archived(self, job_id: str) -> ArchivedJob:
        archived = self.state.archive.pop(job_id)
        self._archived.remove(job_id)  # the first or nearly so: only the oldest leave
        if self.keys.get(archived.idempotency_key) == job_id:
            del self.keys[archived.idempotency_key]
        return archived

    def drop_tombstone(self, job_id: str) -> Tombstone | None:
        return self.state.tombstones.pop(job_id, None)


def read_snapshot(
    decoder: msgspec.msgpack.Decoder[Any], snapshot: bytes, contents: str, *, newest: int = SNAPSHOT_VERSION
) -> Any:
    """Returns the state that `snapshot` was taken of; raises `EngineVersionError` for one that this Tenure cannot read."""
    try:
        state = decoder.decode(snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineVersionError(f"a snapshot of {contents} cannot be read: {error}") from error
    if state.version > newest:
        raise EngineVersionError(
            f"the snapshot has version {state.version}, and this Tenure reads up to {newest}",
            remedy="Start the newer version again",
        )
    return state

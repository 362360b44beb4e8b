"""Keeps with each job the events that are about it, within bounds, so that `why` survives snapshots and truncation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.jobs.decisions import Event, encode_event
from tenure.jobs.model import JobInfo

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

HISTORY_SHARE = 4
"""The histories of all jobs together take at most one part in HISTORY_SHARE of the budget. Beyond it, each takes `SHORT_HISTORY_BYTES`."""
SHORT_HISTORY_BYTES = 512
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

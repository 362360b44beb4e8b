"""Errors of Tenure itself, each kept to the one thing that it concerns."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.logs import NodeLog

_REMEMBERED, _TRACE_CHARS = 1_000, 4_000


class IsolatedErrors:
    """Counts errors of Tenure itself by the thing that they concern. Safe to use from several threads."""

    def __init__(self, log: NodeLog) -> None:
        self._log = log
        self._times: dict[str, int] = {}
        self._lock = threading.Lock()
        self.count = 0
        """All errors, including those that were not logged."""

    @contextmanager
    def isolate(self, what: str) -> Iterator[None]:
        """Swallows an exception of the block, and logs it. `what` names the one thing that the block handles."""
        try:
            yield
        except Exception as error:
            times = self._note(what)
            # A thing that fails at every look would fill the log, so only its 1st, 2nd, 4th, 8th ... failure is logged.
            if times & (times - 1) == 0:
                trace = traceback.format_exc()[-_TRACE_CHARS:]
                self._log.error(f"{what} failed, time {times}, and everything else goes on: {error!r}\n{trace}")

    def _note(self, what: str) -> int:
        with self._lock:
            self.count += 1
            if len(self._times) >= _REMEMBERED:
                self._times.clear()
            times = self._times[what] = self._times.get(what, 0) + 1
            return times

"""Records the failures of a node's own code: it logs each traceback once, counts every failure, and raises an alarm while one is recent.

Code that handles one thing of many (a job, a result, a schedule, a report) and code that keeps a loop running notes its exceptions here, and
goes on (decision 0195). This module decides nothing: the code that notes a failure also decides what becomes of the one thing.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from enum import StrEnum

from tenure.clock import Clock
from tenure.errors import ProductFailedError
from tenure.jobs.alarms import Alarm, AlarmKind

NEWS_S = 900.0
"""The seconds that an alarm stands after its last failure: long enough that an operator sees it, and it ends by itself."""
MOST_FRAMES = 20
MOST_PLACES = 1_000
"""The most source lines that are remembered as logged. When there are more, all are forgotten, and their tracebacks logged anew."""


class FailedOn(StrEnum):
    """The kind of thing that the code was handling. It labels a metric and an alarm, so the set is closed."""

    LOOP = "loop"
    COMMAND = "command"
    JOB = "job"
    RESULT = "result"
    SCHEDULE = "schedule"
    WORKER = "worker"
    GATE = "gate"
    DATACENTER = "datacenter"
    REQUEST = "request"
    WAITER = "waiter"


class ProductFailures:
    """The failures of one node."""

    def __init__(self, clock: Clock, say: Callable[[str], None] = lambda text: None) -> None:
        self._clock, self._say = clock, say
        self.count: Callable[[str], None] = lambda what: None
        """Called with the `FailedOn` of each failure, for a metric."""
        self._newest: dict[str, tuple[float, int, str]] = {}
        """Maps each subject of an alarm to its last failure: when it was, the count of this run of failures, and its description."""
        self._said: dict[tuple[str, str, int], float] = {}
        """Maps each source line whose traceback was logged to when that was. Until `NEWS_S` later, its failures are logged as one line."""

    def note(self, what: FailedOn, subject: str, doing: str, error: BaseException) -> ProductFailedError:
        """Records one failure, and returns it as the error for the caller that it concerns."""
        failed = error if isinstance(error, ProductFailedError) else ProductFailedError(doing, error, trace_of(error))
        now = self._clock.boottime()
        key = f"{what} {subject}" if what is FailedOn.LOOP else str(what)
        words = f"{what} {subject[:200]!r}: {failed.fact}" + (f" ({doing})" if failed is error else "")
        at, before, _ = self._newest.get(key, (now, 0, ""))
        self._newest[key] = now, 1 + (before if now - at <= NEWS_S else 0), words
        self.count(str(what))
        self._say(f"FAILED on {words}" + self._trace_once(error, failed.trace, now))
        return failed

    def _trace_once(self, error: BaseException, trace: str, now: float) -> str:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = (
            type(error).__name__,
            frame.tb_frame.f_code.co_filename if frame else "",
            frame.tb_lineno if frame else 0,
        )
        said = self._said.get(place)
        if said is not None and now - said <= NEWS_S:
            return ""
        if len(self._said) >= MOST_PLACES:
            self._said.clear()
        self._said[place] = now
        return f"\n{trace}" if trace else ""

    def alarms(self) -> list[Alarm]:
        """Returns an alarm for each kind of thing, and for each loop, that failed within `NEWS_S`."""
        now, found = self._clock.boottime(), []
        for key, (at, count, words) in list(self._newest.items()):
            if now - at > NEWS_S:
                del self._newest[key]
                continue
            often = f"{count:,} times, " if count > 1 else ""
            reason = f"Tenure's own code failed {often}the last time {now - at:.0f} s ago on {words}"
            found.append(Alarm(AlarmKind.PRODUCT_FAILED, key, reason, _REMEDY))
        return found


_REMEDY = "Everything else goes on. The log has the traceback: please report it"


def trace_of(error: BaseException) -> str:
    """Returns the end of its traceback; empty where formatting fails, as it may when memory is short."""
    try:
        return "".join(traceback.format_exception(error, limit=-MOST_FRAMES))
    except Exception:
        return ""

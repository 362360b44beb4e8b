"""Records requests: an audit line for each write and each refusal, and the counters of a port for Prometheus.

A line is one JSON object, so that no text of a request can pass for another line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest

from tenure.clock import Clock, SystemClock
from tenure.control.admission import AdmittedCaller, Buckets
from tenure.control.messages.gates import Forward, TellDatacenter, TellGate
from tenure.control.messages.operations import BY_NAME, decode_request
from tenure.control.messages.wire import Problem, Redirect, Reply, Request
from tenure.control.messages.workers import ExtendDeadline, WorkerReport

REFUSALS_PER_S, REFUSALS_BURST = 2.0, 20.0
_UNREMARKABLE: tuple[type[Request], ...] = (WorkerReport, ExtendDeadline, TellGate, TellDatacenter)
"""Requests that get no audit line. Nodes send them all the time, and the journal holds the decisions that follow from them."""


class AccessLog:
    """The log of one port. `audit` gets the lines, `count` each answer's operation, status and seconds, `dropped` the bound that cut one off."""

    def __init__(
        self,
        audit: Callable[[str], None] = lambda line: None,
        count: Callable[[str, int, float], None] = lambda operation, status, seconds: None,
        clock: Clock | None = None,
        dropped: Callable[[str], None] = lambda bound: None,
    ) -> None:
        self._audit, self.answered, self.dropped = audit, count, dropped
        self._clock = clock or SystemClock()
        self._refusals = Buckets(REFUSALS_PER_S, REFUSALS_BURST)
        self._unsaid = 0

    def wrote(self, request_id: str, caller: AdmittedCaller, request: Request, reply: Reply) -> None:
        """Writes a line for a change: its caller, its operation and its outcome."""
        if isinstance(request, _UNREMARKABLE) or isinstance(reply, (Problem, Redirect)):
            return
        by = caller.identity.name or str(getattr(request, "by", ""))
        if isinstance(request, Forward):  # log the request inside, with the gate's name and the caller's
            if BY_NAME[request.name].reads:
                return
            request = decode_request(request.name, bytes(request.body))
            if isinstance(request, _UNREMARKABLE):
                return
            by = f"{by}: {getattr(request, 'by', '')}"
        operation, outcome = str(request.__struct_config__.tag), str(getattr(reply, "outcome", "done"))
        self._say("wrote", request_id, caller.address, operation, by=by, about=_about(request), outcome=outcome)

    def refused(self, request_id: str, address: str, operation: str, status: int, problem: Problem) -> None:
        """Writes a line for a caller that was refused, or for a failure. A flood of refusals from one address is counted, not written."""
        if status not in (401, 403, 429, 500):
            return
        if self._refusals.take(address, self._clock.monotonic()):
            self._unsaid += 1
            return
        extra = {"unsaid": str(self._unsaid)} if self._unsaid else {}
        self._unsaid = 0
        self._say("refused", request_id, address, operation, status=str(status), fact=problem.fact[:300], **extra)

    def _say(self, what: str, request_id: str, address: str, operation: str, **more: str) -> None:
        line = {"audit": what, "request": request_id, "from": address, "operation": operation}
        self._audit(msgspec.json.encode(line | {key: value for key, value in more.items() if value}).decode())


GROUP_S = 0.05
"""The seconds for which an audit line waits for others. A node that is killed loses at most so much of them; the journal has who asked for what."""


class LineGroups:
    """Passes lines on in groups, after the answers that they are about. Runs on the event loop's thread."""

    def __init__(self, write: Callable[[Sequence[str]], None]) -> None:
        self._write, self._lines = write, list[str]()

    def add(self, line: str) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_later(GROUP_S, self.write)
        self._lines.append(line)

    def write(self) -> None:
        """Passes on the lines that wait."""
        lines, self._lines = self._lines, []
        if lines:
            self._write(lines)


def _about(request: Request) -> str:
    submission = getattr(request, "submission", None)
    named = [
        getattr(submission, "job_id", ""),
        *(getattr(request, field, "") for field in ("job_id", "queue", "node", "id", "name")),
    ]
    return next((str(name)[:200] for name in named if name), "")


_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0)


class PortMetrics:
    """A registry of its own for each node, so that several in one process do not count into each other's numbers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tenure_http_requests",
            "Requests that were answered, by operation and status.",
            ["operation", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "tenure_http_request_seconds",
            "How long an answer took, with what it was asked to wait.",
            ["operation"],
            buckets=_SECONDS,
            registry=self.registry,
        )

        self._dropped = Counter(
            "tenure_http_dropped",
            "Connections and bodies that were cut off, by the bound of the port that they met.",
            ["bound"],
            registry=self.registry,
        )
        self._of_answer: dict[tuple[str, int], Callable[[float], None]] = {}
        """Counts one answer, by its operation and its status. The library would look its labels up for each answer."""

    def dropped(self, bound: str) -> None:
        """Bounds are a closed list: fields of `HttpLimits`, and `ahead_bytes`."""
        self._dropped.labels(bound).inc()

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Operations are a closed list; what is none of them counts as `other`."""
        count = self._of_answer.get((operation, status))
        if count is None:
            count = self._of_answer[operation, status] = self._counting(operation or "other", str(status))
        count(seconds)

    def _counting(self, name: str, status: str) -> Callable[[float], None]:
        answers, lengths = self._requests.labels(name, status), self._seconds.labels(name)

        def count(seconds: float) -> None:
            answers.inc()
            lengths.observe(seconds)

        return count

    def render(self) -> tuple[bytes, str]:
        return generate_latest(self.registry) + generate_latest(REGISTRY), CONTENT_TYPE_LATEST

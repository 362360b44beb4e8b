"""Sends the jobs that workflows submit from a slot to the leading manager, which it finds through the engine's election."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tenure.attempt_data import Signal
from tenure.client.client import Client
from tenure.clock import SystemClock
from tenure.control.messages.jobs import GetJob, JobView
from tenure.control.messages.wire import MANAGER_ELECTION, address_of
from tenure.engines.contracts import Engine
from tenure.errors import NodeUnavailableError
from tenure.jobs.model import JobSubmission
from tenure.work.job_submission import ChildView
from tenure.work.registry import Workflow

T = TypeVar("T")
PATIENCE_S = 60.0


class LeaderCourier:
    """Asks the manager that leads. When that one does not answer, it looks for the leader anew, for up to `PATIENCE_S`."""

    poll_s = 1.0

    def __init__(self, engine_url: str, token: str = "") -> None:
        self._engine_url, self._token = engine_url, token
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._client: Client | None = None

    def submit(self, submission: JobSubmission, workflow: Workflow[..., Any] | None) -> str:
        return self._ask(lambda client: client.submit_job(submission).job_id)

    def look(self, job_id: str, wait_s: float) -> ChildView:
        return child_view(self._ask(lambda client: client.job(job_id, wait_s=wait_s)))

    def cancel(self, job_id: str, reason: str) -> None:
        self._ask(lambda client: client.cancel(job_id, reason))

    def why(self, job_id: str) -> str:
        return self._ask(lambda client: client.why(job_id).text)

    def signals(self, job_id: str, after: int) -> Sequence[Signal]:
        """Asks once: whoever polls comes again, and shall not wait for a leader that is away."""
        try:
            reply = self._found().ask(GetJob(job_id=job_id, signals_after=after))
        except NodeUnavailableError:
            with self._lock:
                self._client = None
            raise
        return reply.signals if isinstance(reply, JobView) else ()

    def _ask(self, call: Callable[[Client], T]) -> T:
        until = self._clock.monotonic() + PATIENCE_S
        while True:
            try:
                return call(self._found())
            except NodeUnavailableError:
                with self._lock:
                    self._client = None
                if self._clock.monotonic() >= until:
                    raise
                self._clock.sleep(0.2)

    def _found(self) -> Client:
        with self._lock:
            if self._client is None:
                with Engine.open(self._engine_url, clock=self._clock) as engine:
                    leader = engine.election(MANAGER_ELECTION).current()
                address = address_of(leader.candidate) if leader is not None else ""
                if not address:
                    raise NodeUnavailableError("nobody leads now")
                self._client = Client([address], token=self._token, patience_s=2.0)
            return self._client


def connect(engine_url: str, token: str) -> LeaderCourier:
    """Makes the courier of a slot. `SlotSettings.courier` names this function."""
    return LeaderCourier(engine_url, token)


def child_view(view: JobView) -> ChildView:
    steps, attempts = sum(one.steps for one in view.workflows), sum(one.attempt for one in view.workflows)
    single = len(view.workflows) == 1
    return ChildView(
        state=view.state,
        ended=view.ended,
        completed=view.state == "completed",
        reason=view.reason,
        progress=(attempts, steps, view.state),
        left_s=math.inf if view.deadline is None else max(0.0, view.deadline - view.now),
        result=view.workflows[0].result if single else {one.name: one.result for one in view.workflows},
    )

"""A worker's word to the leader, and the leader's to the worker.

Two threads beside the supervisor. One tells: once a second while something runs, and at once when something began or ended. The other listens: its
report is answered when the leader wants something stopped. The leader is found through the engine, so a worker needs no addresses. When
nobody answers, the work goes on: results wait in the engine, and each report is the whole state.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from tenure.beat.board import Phase, Reading
from tenure.clock import Clock
from tenure.engines.contracts import Election, Engine
from tenure.errors import NodeUnavailableError, TenureError
from tenure.nodes.calling import Caller
from tenure.nodes.candidacy import ELECTION
from tenure.nodes.messages import Redirect, address_of
from tenure.nodes.obedience import Obedience
from tenure.nodes.worker_messages import AttemptReport, WorkerDirective, WorkerReport
from tenure.work.slots.supervisor import Supervisor

TELL_EVERY_S = 1.0
LOOK_EVERY_S = 0.1
LISTEN_S = 20.0
ANSWER_S = 3.0
REST_S = 1.0
"""After nobody answered."""


class Reporter:
    """`start` once the supervisor exists; `stop` after it ended."""

    def __init__(
        self, supervisor: Supervisor, engine_url: str, *, clock: Clock, token: str = "", say: Callable[[str], None]
    ) -> None:
        self._supervisor, self._engine_url, self._clock, self._say = supervisor, engine_url, clock, say
        self._token = token
        self._stopped = threading.Event()
        self.obedience = Obedience()
        self._threads = [
            threading.Thread(target=self._live, args=(turn,), name=f"tenure-{name}", daemon=True)
            for name, turn in (("tell", self._tell), ("listen", self._listen))
        ]
        self._told: frozenset[tuple[str, str, int, int]] = frozenset()
        self._told_at = -math.inf

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Does not wait for the listener: it may be held for as long as it asked to be."""
        self._stopped.set()

    def _live(self, turn: Callable[[Line], None]) -> None:
        while not self._supervisor.ready.wait(LOOK_EVERY_S):
            if self._stopped.is_set():
                return
        try:
            with Engine.open(self._engine_url, clock=self._clock) as engine:
                line = Line(engine.election(ELECTION), Caller(token=self._token))
                while not self._stopped.is_set():
                    try:
                        turn(line)
                    except TenureError:
                        # Nobody leads, or it does not answer. Work goes on under what was last said.
                        line.address = ""
                        self._stopped.wait(REST_S)
        except TenureError as error:
            self._say(f"this worker cannot report: {error}")

    def _tell(self, line: Line) -> None:
        attempts = self._attempts()
        names = frozenset(one.name for one in attempts)
        due = self._clock.monotonic() - self._told_at >= TELL_EVERY_S
        if names == self._told and not (attempts and due):
            self._stopped.wait(LOOK_EVERY_S)
            return
        self._obey(line.ask(WorkerReport(worker=self._supervisor.incarnation, attempts=attempts), ANSWER_S))
        self._told, self._told_at = names, self._clock.monotonic()

    def _listen(self, line: Line) -> None:
        attempts = self._attempts()
        if not attempts:
            self._stopped.wait(LOOK_EVERY_S)
            return
        report = WorkerReport(worker=self._supervisor.incarnation, attempts=attempts, wait_s=LISTEN_S)
        if self._obey(line.ask(report, ANSWER_S + LISTEN_S)):
            self._stopped.wait(LOOK_EVERY_S)  # until the board shows that it was stopped

    def _obey(self, directive: WorkerDirective) -> int:
        """How many attempts were asked to stop."""
        if not self.obedience.heard(directive):
            self._say(f"refused the word of a deposed leader (epoch {directive.epoch} < {self.obedience.epoch})")
            return 0
        return sum(
            self._supervisor.cancel(one.job_id, workflow_id=one.workflow, attempt=one.attempt, reason=one.reason)
            for one in directive.cancels
        )

    def _attempts(self) -> tuple[AttemptReport, ...]:
        now = self._clock.monotonic()
        readings = (reading for _, reading in self._supervisor.readings())
        return tuple(found for reading in readings if (found := attempt_report(reading, now)) is not None)


class Line:
    """One thread's way to whoever leads."""

    def __init__(self, election: Election, caller: Caller) -> None:
        self._election, self._caller = election, caller
        self.address = ""

    def ask(self, report: WorkerReport, timeout: float) -> WorkerDirective:
        """Raises `NodeUnavailableError`; the next call looks for the leader anew."""
        if not self.address:
            leader = self._election.current()
            if leader is None or not address_of(leader.candidate):
                raise NodeUnavailableError("nobody leads now")
            self.address = address_of(leader.candidate)
        reply = self._caller.ask(self.address, report, timeout)
        if isinstance(reply, Redirect):
            self.address = reply.address
            reply = self._caller.ask(self.address, report, timeout)
        if not isinstance(reply, WorkerDirective):
            raise NodeUnavailableError(f"{self.address} answered with {type(reply).__name__}")
        return reply


def attempt_report(reading: Reading, now: float) -> AttemptReport | None:
    """What a record says, if a leader should hear of it."""
    occupant = reading.occupant
    if reading.phase is not Phase.RUNNING or occupant is None or not occupant.managed:
        return None
    declared = now < reading.silent_until
    return AttemptReport(
        job_id=occupant.job,
        workflow=occupant.workflow_id,
        attempt=occupant.attempt,
        delivery=occupant.ticket.delivery_count,
        steps=reading.steps,
        fraction=reading.fraction if 0 <= reading.fraction <= 1 else None,
        silent_s=0.0 if declared else max(0.0, now - reading.beat_at),
        stall_s=occupant.stall_s,
        note=occupant.note[:200],
    )

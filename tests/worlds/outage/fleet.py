"""Agents on workers, their board records and watches, and a leader's book. The rules are those of production; only calls and reports are scripted.

A provider answers in two seconds while it is up. While it is down, a call fails after two seconds, or hangs, as the agent's `manner` has it.
An agent that is told to wait waits, as `agent/evaluation.py` does; one that is not gives up after its tries, and its attempt fails.
"""

from __future__ import annotations

from random import Random

import msgspec

from tenure.backoff import Retry
from tenure.beat.board import BeatBoard
from tenure.beat.record import Brake, Occupant, Phase
from tenure.control.messages.workers import HeldName
from tenure.engines.contracts import Ticket
from tenure.health.outage import DependencyWatch, OutageSettings, WaitingAttempt
from tenure.jobs import JobBook, decide
from tenure.jobs.attempt_results import AttemptFailed, RecordFailure
from tenure.jobs.attempts import RecordDispatched, RecordStarted
from tenure.jobs.decisions import Command, Decision
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.outages import OutageDeclared, OutageEnded, OutageMoved, hold_of, outage_commands
from tenure.jobs.outbox import to_dispatch
from tenure.jobs.states import AttemptCause
from tenure.jobs.submission import SubmitJob
from tenure.work.attempt_watch import Act, AttemptWatch
from tenure.work.wait_brake import WaitBrake
from tenure.work.watched_attempt import WatchedAttempt

PROVIDER = "anthropic"
CALL_S, STALL_S, TRIES = 2.0, 300.0, 5
STEP_S = 2.0
BACKOFF = Retry(delay=0.5, max_delay=30.0)


class Agent:
    """One running attempt: it calls the provider, works for a moment, and calls again. `hangs` makes it wait for nothing, for ever."""

    def __init__(self, job: str, attempt: int, worker: Worker, now: float, *, manner: str, hangs: bool) -> None:
        self.job, self.attempt, self.worker = job, attempt, worker
        self.manner, self.hangs = manner, hangs
        record = self.record = BeatBoard.private(1).records[0]
        record.index = len(worker.agents)
        ticket = Ticket(
            id=job, receipt_handle=job, lease_until=now + 1e9, generation=attempt, delivery_count=1, enqueued_at=now
        )
        self.occupant = Occupant(
            ticket=ticket,
            job=job,
            workflow="agent",
            attempt=attempt,
            queue="q",
            stall_s=STALL_S,
            workflow_id="agent",
            managed=True,
        )
        record.occupy(Phase.RUNNING, self.occupant, now)
        watch = AttemptWatch(self.occupant, extend_every_s=20.0, grace_s=5.0, lease_until=now + 1e9)
        self.watched = WatchedAttempt(record, watch, record.serial)
        self.reading = record.read()
        self.failures = 0
        self.calling_until: float | None = None
        self.next_at = now + worker.random.uniform(0, 5)
        self.failed = False

    def step(self, now: float, up: bool) -> None:
        """Does what is due: begins a call, hears its end, or waits for its turn."""
        if self.hangs:
            return
        if self.calling_until is not None:
            if now < self.calling_until and (up or self.manner != "hangs"):
                return
            self._hear(now, up)
        elif now >= self.next_at and self.record.brake is not Brake.HELD:
            self.wait_on(PROVIDER)
            self.worker.fleet.calls.append(now)
            self.calling_until = now + CALL_S

    def _hear(self, now: float, up: bool) -> None:
        if up:
            self.calling_until, self.failures = None, 0
            self.record.call_failed(False)
            self.wait_on("")
            floats, ints = self.record.beat_ports()
            floats[0], ints[1] = now, ints[1] + 1
            self.next_at = now + self.worker.random.uniform(1, 6)
        elif self.manner == "fails":
            self.calling_until = None
            self.failures += 1
            self.record.call_failed(True)
            tries = min(self.failures, TRIES - 1) if self.record.brake is not Brake.NONE else self.failures
            self.failed = tries >= TRIES
            self.next_at = now + BACKOFF.delay_s(tries, self.worker.random.random())

    def wait_on(self, name: str) -> None:
        self.occupant = msgspec.structs.replace(self.occupant, waits_on=name)
        self.watched.watch.occupant = self.occupant

    def waiter(self, now: float) -> WaitingAttempt:
        reading = self.reading
        quiet = STALL_S - (now - max(reading.beat_at, self.watched.watch.held_at))
        return WaitingAttempt(
            key=(self.job, "agent", self.attempt),
            name=self.occupant.waits_on,
            steps=reading.steps,
            failures=reading.failures,
            waited_s=now - reading.beat_at,
            allowed_s=max(0.0, quiet),
            held=self.record.brake is Brake.HELD,
        )


class Worker:
    """Ten seats, a brake, and a report a second."""

    def __init__(self, fleet: Fleet, name: str, random: Random) -> None:
        self.fleet, self.name, self.random = fleet, name, random
        self.agents: list[Agent] = []
        self.brake = WaitBrake()

    def step(self, now: float, up: bool) -> None:
        for agent in list(self.agents):
            agent.step(now, up)
            reading = agent.reading = agent.record.read()
            self.brake.look(agent.watched, reading, now)
            if reading.brake is Brake.HELD and agent.occupant.waits_on and agent.record.brake is not Brake.HELD:
                self.fleet.released.append(now)
            verdict = agent.watched.watch.step(reading, now, now)
            if verdict.act is Act.CANCEL:
                self.fleet.ended(agent, AttemptCause.STALL, now)
            elif agent.failed:
                self.fleet.ended(agent, AttemptCause.ERROR, now)


class Fleet:
    """The leader, its workers, and what became of their agents."""

    def __init__(
        self, settings: OutageSettings, *, workers: int, agents: int, seed: int = 1, manner: str = "fails"
    ) -> None:
        random = Random(seed)
        self.book, self.watch = JobBook(), DependencyWatch(settings)
        self.workers = [Worker(self, f"w{number}", random) for number in range(workers)]
        self.manner, self._count = manner, agents
        self.stalled: list[tuple[str, float]] = []
        self.released: list[float] = []
        """When each agent that was held was let try."""
        self.calls: list[float] = []
        for number in range(agents):
            spec = WorkflowSpec(name="agent", retry=Retry(max_attempts=3))
            job = JobSubmission(job_id=f"j{number}", workflows=(spec,))
            self._commit(SubmitJob(submission=job), 0.0)
        self._dispatch(0.0)

    def _commit(self, command: Command, now: float) -> Decision:
        decision = decide(self.book, command, now)
        for event in decision.events:
            self.book.apply(event)
            if isinstance(event, AttemptFailed) and event.waits_on:
                self.watch.failed(event.waits_on, event.worker, (event.job_id, event.workflow, event.attempt), now)
            elif isinstance(event, OutageDeclared | OutageMoved | OutageEnded):
                self.watch.begin(event.name, now)
        return decision

    def _dispatch(self, now: float) -> None:
        for order in to_dispatch(self.book, now):
            job, name, attempt = order.job_id, order.workflow, order.attempt
            self._commit(RecordDispatched(job_id=job, workflow=name, attempt=attempt), now)
            worker = min(self.workers, key=lambda one: len(one.agents))
            self._commit(RecordStarted(worker=worker.name, job_id=job, workflow=name, attempt=attempt), now)
            manner = self.manner if self.manner != "mixed" else ("hangs", "fails")[int(order.job_id[1:]) % 2]
            worker.agents.append(Agent(order.job_id, order.attempt, worker, now, manner=manner, hangs=False))

    def ended(self, agent: Agent, cause: AttemptCause, now: float) -> None:
        """An attempt of an agent ended without a result."""
        agent.worker.agents.remove(agent)
        if cause is AttemptCause.STALL:
            self.stalled.append((agent.job, now))
        waits_on = PROVIDER if cause is AttemptCause.ERROR else ""
        failed = RecordFailure(
            job_id=agent.job,
            workflow="agent",
            attempt=agent.attempt,
            cause=cause,
            worker=agent.worker.name,
            waits_on=waits_on,
        )
        self._commit(failed, now)

    def step(self, now: float, up: bool) -> None:
        for worker in self.workers:
            worker.step(now, up)
            self.watch.heard(worker.name, [agent.waiter(now) for agent in worker.agents], now)
        for command in outage_commands(self.book.state.outages, self.watch, now):
            self._commit(command, now)
        self._dispatch(now)
        for worker in self.workers:
            holds = []
            for name, record in self.book.state.outages.items():
                canaries, released = hold_of(record, worker.name, now)
                holds.append(HeldName(name=name, canaries=canaries, released=released))
            worker.brake.tell(holds)

    @property
    def charged(self) -> int:
        """Attempts that count, over all jobs, beyond the first of each."""
        return sum(
            one.workflows["agent"].attempt - 1 - one.workflows["agent"].uncharged for one in self.book.jobs.values()
        )

    @property
    def over(self) -> list[str]:
        """Jobs that have ended."""
        return [one.id for one in self.book.jobs.values() if one.state.terminal]


def play(fleet: Fleet, *, down_from: float, down_until: float, until: float, hung: str = "") -> None:
    """Plays the fleet in steps of `STEP_S`. The agent of job `hung` hangs by itself, from the middle of the outage on."""
    now = 0.0
    while now < until:
        now += STEP_S
        fleet.step(now, up=not down_from <= now < down_until)
        if hung and now == (down_from + down_until) / 2:
            for worker in fleet.workers:
                for agent in worker.agents:
                    if agent.job == hung:
                        agent.hangs, agent.calling_until = True, None
                        agent.wait_on("")

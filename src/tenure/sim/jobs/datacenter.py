"""A datacenter of the large world: a leader, its successors, an engine that keeps what it is given, and workers.

What the shell of a manager will do, without its I/O: decide, append, fold, then act. The engine's part is a queue with
generations and a results mailbox; both survive every leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.health.extension import ExtensionTracker
from tenure.jobs import commands as c
from tenure.jobs import events as e
from tenure.jobs.book import JobBook
from tenure.jobs.deadlines import NEVER, deadline, next_due
from tenure.jobs.decide import decide
from tenure.jobs.messages import JobGlobalCancel, JobGlobalTimeout, JobReportAck, JobStatusQuery
from tenure.jobs.model import JobSubmission
from tenure.jobs.outbox import standing, to_dispatch, to_revoke
from tenure.jobs.progress import ProgressWatch
from tenure.jobs.reports import report_for
from tenure.jobs.rules import Rules
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import AttemptCause
from tenure.jobs.timers import Timers
from tenure.sim.jobs.clockwork import Clockwork, Wire
from tenure.sim.jobs.promises import broken_by_datacenter

if TYPE_CHECKING:
    from tenure.sim.jobs.gate import Gate

REPORT_EVERY = 30.0
WORKERS = 2


class Attempt:
    """One attempt on a worker, with the script that it plays."""

    __slots__ = ("attempt", "fate", "job_id", "steps", "worker", "workflow")

    def __init__(self, job_id: str, workflow: str, attempt: int, worker: str, fate: str) -> None:
        self.job_id, self.workflow, self.attempt = job_id, workflow, attempt
        self.worker, self.fate = worker, fate
        self.steps = 0


class Datacenter:
    """One of them. `gate` is where its reports go; set once the gate exists."""

    def __init__(self, name: str, clockwork: Clockwork, settings: JobSettings, rules: Rules, wire: Wire) -> None:
        self.name, self.clockwork, self.settings, self.rules, self.wire = name, clockwork, settings, rules, wire
        self.book = JobBook(settings)
        self.journal: list[e.Event] = []
        self.watch = ProgressWatch()
        self.timers: Timers[str] = Timers()
        self.identity = c.Identity(name, "m1")
        self.leading = False
        self.queue: dict[tuple[str, str], int] = {}
        """The engine: the live message of each key, by its generation."""
        self.generations: dict[tuple[str, str], float] = {}
        """The highest generation that a key was sent with; infinity when it was revoked."""
        self.results: list[c.Command] = []
        self.running: set[Attempt] = set()
        self.grants: dict[str, ExtensionTracker] = {}
        self.gate: Gate
        self.idle_workers = [f"{name}-w{number}" for number in range(WORKERS)]
        self.leaderless_until = 0.0
        self._wake_at = NEVER

    # The leader.

    def take_over(self, leader: str) -> None:
        self.watch = ProgressWatch()
        self.timers = Timers()
        self.identity = c.Identity(self.name, leader)
        self.leading = True
        self.leaderless_until = self.clockwork.now
        self.do(c.TakeLead(epoch=self.book.epoch + 1, leader=leader))
        self.clockwork.tell(f"{self.name}: {leader} leads, epoch {self.book.epoch}")
        self.drain()  # before the timers: a result from before the deadline wins over it
        for info in self.book.live_jobs():
            self.arm(info.id)
        self.act()

    def lose_leader(self) -> None:
        if self.leading:
            self.leading = False
            self.clockwork.tell(f"{self.name}: the leader is gone")

    def do(self, command: c.Command) -> c.Decision:
        """Decide, append, fold: one step, as the journal makes it one."""
        decision = decide(self.book, command, self.clockwork.now, self.rules)
        for event in decision.events:
            if type(event) is e.JobEnded:
                broken = broken_by_datacenter(event, self.book.jobs.get(event.job_id))
                self.clockwork.require(not broken, f"{self.name}: {broken}")
            self.book.apply(event)
        if decision.events:
            self.journal += decision.events
            self.clockwork.tell(
                f"{self.name}: {', '.join(type(x).__name__ for x in decision.events)} {decision.reason}"
            )
            if decision.job_id:
                self.arm(decision.job_id)
        return decision

    def arm(self, job_id: str) -> None:
        info = self.book.jobs.get(job_id)
        if info is not None:
            self.timers.set(job_id, next_due(info, self.settings, self.watch.last(job_id), self.rules))
            self.plan()

    def plan(self) -> None:
        """Wake when the first timer is due."""
        due = min(self.timers.next_due(), self.book.resting.next_due())
        if due < self._wake_at:
            self._wake_at = due
            self.clockwork.after(max(0.0, due - self.clockwork.now), self.wake)

    def wake(self) -> None:
        """Timers: exactly when something is due."""
        self._wake_at = NEVER
        if not self.leading:
            return
        self.drain()
        for job_id in self.timers.pop_due(self.clockwork.now):
            self.do(c.CheckJob(job_id=job_id, progress_at=self.watch.last(job_id)))
            self.arm(job_id)
        self.act()
        self.plan()

    def tick(self) -> None:
        """Reports, on their cadence."""
        self.clockwork.after(REPORT_EVERY, self.tick)
        if not self.leading:
            return
        self.drain()
        for info in list(self.book.jobs.values()):
            report = report_for(info, self.identity, self.clockwork.now, self.settings, self.watch.last(info.id))
            if report is not None:
                self.wire.send(self.gate.hear, report)
        self.act()

    def hear(self, message: Any) -> None:
        """A message from a gate."""
        if not self.leading:
            return
        kind = type(message)
        if kind is JobGlobalTimeout:
            reply = self.do(c.ObeyGlobalTimeout(message=message, identity=self.identity)).reply
        elif kind is JobGlobalCancel:
            reply = self.do(c.ObeyGlobalCancel(message=message, identity=self.identity)).reply
        elif kind is JobStatusQuery:
            reply = self.do(c.AnswerQuery(message=message, identity=self.identity)).reply
        elif kind is JobReportAck:
            reply = self.do(c.HearGate(message=message)).reply
        else:
            assert kind is JobSubmission
            self.do(c.SubmitJob(submission=message))
            reply = None
            info = self.book.jobs.get(message.job_id)
            if info is not None and (report := report_for(info, self.identity, self.clockwork.now, self.settings)):
                self.wire.send(self.gate.hear, report)
        if reply is not None:
            self.wire.send(self.gate.hear, reply)
        self.act()

    def submit(self, submission: JobSubmission) -> bool:
        """A client's own submission; False when nobody leads, and it has to try again."""
        if not self.leading:
            return False
        self.do(c.SubmitJob(by="client", submission=submission))
        self.act()
        return True

    def cancel(self, job_id: str) -> bool:
        if not self.leading:
            return False
        self.do(c.CancelJob(by="client", job_id=job_id))
        self.act()
        return True

    def drain(self) -> None:
        """Results wait in a mailbox, in the order in which they came."""
        results, self.results = self.results, []
        for command in results:
            self.do(command)

    def act(self) -> None:
        """What the state asks for: send, revoke. All of it may happen twice."""
        book = self.book
        if book.ready or len(book.resting):
            for order in to_dispatch(book, self.clockwork.now):
                key = (order.job_id, order.workflow)
                if order.attempt > self.generations.get(key, 0):
                    self.generations[key] = self.queue[key] = order.attempt
                    self.clockwork.after(self.clockwork.random.random() * 2, self.claim, key, order.attempt)
                self.do(c.RecordDispatched(job_id=order.job_id, workflow=order.workflow, attempt=order.attempt))
            self.plan()
        if book.uncleaned:
            for job_id, keys in list(to_revoke(book)):
                for _, message_key in keys:
                    key = (job_id, message_key.rpartition("/")[2])
                    self.queue.pop(key, None)
                    self.generations[key] = NEVER
                self.do(c.ConfirmCleaned(job_id=job_id))

    # The workers.

    def claim(self, key: tuple[str, str], attempt: int) -> None:
        """A worker takes the message, if it is still there and somebody is free."""
        if self.queue.get(key) != attempt:
            return
        if not self.idle_workers:
            self.clockwork.after(5.0, self.claim, key, attempt)
            return
        random = self.clockwork.random
        worker = self.idle_workers.pop(random.randrange(len(self.idle_workers)))
        fate = random.choices(("done", "error", "hang", "vanish", "long"), (50, 12, 12, 8, 18))[0]
        mine = Attempt(*key, attempt, worker, fate)
        self.running.add(mine)
        if self.leading:
            self.do(
                c.RecordStarted(
                    job_id=mine.job_id, workflow=mine.workflow, attempt=attempt, worker=worker, delivery=attempt
                )
            )
        self.clockwork.after(5 + random.random() * 35, self.work, mine)

    def work(self, mine: Attempt) -> None:
        """The attempt goes on: it reports, hears what is wanted, ends, hangs or vanishes."""
        random, key = self.clockwork.random, (mine.job_id, mine.workflow)
        if mine.fate == "vanish":
            self.clockwork.after(40.0, self.evict, mine)
            return
        if mine.fate != "hang":
            mine.steps += 1
        if self.leading:
            told = standing(self.book, mine.job_id, mine.workflow, mine.attempt, mine.attempt)
            if not told.wanted:
                self.stop(mine)
                return
            self.report(mine)
        ends = mine.fate in ("done", "error") and random.random() < 0.4
        if not ends and (mine.fate != "long" or mine.steps < 25):
            self.clockwork.after(15 + random.random() * 25, self.work, mine)
            return
        # The engine takes a result only from the live message; now and then it does not look.
        if self.queue.get(key) == mine.attempt or random.random() < 0.2:
            if self.queue.get(key) == mine.attempt:
                del self.queue[key]
            self.results.append(self.outcome(mine))
            self.clockwork.after(0.01, self.wake)
        self.stop(mine)

    def outcome(self, mine: Attempt) -> c.Command:
        if mine.fate == "error":
            return c.RecordFailure(
                job_id=mine.job_id,
                workflow=mine.workflow,
                attempt=mine.attempt,
                cause=AttemptCause.ERROR,
                worker=mine.worker,
                delivery=mine.attempt,
                error="ValueError",
            )
        return c.RecordResult(
            job_id=mine.job_id,
            workflow=mine.workflow,
            attempt=mine.attempt,
            worker=mine.worker,
            delivery=mine.attempt,
            enqueued_at=self.clockwork.now,
        )

    def report(self, mine: Attempt) -> None:
        command = c.RecordProgress(
            job_id=mine.job_id,
            workflow=mine.workflow,
            attempt=mine.attempt,
            worker=mine.worker,
            steps=mine.steps,
            delivery=mine.attempt,
        )
        if self.do(command).outcome is not c.Outcome.REFUSED and self.watch.observe(command, self.clockwork.now):
            self.arm(mine.job_id)
            if mine.fate == "long" and self.clockwork.random.random() < 0.3:
                self.extend(mine)

    def extend(self, mine: Attempt) -> None:
        """The worker asks for time; health decides, and the job feels it."""
        tracker = self.grants.setdefault(mine.worker, ExtensionTracker(worker_id=mine.worker))
        if self.clockwork.random.random() < 0.1:
            tracker.reset()
        grant = tracker.request_extension("long_workflow", min(1.0, mine.steps / 30), counter=mine.steps)
        if not grant.granted:
            self.do(c.DenyExtension(worker=mine.worker, reason=grant.reason))
            return
        self.do(
            c.GrantExtension(
                worker=mine.worker,
                seconds=grant.extension_seconds,
                count=tracker.extension_count,
                total=tracker.total_extended,
                bound=tracker.bound,
                progress=tracker.last_progress,
                advanced=self.watch.take_advanced(mine.worker),
            )
        )
        self.arm(mine.job_id)

    def evict(self, mine: Attempt) -> None:
        """Nobody has heard of the worker for long enough."""
        if not self.leading:
            self.clockwork.after(20.0, self.evict, mine)
            return
        self.do(c.EvictWorker(by=self.identity.manager_id, worker=mine.worker, reason="silent for 40 s"))
        for info in self.book.live_jobs():
            self.arm(info.id)
        self.stop(mine)
        self.act()

    def stop(self, mine: Attempt) -> None:
        if mine in self.running:
            self.running.discard(mine)
            self.idle_workers.append(mine.worker)

    # What the promises ask.

    def deadline_of(self, job_id: str) -> float:
        return deadline(self.book.job(job_id).timeout_tracking)

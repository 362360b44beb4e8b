"""The large world: two datacenters, gates, clients, and everything that goes wrong between them, from one seed.

Faults begin soon and are over at `FAULTS_END`. After that everything must come to its end, within bounds that are
stated here; what must never happen is asked at every step, in `datacenter` and `gate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.health.extension import extension_bound
from tenure.jobs.book import JobBook
from tenure.jobs.events import encode_event
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import JobSubmission, RetryPolicy, WorkflowSpec
from tenure.jobs.rules import Rules
from tenure.jobs.settings import GateSettings, JobSettings
from tenure.jobs.states import JobState, OnFailure
from tenure.sim.jobs.clockwork import BrokenPromise, Clockwork, Wire
from tenure.sim.jobs.datacenter import REPORT_EVERY, Datacenter
from tenure.sim.jobs.gate import Gate

NAMES = ("dc-a", "dc-b")
FAULTS_END = 600.0
END = 1_800.0
LEAST_EVENTS = 200
GATE_BOUND = 300.0 + 2 * REPORT_EVERY
"""How long after its deadline, or after the last fault, a job of a gate may last: the fallback, and two reports."""
LOCAL_BOUND = 1.0
"""How long after its deadline a local job may last where a leader was there all the time: timers fire at their time."""


@dataclass
class Outcome:
    """How a run went. `broken` is empty when every promise held."""

    seed: int
    events: int = 0
    jobs: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    broken: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def replay(self) -> str:
        return f"python -m tenure.sim.jobs simulate --seeds {self.seed} --story"

    def __str__(self) -> str:
        if not self.broken:
            return f"seed {self.seed}: {self.events} events, {self.jobs} jobs: {self.ended}"
        return f"seed {self.seed}: {self.broken}\n  replay: {self.replay}"


class BigWorld:
    """One run."""

    def __init__(self, seed: int, *, rules: Rules | None = None, story: bool = False) -> None:
        self.seed = seed
        self.clockwork = Clockwork(seed, story=story)
        rules = rules or Rules()
        history = 40 if seed % 50 == 0 else 0
        random = self.clockwork.random
        loss, double = random.choice((0.0, 0.1, 0.3)), random.choice((0.0, 0.1, 0.3))
        slow = random.choice((0.5, 5.0, 60.0))
        self.datacenters = {
            name: Datacenter(
                name,
                self.clockwork,
                JobSettings(history_limit=history, report_interval=REPORT_EVERY),
                rules,
                Wire(self.clockwork, loss=loss, double=double, slow=slow),
            )
            for name in NAMES
        }
        self.gate = Gate(self.clockwork, GateSettings(history_limit=history), rules, self.datacenters)
        for datacenter in self.datacenters.values():
            datacenter.gate = self.gate
        self.local: dict[str, str] = {}
        """Jobs that were submitted to a datacenter itself, and to which."""
        self.global_: dict[str, tuple[str, ...]] = {}
        self.faulted: set[str] = set()

    # What happens.

    def setup(self) -> None:
        clockwork, random = self.clockwork, self.clockwork.random
        self.gate.take_over("g1")
        for datacenter in self.datacenters.values():
            datacenter.take_over("m1")
            clockwork.after(random.random() * REPORT_EVERY, datacenter.tick)
        for number in range(2):
            clockwork.after(random.random() * 60, self.submit_globally, self.submission(f"g{number}", gate=True))
        for name in NAMES:
            clockwork.after(random.random() * 60, self.submit_locally, name, self.submission(f"l-{name}", gate=False))
        self.plan_faults()
        clockwork.after(FAULTS_END, self.heal)

    def submission(self, job_id: str, *, gate: bool) -> JobSubmission:
        random = self.clockwork.random
        timeout = random.choice((150.0, 300.0, 500.0))
        retry = RetryPolicy(max_attempts=random.choice((1, 2, 3)), delay=1.0)
        failure = random.choice((OnFailure.FAIL, OnFailure.CONTINUE))
        specs = [WorkflowSpec(name="w0", retry=retry, on_failure=failure)]
        if random.random() < 0.4:
            specs.append(WorkflowSpec(name="w1", retry=retry, after=("w0",) if random.random() < 0.5 else ()))
        targets = NAMES if random.random() < 0.8 else (random.choice(NAMES),)
        return JobSubmission(
            job_id=job_id,
            workflows=tuple(specs),
            timeout_seconds=timeout,
            stuck_threshold=random.choice((60.0, 120.0)),
            gate_addr=("gate", 1) if gate else None,
            target_datacenters=targets if gate else (),
            idempotency_key=f"key {job_id}",
        )

    def submit_globally(self, submission: JobSubmission) -> None:
        random = self.clockwork.random
        if random.random() < 0.05:
            self.cancel_globally(submission.job_id)  # a cancel that overtakes its submission
        if not self.gate.submit(submission):
            self.clockwork.after(10.0, self.submit_globally, submission)
            return
        self.global_[submission.job_id] = submission.target_datacenters
        if random.random() < 0.3:
            self.clockwork.after(random.random() * 100, self.submit_globally, submission)  # the answer was lost
        if random.random() < 0.2:
            self.clockwork.after(random.random() * 300, self.cancel_globally, submission.job_id)

    def cancel_globally(self, job_id: str) -> None:
        if not self.gate.cancel(job_id):
            self.clockwork.after(10.0, self.cancel_globally, job_id)

    def submit_locally(self, name: str, submission: JobSubmission) -> None:
        random, datacenter = self.clockwork.random, self.datacenters[name]
        if not datacenter.submit(submission):
            self.clockwork.after(5.0, self.submit_locally, name, submission)
            return
        self.local[submission.job_id] = name
        if random.random() < 0.3:
            self.clockwork.after(random.random() * 100, self.submit_locally, name, submission)
        if random.random() < 0.1:
            self.clockwork.after(random.random() * 200, self.cancel_locally, name, submission.job_id)

    def cancel_locally(self, name: str, job_id: str) -> None:
        if not self.datacenters[name].cancel(job_id):
            self.clockwork.after(5.0, self.cancel_locally, name, job_id)

    # What goes wrong.

    def plan_faults(self) -> None:
        clockwork, random = self.clockwork, self.clockwork.random
        for name in NAMES:
            for _ in range(random.choice((0, 0, 1, 2))):
                clockwork.after(20 + random.random() * 430, self.lose_leader, name, random.random() ** 3 * 120)
            if random.random() < 0.5:
                clockwork.after(20 + random.random() * 200, self.cut, name, random.random() ** 2 * 380)
        for _ in range(random.choice((0, 0, 1, 2))):
            clockwork.after(20 + random.random() * 200, self.lose_gate, random.random() ** 2 * 380)

    def lose_leader(self, name: str, pause: float) -> None:
        datacenter = self.datacenters[name]
        self.faulted.add(name)
        if datacenter.leading:
            datacenter.lose_leader()
            self.clockwork.after(pause, datacenter.take_over, f"m{datacenter.book.epoch + 1}")

    def cut(self, name: str, seconds: float) -> None:
        self.datacenters[name].wire.up = False
        self.clockwork.tell(f"the link to {name} is cut for {seconds:.0f} s")
        self.clockwork.after(seconds, self.join, name)

    def join(self, name: str) -> None:
        self.datacenters[name].wire.up = True
        self.clockwork.tell(f"the link to {name} is back")

    def lose_gate(self, pause: float) -> None:
        if self.gate.leading:
            self.gate.lose_leader()
            self.clockwork.after(pause, self.replace_gate, self.clockwork.random.random() < 0.1)

    def replace_gate(self, lost_journal: bool) -> None:
        if not self.gate.leading:
            self.gate.take_over(f"g{self.gate.counter + 1}", lost_journal=lost_journal)

    def heal(self) -> None:
        for datacenter in self.datacenters.values():
            datacenter.wire.loss, datacenter.wire.double, datacenter.wire.up = 0.0, 0.0, True

    # Where it must end.

    def run(self) -> Outcome:
        outcome = Outcome(self.seed)
        clockwork = self.clockwork
        try:
            self.setup()
            while clockwork.events < LEAST_EVENTS or (clockwork.now < END and not self.settled()):
                if clockwork.events > 20_000:
                    raise BrokenPromise("it always settles: 20,000 events and no end")  # noqa: TRY301
                clockwork.step()
            self.judge()
        except (BrokenPromise, AssertionError, KeyError, ValueError) as error:
            outcome.broken = f"{type(error).__name__}: {error}" if not isinstance(error, BrokenPromise) else str(error)
        outcome.events = clockwork.events
        outcome.jobs = len(self.local) + len(self.global_)
        for datacenter in self.datacenters.values():
            for info in datacenter.book.jobs.values():
                outcome.ended[info.state] = outcome.ended.get(info.state, 0) + 1
        outcome.lines = clockwork.lines or []
        return outcome

    def settled(self) -> bool:
        """Cheap, and asked between events: faults are over, and nothing is open anywhere."""
        if self.clockwork.now < FAULTS_END or any(dc.running for dc in self.datacenters.values()):
            return False
        return not any(
            not info.state.terminal or not info.gate_acked
            for datacenter in self.datacenters.values()
            for info in datacenter.book.jobs.values()
        ) and all(info.state.terminal for info in self.gate.tracker.jobs.values())

    def judge(self) -> None:
        require = self.clockwork.require
        for job_id, name in self.local.items():
            self.judge_in(self.datacenters[name], job_id, LOCAL_BOUND if name not in self.faulted else GATE_BOUND)
        for job_id, targets in self.global_.items():
            info = self.gate.tracker.jobs.get(job_id)
            require(info is not None or self.gate.lost, f"no job is lost: the gate does not know {job_id}")
            for name in targets:
                datacenter = self.datacenters[name]
                if job_id in datacenter.book.jobs:
                    self.judge_in(datacenter, job_id, GATE_BOUND)
                    here = datacenter.book.job(job_id).state
                else:
                    stone = datacenter.book.state.tombstones.get(job_id)
                    require(stone is not None or self.gate.lost, f"no job is lost: {name} does not know {job_id}")
                    here = stone.state if stone else JobState.CANCELLED
                if info is not None and (job_id in datacenter.book.jobs or not self.gate.lost):
                    known = info.dc_status[name]
                    require(known == here, f"the gate has {job_id} in {name} as {known}, and it is {here}")
            if info is not None:
                require(info.state.terminal, f"it always settles: {job_id} is {info.state} at the gate")
        for name, datacenter in self.datacenters.items():
            require(not datacenter.running, f"nothing is leaked: workers of {name} still run something of an ended job")
        if self.seed % 50 == 0:
            self.replay()

    def judge_in(self, datacenter: Datacenter, job_id: str, bound: float) -> None:
        require, info = self.clockwork.require, datacenter.book.job(job_id)
        where = f"{job_id} in {datacenter.name}"
        require(info.state.terminal, f"it always settles: {where} is {info.state}")
        require(info.cleaned, f"nothing is leaked: the messages of {where} are not revoked")
        granted = info.timeout_tracking.total_extensions_granted
        require(0.0 <= granted <= extension_bound(), f"granted time is bounded: {where} was given {granted} s")
        latest = datacenter.deadline_of(job_id)
        if bound > LOCAL_BOUND:
            latest = max(latest, FAULTS_END)
        require(
            info.ended_at <= latest + bound,
            f"none runs past its deadline: {where} ended at {info.ended_at:.1f}, {latest:.1f} + {bound:.0f} was allowed",
        )

    def replay(self) -> None:
        """The fold of the journal, through its bytes, is the state."""
        for datacenter in self.datacenters.values():
            again = JobBook(datacenter.settings)
            again.replay([encode_event(event) for event in datacenter.journal])
            same = again.snapshot() == datacenter.book.snapshot()
            self.clockwork.require(same, f"replay gives the same state: {datacenter.name}")
        tracker = GateJobTracker(self.gate.settings)
        tracker.replay([encode_event(event) for event in self.gate.journal])
        self.clockwork.require(tracker.snapshot() == self.gate.tracker.snapshot(), "replay gives the same state: gate")


def simulate(seed: int, *, rules: Rules | None = None, story: bool = False) -> Outcome:
    """Play one seed."""
    return BigWorld(seed, rules=rules, story=story).run()

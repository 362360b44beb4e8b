"""The workers of a datacenter, as its leader sees them: who lives, who may take work, who is to go.

Joins the health rules (documents 000 and 001) with reports and gossip. It does no I/O and is told the time, in the engine's seconds: what
follows comes back as commands for the journal, and a verdict counts only once `told` or `gone` says that its append returned. It is one
leader's memory. A new leader restores from the book what may not be forgotten (extension series, verdicts, evicted incarnations), and
its clocks start at the takeover.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tenure.errors import UnknownWorkerError
from tenure.health.brake import BrakeStatus
from tenure.health.deadlines import WorkerHealthManager
from tenure.health.extension import ExtensionTracker, HealthcheckExtensionRequest, HealthcheckExtensionResponse
from tenure.health.piggyback import HealthPiggyback
from tenure.health.signals import HealthClass, RoutingDecision
from tenure.health.window import CompletionRate
from tenure.jobs import DenyExtension, EvictWorker, ForgetWorker, GrantExtension, JobBook, JudgeWorker, ResetExtensions
from tenure.jobs.commands import Command
from tenure.jobs.model import EVICTED, WorkerRecord
from tenure.nodes.fleet.member import Member, Told, WorkerStanding
from tenure.nodes.fleet.settings import FleetSettings
from tenure.nodes.messages.worker import WorkerReport

_TAKES_WORK = (RoutingDecision.ROUTE, RoutingDecision.INVESTIGATE)
_LEADER = "leader"


class Fleet:
    """Told of reports, of gossip and of the time; gives the commands that a leader has to journal."""

    def __init__(self, settings: FleetSettings | None = None) -> None:
        self.settings = settings or FleetSettings()
        self.health = WorkerHealthManager(config=self.settings.extensions, brake=self.settings.brake)
        self._rate = CompletionRate(self.settings.interval_s)
        self._members: dict[str, Member] = {}
        self._evicted: dict[str, dict[str, tuple[float, str]]] = {}
        """Incarnations that are over, with when and why: should one wake, it is told so."""
        self._able: dict[str, set[str]] = {}
        """Of each lane, the workers that take work from it."""
        self._drained: frozenset[str] = frozenset()
        self._gossip: dict[str, bool] = {}
        self._broken: dict[str, Exception] = {}

    def restore(self, book: JobBook, now: float) -> None:
        """Go on where the last leader was: verdicts and series as journaled, clocks from now at the earliest.

        A worker whose record is of no use begins anew with its next report.
        """
        for name, record in book.state.workers.items():
            try:
                self._restore(name, record, now)
            except Exception as error:
                self._broken[name] = error
                self._members.pop(name, None)

    def _restore(self, name: str, record: WorkerRecord, now: float) -> None:
        if record.verdict == EVICTED:
            self._evicted.setdefault(name, {})[record.incarnation] = record.since, record.reason
            return
        series = replace(
            self.settings.extensions.tracker(name),
            extension_count=record.extension_count,
            last_progress=record.last_progress,
            total_extended=record.total_extended,
            last_counter=record.last_counter,
        )
        member = self._register(name, record.incarnation, now, series=series, deadline=record.deadline)
        member.verdict, member.reason = RoutingDecision(record.verdict), record.reason

    def take_broken(self) -> dict[str, Exception]:
        """Workers that could not be restored or judged since this was asked last, and why. They keep no other from being judged."""
        broken, self._broken = self._broken, {}
        return broken

    # What is heard

    def hear(self, report: WorkerReport, now: float) -> list[Command]:
        """A report came: what has to be journaled because of it. After an eviction among them, it is heard again."""
        name, incarnation = report.worker, report.start
        if incarnation in self._evicted.get(name, ()):
            return []
        member = self._members.get(name)
        if report.leaving:
            return self._leave(member, incarnation)
        if member is not None and member.incarnation != incarnation:
            return self._make_way(member, incarnation, now)
        if member is None:
            member = self._register(name, incarnation, now)
        return [*self._take(member, report, now), *self._judge(member, now)]

    def _make_way(self, member: Member, incarnation: str, now: float) -> list[Command]:
        """Another start under the same name: the old one goes once it has been silent for long enough to be over."""
        silent = now - member.heard_at
        if silent < self.settings.restart_s:
            return []  # or they are two: `tell` says so to the one that came later
        reason = f"it was silent for {silent:.1f} s, and started anew as {incarnation}"
        return [EvictWorker(by=_LEADER, worker=member.name, incarnation=member.incarnation, reason=reason)]

    def _leave(self, member: Member | None, incarnation: str) -> list[Command]:
        if member is None or member.incarnation != incarnation:
            return []
        self._drop(member)
        return [ForgetWorker(by=_LEADER, worker=member.name, reason="it was told to stop, and left")]

    def _register(
        self,
        name: str,
        incarnation: str,
        now: float,
        *,
        series: ExtensionTracker | None = None,
        deadline: float = 0.0,
    ) -> Member:
        self.health.register(name, now=now, deadline=deadline or None, extensions=series)
        member = Member.fresh(name, incarnation, now, self.settings.health, self.settings.interval_s)
        self.health.workers.update_state(name, member.state, now=now)
        self._members[name] = member
        return member

    def _take(self, member: Member, report: WorkerReport, now: float) -> list[Command]:
        self._gossip.pop(member.name, None)  # it speaks: whatever gossip said of it before is old
        if report.number < member.number:
            # Overtaken on its way: it proves that the worker lives, and nothing else.
            member.heard_at = now
            self._update(member, alive_at=now, failures=0, now=now)
            return []
        completed = member.take(report, self._rate, now)
        if member.lanes != report.lanes:
            self._discount(member)
            member.lanes = report.lanes
            self._count(member)
        return self._proven(member, now, completed=completed > 0)

    def _proven(self, member: Member, now: float, *, completed: bool) -> list[Command]:
        """Move its deadline by what its state shows. A series that starts anew is journaled: the next leader must know."""
        series = self.health.extensions(member.name)
        used = series.extension_count
        self.health.on_report(member.state, now=now)
        why = "it was well for a whole interval"
        if completed:
            self.health.on_worker_healthy(member.name, now=now)
            why = "it completed something"
        if used and not series.extension_count:
            return [ResetExtensions(by=_LEADER, worker=member.name, reason=why)]
        return []

    # Gossip may keep a worker alive, or hasten what its silence would bring anyway. It decides nothing alone.

    def hear_gossip(self, name: str, *, alive: bool, now: float) -> None:
        """What the pool believes of a worker now."""
        member = self._members.get(name)
        if member is None:
            return
        self._gossip[name] = alive
        if alive:
            self._update(member, alive_at=now, failures=0, now=now)
        elif now - member.heard_at >= self.settings.silent_s:
            most = self.settings.health.max_liveness_failures
            self._update(member, alive_at=member.heard_at, failures=most, now=now)

    def hear_piggyback(self, name: str, said: HealthPiggyback, now: float) -> list[Command]:
        """Health that came by gossip: as good as a report while none arrives."""
        member = self._members.get(name)
        if member is None or now - member.heard_at < self.settings.silent_s:
            return []
        member.believe(said, now)
        return [*self._proven(member, now, completed=False), *self._judge(member, now)]

    def _update(self, member: Member, *, alive_at: float, failures: int, now: float) -> None:
        member.state = replace(member.state, last_liveness_response=alive_at, consecutive_liveness_failures=failures)
        self.health.workers.update_state(member.name, member.state, now=now)

    # What follows

    def extend(
        self, request: HealthcheckExtensionRequest, incarnation: str, advanced: tuple[str, ...], now: float
    ) -> tuple[HealthcheckExtensionResponse, Command]:
        """Grant or deny. Raises `UnknownWorkerError` for a worker, or a start of it, that is not here."""
        name = request.worker_id
        member = self._members.get(name)
        if member is None or (incarnation and incarnation != member.incarnation):
            raise UnknownWorkerError(name)
        response = self.health.handle_extension_request(request, now=now, wall=now)
        evidence: dict[str, Any] = {
            "progress": request.current_progress,
            "estimated_completion": request.estimated_completion,
            "active_workflows": request.active_workflow_count,
        }
        if not response.granted or response.extension_seconds <= 0:
            reason = response.denial_reason or "it has as much time as two whole series could give"
            evidence |= {"asked_for": request.reason, "counter": request.progress_counter}
            return response, DenyExtension(by=_LEADER, worker=name, reason=reason, evidence=evidence)
        series = self.health.extensions(name)
        return response, GrantExtension(
            by=_LEADER,
            worker=name,
            seconds=response.extension_seconds,
            count=series.extension_count,
            total=series.total_extended,
            bound=series.bound,
            progress=request.current_progress,
            advanced=advanced,
            counter=request.progress_counter,
            deadline=self.health.deadline(name),
            reason=request.reason,
            evidence=evidence,
        )

    def sweep(self, now: float) -> list[Command]:
        """Time has passed: who has to go, whose verdict changed, who can be forgotten."""
        commands: list[Command] = []
        found = self.health.sweep(now=now)
        for name, reason in found.evict:
            member = self._members[name]
            evidence = {
                "class": str(member.state.class_at(now)),
                "silent_for": round(now - member.heard_at, 3),
                "brake": found.brake.reason,
                "gossip": self._by_gossip(name),
            }
            commands.append(
                EvictWorker(by=_LEADER, worker=name, incarnation=member.incarnation, reason=reason, evidence=evidence)
            )
        going = {name for name, _ in found.evict}
        for name, member in self._members.items():
            if name not in going:
                try:
                    commands += self._judge(member, now)
                except Exception as error:
                    self._broken[name] = error
        return commands + self._forget(now)

    def judge_again(self, name: str) -> None:
        """What was decided of it did not become durable: at the next look it is judged as if for the first time."""
        member = self._members.get(name)
        if member is not None:
            member.judged = None

    def _judge(self, member: Member, now: float) -> list[Command]:
        # Most of the time nothing has changed, and a reason in words costs more than this question.
        state, decided = member.state, self.health.workers.get_routing_decision(member.name, now=now)
        shown = decided, state.class_at(now), state.accepting_work
        if shown == member.judged:
            return []
        decision, reason = self._verdict(member, now)
        member.judged = shown
        if decision is member.verdict:
            return []
        evidence = {"class": str(member.state.class_at(now)), "left_s": round(self.left_s(member.name, now), 3)}
        return [
            JudgeWorker(
                by=_LEADER,
                worker=member.name,
                incarnation=member.incarnation,
                verdict=decision,
                reason=reason,
                evidence=evidence,
            )
        ]

    def _verdict(self, member: Member, now: float) -> tuple[RoutingDecision, str]:
        """What it is to be told. Eviction is told by its own event, once the work was issued anew."""
        found = self.health.workers.get_verdict(member.name, now=now)
        if found.held and member.verdict is not RoutingDecision.UNKNOWN:
            return member.verdict, found.reason
        if found.decision in (RoutingDecision.EVICT, RoutingDecision.UNKNOWN):
            return RoutingDecision.DRAIN, found.reason
        if found.decision is RoutingDecision.DRAIN and member.state.accepting_work:
            # It is full. A worker that pulls takes nothing while it is, and shall take the next work the moment it is not.
            slow = found.health_class is HealthClass.DEGRADED
            return RoutingDecision.INVESTIGATE if slow else RoutingDecision.ROUTE, found.reason
        return found.decision, found.reason

    def _forget(self, now: float) -> list[Command]:
        """Evicted incarnations that never came back."""
        commands: list[Command] = []
        for name, starts in list(self._evicted.items()):
            for incarnation in [one for one, (at, _) in starts.items() if now - at >= self.settings.forget_s]:
                del starts[incarnation]
            if not starts:
                del self._evicted[name]
                if name not in self._members:
                    reason = f"it was evicted {self.settings.forget_s:g} s ago, and has not come back"
                    commands.append(ForgetWorker(by=_LEADER, worker=name, reason=reason))
        return commands

    # What became of it

    def told(self, command: JudgeWorker) -> str:
        """The verdict is journaled and counts from now; the incarnation that has to hear of it, if it is here."""
        member = self._members.get(command.worker)
        if member is None or member.incarnation != command.incarnation:
            return ""
        member.verdict, member.reason = RoutingDecision(command.verdict), command.reason
        self._discount(member)
        self._count(member)
        return member.incarnation

    def gone(self, command: EvictWorker, now: float) -> None:
        """Its eviction is journaled: from now on this incarnation is told to stop."""
        self._evicted.setdefault(command.worker, {})[command.incarnation] = now, command.reason
        member = self._members.get(command.worker)
        if member is not None and member.incarnation == command.incarnation:
            self._drop(member)

    def _drop(self, member: Member) -> None:
        self._discount(member)
        self.health.remove(member.name)
        del self._members[member.name]
        self._gossip.pop(member.name, None)

    # What can be asked

    def tell(self, name: str, incarnation: str, now: float) -> Told:
        """What to tell a worker that reports under this name and incarnation."""
        if incarnation in self._evicted.get(name, ()):
            return Told(RoutingDecision.EVICT, self._evicted[name][incarnation][1])
        member = self._members.get(name)
        if member is None:
            return Told(RoutingDecision.DRAIN, "it said that it leaves")
        if member.incarnation != incarnation:
            heard = now - member.heard_at
            rival = f"another worker named {name} ({member.incarnation}) was heard {heard:.1f} s ago"
            return Told(RoutingDecision.DRAIN, f"{rival}: give each its own name")
        verdict = RoutingDecision.ROUTE if member.verdict is RoutingDecision.UNKNOWN else member.verdict
        return Told(verdict, member.reason, self.left_s(name, now), self._peers(member))

    def left_s(self, name: str, now: float) -> float:
        """Until a worker's deadline; 0 where it is over, or the worker is not known."""
        return max(0.0, self.health.deadline(name) - now) if name in self._members else 0.0

    def able(self, lane: str) -> frozenset[str]:
        """The workers that take work from this mailbox; one that an operator drained does not, whatever the verdict on it."""
        return frozenset(self._able.get(lane, ()))

    def drain(self, names: Iterable[str]) -> None:
        """These are the workers that operators have drained now."""
        before, self._drained = self._drained, frozenset(names)
        for name in before ^ self._drained:
            member = self._members.get(name)
            if member is not None:
                self._discount(member)
                self._count(member)

    def _peers(self, member: Member) -> int:
        """How many others are able to do all that it does. Costs what it has lanes."""
        able = (self._able.get(lane, set()) for lane in member.lanes)
        return min((len(others) - (member.name in others) for others in able), default=0)

    def _count(self, member: Member) -> None:
        if member.verdict in _TAKES_WORK and member.name not in self._drained:
            for lane in member.lanes:
                self._able.setdefault(lane, set()).add(member.name)

    def _discount(self, member: Member) -> None:
        for lane in member.lanes:
            self._able.get(lane, set()).discard(member.name)

    def knows(self, name: str, incarnation: str) -> bool:
        member = self._members.get(name)
        return member is not None and member.incarnation == incarnation

    def silent(self, now: float) -> list[str]:
        """Those of whom gossip may know more than reports do."""
        return [name for name, one in self._members.items() if now - one.heard_at >= self.settings.silent_s]

    def brake(self, now: float) -> BrakeStatus:
        return self.health.workers.brake_status(now=now)

    def __len__(self) -> int:
        return len(self._members)

    def standings(self, now: float) -> list[WorkerStanding]:
        """All workers that are known, in the order in which they came."""
        return [self._standing(member, now) for member in self._members.values()]

    def extensions_left(self, name: str) -> int:
        """Of a worker that is known."""
        return self.health.extensions(name).remaining_extensions

    def _standing(self, member: Member, now: float) -> WorkerStanding:
        return WorkerStanding(
            member.name,
            member.incarnation,
            self.health.workers.get_verdict(member.name, now=now).health_class,
            member.verdict,
            member.reason,
            now - member.heard_at,
            self.left_s(member.name, now),
            member.slots,
            member.state.available_capacity,
            member.state.workflows_assigned,
            self.extensions_left(member.name),
            self._by_gossip(member.name),
            member.version,
            member.lanes,
            member.skew_s,
            member.state.accepting_work,
        )

    def _by_gossip(self, name: str) -> str:
        if name not in self._gossip:
            return ""
        return "alive" if self._gossip[name] else "dead"

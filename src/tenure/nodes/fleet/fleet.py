"""Judges the workers of a datacenter for its leader: which of them live, which may take work, which must be evicted.

It joins the health rules (documents 000 and 001) with reports and gossip. It does no I/O, and callers pass the time in the engine's seconds.
It returns commands for the journal, and a verdict counts only once the leader calls `told` or `gone`, after the append returned. A fleet is
one leader's memory. A new leader restores from the book the facts that must survive (extension series, verdicts, evicted incarnations),
and its clocks start at the takeover.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tenure.control.messages.workers import WorkerReport
from tenure.errors import UnknownWorkerError
from tenure.health.deadlines import WorkerHealthManager
from tenure.health.extension import ExtensionTracker, HealthcheckExtensionRequest, HealthcheckExtensionResponse
from tenure.health.node_states import PoolWord
from tenure.health.signals import HealthClass, RoutingDecision
from tenure.health.window import CompletionRate
from tenure.jobs import JobBook
from tenure.jobs.decisions import Command
from tenure.jobs.extensions import DenyExtension, GrantExtension, ResetExtensions
from tenure.jobs.state_records import EVICTED, WorkerRecord
from tenure.jobs.workers import EvictWorker, ForgetWorker, JudgeWorker, words_of_eviction
from tenure.nodes.fleet.member import AbleWorkers, DepartedStarts, FleetSettings, Member, Told, WorkerStanding, slots_in

_LEADER = "leader"
ExtensionAnswer = tuple[HealthcheckExtensionResponse, Command]


class Fleet:
    """Takes reports, gossip and the time, and returns the commands that a leader has to journal."""

    def __init__(self, settings: FleetSettings | None = None) -> None:
        self.settings = settings or FleetSettings()
        self.health = WorkerHealthManager(config=self.settings.extensions, brake=self.settings.brake)
        self._rate = CompletionRate(self.settings.healthcheck_s)
        self._members: dict[str, Member] = {}
        self.slots = lambda queue: slots_in(self._members, queue)
        self._evicted: dict[str, dict[str, tuple[float, str]]] = {}
        """Maps worker and incarnation to when and why it was evicted. Should such an incarnation report again, the leader tells it to stop."""
        self._departed = DepartedStarts()
        self._able = AbleWorkers()
        self._gossip: dict[str, bool] = {}
        self._broken: dict[str, Exception] = {}

    def restore(self, book: JobBook, now: float) -> None:
        """Takes over from the last leader: verdicts and extension series as journaled, deadlines as journaled or from `now`, as is later.

        A worker whose record cannot be restored begins anew with its next report.
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
        member.granted = record.extension_count

    def take_broken(self) -> dict[str, Exception]:
        """Returns the workers that could not be restored or judged since the last call, each with its error. They hold up no other worker."""
        broken, self._broken = self._broken, {}
        return broken

    # Reports

    def hear(self, report: WorkerReport, now: float) -> list[Command]:
        """Takes a report, and returns the commands to journal because of it. When one of them is an eviction, the leader calls this again."""
        name, incarnation = report.worker, report.start
        if incarnation in self._evicted.get(name, ()) or self._departed.is_late(report):
            return []
        member = self._members.get(name)
        if report.leaving:
            return self._leave(member, report, now)
        if member is not None and member.incarnation != incarnation:
            return self._make_way(member, incarnation, now)
        member = member or self._register(name, incarnation, now)
        return [*self._take(member, report, now), *self._judge(member, now)]

    def _make_way(self, member: Member, incarnation: str, now: float) -> list[Command]:
        """Evicts the old start when another one reports under the same name, once the old one has been silent for `restart_s`."""
        silent = now - member.heard_at
        if silent < self.settings.restart_s:
            return []  # both may be running: `tell` drains the one that came later, and names its rival
        reason = f"it was silent for {silent:.1f} s, and started anew as {incarnation}"
        return [EvictWorker(by=_LEADER, worker=member.name, incarnation=member.incarnation, reason=reason)]

    def _leave(self, member: Member | None, report: WorkerReport, now: float) -> list[Command]:
        if member is None or member.incarnation != report.start:
            return []
        self._departed.note(report, now)
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
        member = Member.fresh(name, incarnation, now, self.settings.health, self.settings.healthcheck_s)
        self.health.workers.update_state(name, member.state, now=now)
        self._members[name] = member
        return member

    def _take(self, member: Member, report: WorkerReport, now: float) -> list[Command]:
        self._gossip.pop(member.name, None)  # the report is newer than anything that gossip said before
        if report.number < member.number:
            # A newer report overtook this one: it proves that the worker lives, but its numbers are old.
            member.heard_at = now
            self._update(member, alive_at=now, failures=0, now=now)
            return []
        completed = member.take(report, self._rate, now)
        if member.lanes != report.lanes:
            self._able.discount(member)
            member.lanes = report.lanes
            self._able.count(member)
        return self._proven(member, now, completed=completed > 0)

    def _proven(self, member: Member, now: float, *, completed: bool) -> list[Command]:
        """Moves the worker's deadline as its state allows. A reset of its extension series is journaled, because the next leader must know it."""
        member.state = self.health.without_excuse(member.state)
        self.health.on_report(member.state, now=now, allowed_until=member.allowed_until)
        if completed:
            self.health.on_worker_healthy(member.name, now=now)
        return self.resets(member.name, "it completed something" if completed else "it was well for a whole interval")

    def resets(self, name: str, why: str = "it was well, or completed something") -> list[Command]:
        """Returns the command for a series that began anew while the journal has grants of the last one. It comes again until `was_reset`: an
        exception may have lost it, and without it the journal would add the next grants to the last series."""
        member = self._members.get(name)
        if member is None or not member.granted or self.health.extensions(name).extension_count:
            return []
        return [ResetExtensions(by=_LEADER, worker=name, reason=why)]

    def was_reset(self, name: str) -> None:
        """Notes that the reset of a series is durable."""
        if (member := self._members.get(name)) is not None:
            member.granted = 0

    # Gossip hastens what silence would bring anyway. It never decides alone, and never gives a silent worker time.

    def hear_gossip(self, name: str, word: PoolWord, now: float) -> list[Command]:
        """Takes what the gossip pool believes of a worker that reports no more. Returns the commands to journal because of it.

        A word about another start counts where that start lives: then this one is over, because a name has one owner. A word that this start
        lives changes nothing but what people see, apart from taking back an earlier word that it is dead.
        """
        member = self._members.get(name)
        if member is None or now - member.heard_at < self.settings.silent_s:
            return []
        is_about_it = word.start == member.incarnation
        if not word.start or not (is_about_it or word.alive):
            return []
        was_dead, is_alive = self._gossip.get(name) is False, is_about_it and word.alive
        self._gossip[name] = is_alive
        if not is_alive:
            self._update(member, alive_at=member.heard_at, failures=self.settings.health.max_liveness_failures, now=now)
        elif was_dead:
            self._update(member, alive_at=member.heard_at, failures=0, now=now)
        if is_alive and word.health is not None:
            member.believe(word.health)
            self.health.workers.update_state(name, member.state, now=now)
        return self._judge(member, now)

    def _update(self, member: Member, *, alive_at: float, failures: int, now: float) -> None:
        member.state = replace(member.state, last_liveness_response=alive_at, consecutive_liveness_failures=failures)
        self.health.workers.update_state(member.name, member.state, now=now)

    # Decisions

    def asking(self, name: str, incarnation: str) -> Member:
        """Returns the worker that asks. Raises `UnknownWorkerError` for one, or an incarnation of it, that is not registered."""
        if not self.knows(name, incarnation or name):
            raise UnknownWorkerError(name)
        return self._members[name]

    def extend(self, request: HealthcheckExtensionRequest, incarnation: str, now: float) -> ExtensionAnswer:
        """Grants or denies more time. Raises `UnknownWorkerError`."""
        name = request.worker_id
        member = self.asking(name, incarnation)
        response = self.health.handle_extension_request(request, now=now, wall=now)
        evidence = {"progress": request.current_progress, **asked_with(request)}
        member.state = self.health.without_excuse(member.state)
        self.health.workers.update_state(name, member.state, now=now)
        if not response.granted or response.extension_seconds <= 0:
            reason = response.denial_reason or "it has as much time as two whole series could give"
            evidence |= {"asked_for": request.reason, "counter": request.progress_counter}
            return response, DenyExtension(by=_LEADER, worker=name, reason=reason, evidence=evidence)
        series = self.health.extensions(name)
        member.granted = series.extension_count
        return response, GrantExtension(
            by=_LEADER,
            worker=name,
            seconds=response.extension_seconds,
            count=series.extension_count,
            total=series.total_extended,
            bound=series.bound,
            progress=request.current_progress,
            counter=request.progress_counter,
            deadline=self.health.deadline(name),
            reason=request.reason,
            evidence=evidence,
        )

    def sweep(self, now: float) -> list[Command]:
        """Returns the commands that the passing of time calls for: evictions, changed verdicts, and evicted workers to forget."""
        commands: list[Command] = []
        found = self.health.sweep(now=now)
        for name, rule in found.evict:
            member = self._members[name]
            silent_s, health = round(now - member.heard_at, 3), str(member.state.class_at(now))
            evidence = {"rule": rule, "class": health, "silent_for": silent_s, "brake": found.brake.reason}
            evidence["gossip"] = self._by_gossip(name)
            why = words_of_eviction(rule, silent_s)
            commands.append(
                EvictWorker(by=_LEADER, worker=name, incarnation=member.incarnation, reason=why, evidence=evidence)
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
        """Has the worker judged anew at the next look, because the last verdict on it did not become durable."""
        member = self._members.get(name)
        if member is not None:
            member.judged = None

    def _judge(self, member: Member, now: float) -> list[Command]:
        # Most of the time nothing has changed, and wording a reason costs more than this comparison.
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
        """Returns the verdict to tell the worker, and its reason. Never EVICT: `tell` says that, once the eviction is durable (`gone`)."""
        found = self.health.workers.get_verdict(member.name, now=now)
        if found.held and member.verdict is not RoutingDecision.UNKNOWN:
            return member.verdict, found.reason
        if found.decision in (RoutingDecision.EVICT, RoutingDecision.UNKNOWN):
            return RoutingDecision.DRAIN, found.reason
        if found.decision is RoutingDecision.DRAIN and member.state.accepting_work:
            # The worker is full. It pulls its work, so it takes none while it is full, and should take some the moment a slot is free.
            slow = found.health_class is HealthClass.DEGRADED
            return RoutingDecision.INVESTIGATE if slow else RoutingDecision.ROUTE, found.reason
        return found.decision, found.reason

    def _forget(self, now: float) -> list[Command]:
        """Forgets incarnations that were evicted `forget_s` ago. Returns the commands for workers that never came back."""
        commands: list[Command] = []
        self._departed.forget(now - self.settings.forget_s)
        for name, starts in list(self._evicted.items()):
            for incarnation in [one for one, (at, _) in starts.items() if now - at >= self.settings.forget_s]:
                del starts[incarnation]
            if not starts:
                del self._evicted[name]
                if name not in self._members:
                    reason = f"it was evicted {self.settings.forget_s:g} s ago, and has not come back"
                    commands.append(ForgetWorker(by=_LEADER, worker=name, reason=reason))
        return commands

    # Decisions that became durable

    def told(self, command: JudgeWorker) -> str:
        """Applies a verdict that is now durable. Returns the incarnation that the leader has to tell; empty where it is not registered."""
        member = self._members.get(command.worker)
        if member is None or member.incarnation != command.incarnation:
            return ""
        member.verdict, member.reason = RoutingDecision(command.verdict), command.reason
        self._able.count(member)
        return member.incarnation

    def gone(self, command: EvictWorker, now: float) -> None:
        """Applies an eviction that is now durable: from now on `tell` tells this incarnation to stop."""
        self._evicted.setdefault(command.worker, {})[command.incarnation] = now, command.reason
        member = self._members.get(command.worker)
        if member is not None and member.incarnation == command.incarnation:
            self._drop(member)

    def _drop(self, member: Member) -> None:
        self._able.discount(member)
        self.health.remove(member.name)
        del self._members[member.name]
        self._gossip.pop(member.name, None)

    # Questions

    def tell(self, name: str, incarnation: str, now: float) -> Told:
        """Returns the leader's answer to a worker that reports under this name and incarnation."""
        if incarnation in self._evicted.get(name, ()):
            return Told(RoutingDecision.EVICT, self._evicted[name][incarnation][1])
        member = self._members.get(name)
        if member is None:
            return Told(RoutingDecision.DRAIN, "it said that it leaves")
        if member.incarnation != incarnation:
            heard = now - member.heard_at
            # Whoever knows an incarnation may speak for it, so the refusal does not tell it.
            rival = f"another worker named {name} was heard {heard:.1f} s ago"
            return Told(RoutingDecision.DRAIN, f"{rival}: give each its own name")
        verdict = RoutingDecision.ROUTE if member.verdict is RoutingDecision.UNKNOWN else member.verdict
        return Told(verdict, member.reason, self.earned_s(name, now), self._able.peers(member))

    def earned_s(self, name: str, now: float) -> float:
        """Returns the seconds until the deadline that a worker earned, which tell it when to ask for more; 0 where it is over."""
        return max(0.0, self.health.deadline(name) - now) if name in self._members else 0.0

    def left_s(self, name: str, now: float) -> float:
        """Returns the seconds until a worker is suspect, for people; 0 where they are over, or the worker is not known."""
        return max(0.0, self.health.suspect_at(name) - now) if name in self._members else 0.0

    def able(self, lane: str) -> frozenset[str]:
        """Returns the workers that take work from this mailbox. A worker that an operator drained is not among them, whatever its verdict."""
        return self._able.on(lane)

    def drain(self, names: Iterable[str]) -> None:
        """Sets the workers that operators have drained now."""
        before, self._able.drained = self._able.drained, frozenset(names)
        for name in before ^ self._able.drained:
            if (member := self._members.get(name)) is not None:
                self._able.count(member)

    def knows(self, name: str, incarnation: str) -> bool:
        member = self._members.get(name)
        return member is not None and member.incarnation == incarnation

    def may_register(self, report: WorkerReport) -> bool:
        """Returns False for a start that was evicted or has left, and for one that came while another start of this worker reports."""
        is_over = report.start in self._evicted.get(report.worker, ()) or self._departed.is_late(report)
        return not is_over and (report.worker not in self._members or self.knows(report.worker, report.start))

    def silent(self, now: float) -> list[str]:
        """Returns the workers without a report for `silent_s`: gossip may know more of them."""
        return [name for name, one in self._members.items() if now - one.heard_at >= self.settings.silent_s]

    def __len__(self) -> int:
        return len(self._members)

    def standings(self, now: float) -> list[WorkerStanding]:
        """Returns the state of every known worker, in the order in which they came."""
        return [self._standing(member, now) for member in self._members.values()]

    def _standing(self, member: Member, now: float) -> WorkerStanding:
        return member.standing(
            now,
            health_class=self.health.workers.get_verdict(member.name, now=now).health_class,
            left_s=self.left_s(member.name, now),
            extensions_left=self.health.extensions(member.name).remaining_extensions,
            by_gossip=self._by_gossip(member.name),
        )

    def _by_gossip(self, name: str) -> str:
        return {None: "", True: "alive", False: "dead"}[self._gossip.get(name)]


def asked_with(request: HealthcheckExtensionRequest) -> dict[str, Any]:
    """Returns the fields of a request that no rule reads."""
    completes, active = request.estimated_completion, request.active_workflow_count
    return {"estimated_completion": completes, "active_workflows": active}

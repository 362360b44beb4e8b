"""A gate: stands for election among its peers, leads or passes on, and answers what managers and clients ask.

It knows neither HTTP nor processes: it is given requests and gives replies, so that the simulator runs it as it is. Clients ask it what they
would ask a manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import (
    ConfigurationError,
    DeposedError,
    LimitError,
    NodeUnavailableError,
    TenureError,
    UnknownJobError,
)
from tenure.health.overload import OverloadConfig
from tenure.health.shedding import Asked
from tenure.ids import IdSource
from tenure.jobs import gate_commands as gc
from tenure.jobs.gate_commands import GateDecision
from tenure.jobs.gate_tracker import GateJobTracker, GateJobTrackingInfo
from tenure.jobs.model import Address, JobSubmission
from tenure.jobs.settings import GateSettings
from tenure.nodes.calling.awaiting import AsyncCaller
from tenure.nodes.calling.blocking import parse_address
from tenure.nodes.gate.candidacy import GateCandidacy
from tenure.nodes.gate.fitness import Fitness
from tenure.nodes.gate.flow import Forwarding
from tenure.nodes.gate.job_desk import GateJobDesk
from tenure.nodes.gate.lines import Lines
from tenure.nodes.gate.listing import gate_list
from tenure.nodes.gate.load import Load, memory_percent
from tenure.nodes.gate.probing import ProbeSettings
from tenure.nodes.gate.reading import Reading
from tenure.nodes.gate.watch import Watch
from tenure.nodes.manager.waiting import Waiting
from tenure.nodes.messages.client import (
    MAX_WAIT_S,
    AskLeader,
    AskWhy,
    Cancel,
    Done,
    GetJob,
    LeaderView,
    ListJobs,
    Problem,
    ProblemKind,
    Redirect,
    Submit,
    address_of,
    candidate_at,
)
from tenure.nodes.messages.gate import AskGate, Forward, GateHeard, GateView, TellGate
from tenure.nodes.messages.job import RetryJob, SubmitMany
from tenure.nodes.messages.operations import BY_NAME, decode_request
from tenure.nodes.messages.wire import Reply, Request
from tenure.randomness import Random
from tenure.web.problems import problem

FORWARD_S = 10.0
"""How long the leading gate may take for what is passed on to it, beyond what it was asked to wait."""
ASKED = {
    Submit: Asked.SUBMIT,
    SubmitMany: Asked.SUBMIT,
    RetryJob: Asked.SUBMIT,
    ListJobs: Asked.INFORM,
    AskWhy: Asked.INFORM,
}
MEASURED = (Submit, Cancel, TellGate)
"""Requests whose time says how the gate is; others wait for something."""


class Gate:
    """One gate. `run` until cancelled; `answer` from the first moment on."""

    candidacy_class: ClassVar[type[GateCandidacy]] = GateCandidacy

    def __init__(
        self,
        name: str,
        address: str,
        engine: Engine,
        calls: Calls,
        caller: AsyncCaller,
        *,
        datacenters: Mapping[str, Sequence[str]],
        peers: Sequence[str] = (),
        clock: Clock,
        random: Random,
        ids: IdSource,
        ttl_s: float = 10.0,
        settings: GateSettings | None = None,
        probes: ProbeSettings | None = None,
        overload: OverloadConfig | None = None,
        memory: Callable[[], float] = memory_percent,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        if not datacenters or not all(datacenters.values()):
            raise ConfigurationError(
                "a gate needs at least one datacenter, each with the address of a manager",
                remedy="Give --datacenter NAME=HOST:PORT[,HOST:PORT]",
            )
        probes = probes or ProbeSettings()
        self.name, self.address, self._caller, self._clock, self._say = name, address, caller, clock, say
        self.peers = [peer for peer in peers if peer != address]
        self.watch = Watch(caller, datacenters, settings=probes, clock=clock, random=random, say=say)
        self.load = Load(clock, config=overload, memory=memory, say=say)
        self._flow = Forwarding(clock)
        self.fitness = Fitness(
            name, caller, self.peers, self.watch, self.load, self._flow, settings=probes, clock=clock, random=random
        )
        self.lines = Lines(datacenters, caller, timeout_s=probes.timeout_s, spoke=self.watch.spoke, say=say)
        self.candidacy = self.candidacy_class(
            candidate_at(name, address),
            engine,
            calls,
            self.lines,
            settings=settings,
            fit=self.fitness.fit,
            link_suspect=self.watch.link_suspect,
            clock=clock,
            random=random,
            ids=ids,
            ttl_s=ttl_s,
            say=say,
        )
        self._reading = Reading(engine, calls, self.lines, self.watch)
        self._waiting = Waiting(self._has_ended, clock)
        self.candidacy.on_change = self._waiting.look
        self.watch.on_return = self._returned
        self.fitness.on_hand_over = self._hand_over
        self.handlers: dict[type[Request], Callable[[Any], Awaitable[Reply]]] = {
            Submit: self._submit,
            Cancel: self._cancel,
            GetJob: self._job,
            ListJobs: self._list,
            AskWhy: self._why,
            TellGate: self._told,
            **GateJobDesk(self).handlers,
        }
        """What only the leader can answer, or answers better; others pass it on."""
        self.everywhere: dict[type[Request], Callable[[Any], Awaitable[Reply]]] = {
            AskLeader: self._leader_view,
            AskGate: self._view,
            Forward: self._forwarded,
        }

    async def run(self) -> None:
        """Stand for election, lead, follow; probe and measure all the while. Cancelling resigns."""
        parts = [self.candidacy.run(), self.watch.run(), self.fitness.run(), self.load.run()]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            self._waiting.close()
            await self.lines.close()
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome

    @property
    def leads(self) -> bool:
        return self.candidacy.leader is not None

    @property
    def unready(self) -> dict[str, str]:
        """Why an orchestrator should send nobody here; empty when it may."""
        reasons: dict[str, str] = {}
        if not self.candidacy.engine_answers:
            reasons["engine"] = "its engine does not answer"
        if self.watch.link_suspect():
            reasons["link"] = self.watch.brake().reason
        return reasons

    # Answering

    async def answer(self, sender: str, request: Request) -> Reply:
        """The reply to any request. Raises nothing: what goes wrong is a `Problem`."""
        kind, begun = type(request), self._clock.monotonic()
        try:
            if kind in self.everywhere:
                return await self.everywhere[kind](request)
            handler = self.handlers.get(kind)
            if handler is None:
                fact = f"a gate does not answer {request.__struct_config__.tag!r}"
                return Problem(kind=ProblemKind.UNKNOWN, fact=fact, remedy="Ask a manager of a datacenter")
            priority = _priority(request)
            if why := self.load.why_not(ASKED.get(kind, Asked.VITAL), priority):
                return Problem(kind=ProblemKind.UNAVAILABLE, fact=why, remedy="Try again after a while", retryable=True)
            if not self.leads:
                return await self._pass_on(request)
            return await handler(request)
        except DeposedError:
            return self._elsewhere()
        except TenureError as error:
            return problem(error)
        except Exception as error:
            self._say(f"a {kind.__name__} from {sender} failed: {type(error).__name__}: {error}")
            return Problem(
                kind=ProblemKind.FAILED, fact=f"{type(error).__name__}: {error}", remedy="See the node's log"
            )
        finally:
            if kind in MEASURED:
                self.load.took(self._clock.monotonic() - begun)

    async def _pass_on(self, request: Request) -> Reply:
        """To the owner. A client that reached this gate need not reach that one."""
        leader = self._leader_address()
        if leader:
            wait_s = float(getattr(request, "wait_s", 0.0))
            passed = Forward(
                name=str(request.__struct_config__.tag), body=msgspec.Raw(msgspec.json.encode(request)), by=self.name
            )
            try:
                return await self._caller.ask(leader, passed, FORWARD_S + wait_s)
            except NodeUnavailableError:
                pass
        return self._elsewhere()

    async def _forwarded(self, request: Forward) -> Reply:
        """What a peer passed on. Never passed on again: whoever does not lead says so."""
        if request.name not in BY_NAME:
            return Problem(kind=ProblemKind.UNKNOWN, fact=f"there is no request {request.name!r}")
        try:
            inner = decode_request(request.name, bytes(request.body))
        except msgspec.DecodeError as error:
            return Problem(kind=ProblemKind.INVALID, fact=f"the body of {request.name!r} cannot be read: {error}")
        if not self.leads or type(inner) not in self.handlers:
            return self._nobody()
        return await self.answer(request.by, inner)

    def _leader_address(self) -> str:
        leader = address_of(self.candidacy.ledger.book.state.gate)
        return "" if leader == self.address else leader

    def _elsewhere(self) -> Reply:
        leader = self._leader_address()
        if not leader or self.leads:
            return self._nobody()
        return Redirect(address=leader, epoch=self.candidacy.ledger.book.epoch)

    def _nobody(self) -> Problem:
        return Problem(
            kind=ProblemKind.UNAVAILABLE,
            fact="no gate leads now, as far as this one knows",
            remedy="Ask again: the next leader is elected within a term",
            retryable=True,
        )

    # Writes

    async def _submit(self, request: Submit) -> Reply:
        decision = await self.place(request.submission)
        return Done(
            job_id=decision.job_id, outcome=decision.outcome, reason=decision.reason, epoch=self.candidacy.epoch
        )

    async def place(self, submission: JobSubmission) -> GateDecision:
        """Decide where it runs, and make it durable."""
        submission = self._addressed(submission)
        targets = self._targets(submission)
        command = gc.GateSubmit(by=submission.submitted_by, submission=submission, target_datacenters=targets)
        decision = await self.candidacy.submit(command)
        if decision.events:
            self._flow.accepted(targets)
        return decision

    def _addressed(self, submission: JobSubmission) -> JobSubmission:
        """With where its managers report: here first, then to our peers."""
        others = tuple(_pair(peer) for peer in self.peers)
        return msgspec.structs.replace(
            submission, gate_addr=_pair(self.address), gate_addrs=others, gate_epoch=0, global_submitted_at=0.0
        )

    def _targets(self, submission: JobSubmission) -> tuple[str, ...]:
        """Where it runs: as it says, or in the best. One that is known already stays where it is."""
        tracker = self.candidacy.ledger.book
        if info := tracker.jobs.get(submission.job_id):
            return tuple(info.target_datacenters)
        unknown = [name for name in submission.target_datacenters if name not in self.watch.datacenters]
        if unknown:
            raise ConfigurationError(
                f"job {submission.job_id!r} names datacenter {unknown[0]!r}, which this gate does not know",
                remedy=f"There are: {', '.join(self.watch.datacenters)}",
            )
        if submission.target_datacenters:
            return submission.target_datacenters
        choice = self.watch.choose(submission.datacenters)
        if len(choice.chosen) < submission.datacenters:
            said = "; ".join(f"{name}: {reason}" for name, reason in choice.reasons.items())
            raise NodeUnavailableError(
                f"job {submission.job_id!r} needs {submission.datacenters} datacenters, and {len(choice.chosen)} can take it ({said})",
                remedy="Ask again, or name target_datacenters: a named one gets the job when it is back",
            )
        return choice.chosen

    async def _cancel(self, request: Cancel) -> Reply:
        decision = await self.candidacy.submit(
            gc.GateCancel(by=request.by, job_id=request.job_id, reason=request.reason)
        )
        return Done(
            job_id=decision.job_id, outcome=decision.outcome, reason=decision.reason, epoch=self.candidacy.epoch
        )

    async def _told(self, request: TellGate) -> Reply:
        leader = self.candidacy.leader
        if leader is None:
            return self._elsewhere()
        self.watch.spoke(request.datacenter)
        self._flow.aggregated(len(request.words))
        return GateHeard(acks=tuple(await leader.hear(request.words)))

    # Reads

    async def _job(self, request: GetJob) -> Reply:
        if not 0 <= request.wait_s <= MAX_WAIT_S:
            raise LimitError("wait_s", request.wait_s, f"between 0 and {MAX_WAIT_S:g} s")
        if request.wait_s:
            await self._waiting.until_ended(request.job_id, request.wait_s)

        info = await self.known(request.job_id)
        return await self._reading.job(info, self.candidacy.ledger.book.deadline(info), self.candidacy.time.now())

    async def _list(self, request: ListJobs) -> Reply:
        now, leader = self.candidacy.time.now(), self.candidacy.leader
        tally = leader.tally if leader is not None else None
        return await self.candidacy.ledger.read(lambda tracker: gate_list(tracker, now, request, tally))

    async def known(self, job_id: str) -> GateJobTrackingInfo:
        """A job as it stands, also one that was archived. Raises `UnknownJobError`."""

        def look(tracker: GateJobTracker) -> GateJobTrackingInfo | None:
            info = tracker.jobs.get(job_id)
            return None if info is None else _copy(info)

        info = await self.candidacy.ledger.read(look) or await self._reading.archived(job_id)
        if info is None:
            raise UnknownJobError(job_id)
        return info

    async def _why(self, request: AskWhy) -> Reply:
        info = await self.known(request.job_id)
        tracker = GateJobTracker()
        tracker.state.jobs[request.job_id] = info
        return await self._reading.why(tracker, request.job_id)

    async def _leader_view(self, request: AskLeader) -> Reply:
        ledger = self.candidacy.ledger
        leader = self.candidacy.name if self.leads else ledger.book.state.gate
        epoch = self.candidacy.epoch if self.leads else ledger.book.epoch
        return LeaderView(leader=leader, address=address_of(leader), epoch=epoch, leads=self.leads, seq=ledger.seq)

    async def _view(self, request: AskGate) -> Reply:
        state, now = self.fitness.own_state(), self._clock.monotonic()
        book = self.candidacy.ledger.book
        return GateView(
            gate_id=self.name,
            leads=self.leads,
            epoch=self.candidacy.epoch if self.leads else book.epoch,
            leader=self.address if self.leads else address_of(book.state.gate),
            connected_dc_count=state.connected_dc_count,
            overload_state=self.load.state,
            overload_reason=self.load.assessment.reason,
            jobs_forwarded_last_interval=state.jobs_forwarded_last_interval,
            stats_aggregated_last_interval=state.stats_aggregated_last_interval,
            expected_forward_rate=state.expected_forward_rate,
            jobs_waiting=state.jobs_waiting,
            fit_to_lead=state.should_participate_in_election_at(now),
            datacenters=self.watch.views(),
            link_suspect=self.watch.link_suspect(),
            jobs_tracked=len(book.jobs),
        )

    # What happens around it

    def _has_ended(self, job_id: str) -> bool:
        tracker = self.candidacy.ledger.book
        info = tracker.jobs.get(job_id)
        return info.state.terminal if info is not None else job_id in tracker.state.archive

    def _returned(self, datacenter: str) -> None:
        if self.candidacy.leader is not None:
            self.candidacy.leader.returned(datacenter)

    def _hand_over(self, reason: str) -> None:
        if self.candidacy.leader is not None:
            self._say(f"hands over: {reason}")
            self.candidacy.leader.step_down(reason)


def _priority(request: Request) -> int:
    """The highest of what it asks for: of many jobs, none is turned away for the company that it is in."""
    if isinstance(request, Submit):
        return request.submission.priority
    return max((one.priority for one in request.submissions), default=0) if isinstance(request, SubmitMany) else 0


def _pair(address: str) -> Address:
    """Host and port. A scheme stays with the host: whoever reports puts the two together again."""
    parse_address(address)
    host, _, port = address.rpartition(":")
    return host, int(port)


def _copy(info: GateJobTrackingInfo) -> GateJobTrackingInfo:
    """As it stands now: the fold changes it in place."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(info), type=GateJobTrackingInfo)

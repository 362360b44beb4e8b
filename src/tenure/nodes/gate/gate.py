"""A gate: it stands for election among its peers, leads or passes requests on to the leader, and answers managers and clients.

It knows neither HTTP nor processes: it takes requests and returns replies, as the simulator needs it. Clients send it what they would send to a manager.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tenure.bound_checks import check, shown
from tenure.control.async_caller import AsyncCaller
from tenure.control.claims import passed_on
from tenure.control.event_feed import EventFeed
from tenure.control.messages.events import GetEvents
from tenure.control.messages.gates import AskGate, DatacenterSaid, DatacenterWord, Forward, GateHeard, TellGate
from tenure.control.messages.jobs import AskWhy, Cancel, ListJobs, RetryJob, Submit, SubmitMany
from tenure.control.messages.nodes import NodeList
from tenure.control.messages.operations import BY_NAME, AtGate
from tenure.control.messages.wire import AskLeader, Handlers, Placed, Problem, ProblemKind, Reply, Request, candidate_at
from tenure.control.problems import problem
from tenure.control.request_decoding import read_body
from tenure.control.streams import StreamItem
from tenure.errors import ConfigurationError, DeposedError, NodeUnavailableError, OutOfBoundsError, TenureError
from tenure.health.overload import OverloadConfig, RequestKind
from tenure.health.signals import RoutingDecision
from tenure.jobs.settings import GateSettings
from tenure.nodes.gate.datacenter_health import DatacenterWatch
from tenure.nodes.gate.datacenter_links import GATHERED, DatacenterLinks, DatacenterQueries
from tenure.nodes.gate.fitness import (
    Forwarding,
    GateFitness,
    GateLoad,
    gate_nodes,
    gate_view,
    memory_percent,
    priority_of,
)
from tenure.nodes.gate.job_handlers import GateJobHandlers, Placement
from tenure.nodes.gate.leader import JOURNAL, TELLING, GateLeader, GateLeadership, GateMandate, GateRules
from tenure.nodes.gate.probes import ProbeSettings, ProbeTools
from tenure.nodes.gate.token_spread import TokenSpread
from tenure.nodes.leadership import Leadership
from tenure.nodes.loop_keeper import FailedOn, LoopKeeper, ProductFailures
from tenure.nodes.process import Environment

if TYPE_CHECKING:
    from tenure.nodes.gate.serving import GateMetrics
    from tenure.nodes.token_keeper import TokenKeeper

FORWARD_S = 10.0
"""The seconds that the leading gate may take for a request that is passed on to it, beyond the wait that the request asks for."""
ASKED: dict[type[Request], RequestKind] = {
    Submit: RequestKind.SUBMIT,
    SubmitMany: RequestKind.SUBMIT,
    RetryJob: RequestKind.SUBMIT,
    ListJobs: RequestKind.INFORM,
    AskWhy: RequestKind.INFORM,
    GetEvents: RequestKind.INFORM,
    **dict.fromkeys(GATHERED, RequestKind.INFORM),
}
MEASURED = (Submit, Cancel, TellGate)
"""Requests whose duration shows how loaded the gate is. Others may wait for a job or a datacenter, so their duration shows nothing."""


@dataclass(frozen=True, slots=True)
class GateSetup:
    """The settings of one gate; `serving.GateNodeSettings` has those of its whole process."""

    datacenters: Mapping[str, Sequence[str]]
    """The addresses of each datacenter's managers, by its name."""
    peers: Sequence[str] = ()
    """The addresses of the other gates on the same engine."""
    term_s: float = 10.0
    gate: GateSettings | None = None
    probes: ProbeSettings = field(default_factory=ProbeSettings)
    overload: OverloadConfig | None = None
    memory: Callable[[], float] = memory_percent
    """Returns the share of the machine's memory that is in use."""

    def __post_init__(self) -> None:
        if not self.datacenters or not all(self.datacenters.values()):
            raise ConfigurationError(
                "a gate needs at least one datacenter, each with the address of a manager",
                remedy="Give --datacenter NAME=HOST:PORT[,HOST:PORT]",
            )


class Gate:
    """One gate. `run` it until it is cancelled; `answer` works from the first moment on."""

    def __init__(
        self,
        name: str,
        address: str,
        environment: Environment,
        setup: GateSetup,
        caller: AsyncCaller,
        *,
        metrics: GateMetrics | None = None,
        tokens: TokenKeeper | None = None,
    ) -> None:
        clock, log = self._clock, self._log = environment.clock, environment.log
        self.name, self.address, self._caller, self._metrics = name, address, caller, metrics
        self.peers = [peer for peer in setup.peers if peer != address]
        self.failures = ProductFailures(clock, log, metrics.failed_on if metrics is not None else lambda what: None)
        self.keeper = LoopKeeper(clock, environment.random, self.failures)
        tools = ProbeTools(caller, setup.probes, clock, environment.random, self.keeper, log)
        self.watch = DatacenterWatch(tools, setup.datacenters, on_return=self._returned)
        shed = metrics.turned_away if metrics is not None else lambda asked, priority: None
        self.load = GateLoad(clock, config=setup.overload, memory=setup.memory, on_shed=shed, log=log)
        self._flow = Forwarding(clock)
        self.fitness = GateFitness(name, tools, self.peers, self.watch, self.load, self._flow, self._hand_over)
        self._jobs = GateJobHandlers(self, environment.engine, environment.calls, clock)
        self.links = self._make_links(tools, setup)
        self.leadership = self._make_leadership(environment, setup)
        self.placement = Placement(address, self.peers, self.leadership, self.watch, self._flow)
        self.queries = DatacenterQueries(name, self.links, self.watch.why_silent, self.failures)
        self.events = EventFeed(
            environment.engine.journal(JOURNAL),
            environment.calls,
            clock=clock,
            state=self._jobs.state_for,
            submission_of=self._jobs.submission_of,
            keep=self.keeper.keep,
        )
        self.handlers: Handlers = {TellGate: self._told, **self._jobs.handlers}
        """Maps the requests that only the leader answers to their handlers; other gates pass such requests on to it."""
        self.tokens = TokenSpread(tokens, self.links, self.queries, tools.clock)
        self.everywhere = self._own_handlers()

    def _own_handlers(self) -> Handlers:
        """Returns the handlers of the requests that every gate answers by itself."""
        return {
            **self.tokens.handlers,
            AskLeader: self.leadership.who_leads,
            AskGate: self._view,
            Forward: self._forwarded,
            GetEvents: self.events.page,
        }

    def _make_links(self, tools: ProbeTools, setup: GateSetup) -> DatacenterLinks:
        return DatacenterLinks(
            tools,
            setup.datacenters,
            said=self._heard_back,
            failed=self._cannot_say,
            order=self.watch.ask_order,
            whole=self._jobs.whole_submission,
        )

    def _make_leadership(self, environment: Environment, setup: GateSetup) -> GateLeadership:
        return Leadership(
            candidate_at(self.name, self.address),
            environment,
            GateRules(setup.gate),
            self._new_leader,
            keeper=self.keeper,
            term_s=setup.term_s,
            fit=self.fitness.fit,
            on_change=self._jobs.look,
        )

    def _new_leader(self, mandate: GateMandate) -> GateLeader:
        if self._metrics is None:
            return GateLeader(mandate, self.links, self._flow, link_suspect=self.watch.link_suspect)
        self._metrics.elections.inc()
        return GateLeader(
            mandate, self.links, self._flow, link_suspect=self.watch.link_suspect, heed=self._metrics.count
        )

    async def run(self) -> None:
        """Stands for election, leads and follows, and probes and measures all the while. Cancelling resigns."""
        loops = {"node": self.leadership.run, "datacenters": self.watch.run, "gates": self.fitness.run}
        try:
            await self.keeper.keep_all({**loops, "load": self.load.run, **self.tokens.loops})
        finally:
            self._jobs.close()
            self.events.close()
            await self.links.close()

    @property
    def leads(self) -> bool:
        return self.leadership.leader is not None

    @property
    def unready(self) -> dict[str, str]:
        """The reasons why an orchestrator should send no caller here; empty when it may."""
        reasons: dict[str, str] = {}
        if not self.leadership.engine_answers:
            reasons["engine"] = "its engine does not answer"
        if self.leadership.ledger.damage is not None:
            reasons["journal"] = str(self.leadership.ledger.damage)
        if self.watch.link_suspect():
            reasons["link"] = self.watch.brake().reason
        return reasons

    # Answering

    async def answer(self, sender: str, request: Request) -> Reply:
        """Returns the reply to any request that `request_decoding` let in. It raises nothing: an error becomes a `Problem`."""
        kind, begun = type(request), self._clock.monotonic()
        try:
            return self._turned_away(request) or await self._answered(request)
        except TenureError as error:
            return problem(error)
        except Exception as error:
            name = kind.__name__
            return problem(self.failures.note(FailedOn.REQUEST, name, f"answering a {name} from {sender}", error))
        finally:
            self._measure(kind, self._clock.monotonic() - begun)

    async def _answered(self, request: Request) -> Reply:
        kind = type(request)
        try:
            if isinstance(request, Placed) and (request.datacenter or _at_gate(request) is not AtGate.OWN):
                reply = await self.queries.answer(request)
                return reply if request.datacenter else self._with_gates(reply)
            if kind in self.everywhere:
                return await self.everywhere[kind](request)
            handler = self.handlers.get(kind)
            if handler is None:
                return _misdirected(request)
            if not self.leads:
                return await self._pass_on(request)
            return await handler(request)
        except DeposedError:
            return self.leadership.elsewhere()

    def _measure(self, kind: type[Request], seconds: float) -> None:
        try:
            if kind in MEASURED:
                self.load.took(seconds)
        except Exception as error:
            self.failures.note(FailedOn.REQUEST, kind.__name__, "measuring how long an answer took", error)

    async def stream(self, request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
        """Yields the events of this gate cluster, or of the datacenter that the request names. Any gate can, leading or not."""
        if shed := self.load.why_not(ASKED[GetEvents]):
            raise NodeUnavailableError(shed.fact, remedy=shed.remedy, retry_after_s=shed.retry_after_s)
        source = self.queries.stream(request) if request.datacenter else self.events.stream(request)
        async with aclosing(source) as stream:
            async for batch in stream:
                yield batch

    def _turned_away(self, request: Request) -> Problem | None:
        """Returns the refusal for a request that an overloaded gate sheds; None where it may pass.

        Each gate that a request comes to judges its own load: the one that passes the request on, and the one that handles it.
        """
        shed = self.load.why_not(ASKED.get(type(request), RequestKind.VITAL), priority_of(request))
        if shed is None:
            return None
        return Problem(
            kind=ProblemKind.UNAVAILABLE,
            fact=shed.fact,
            remedy=shed.remedy,
            retryable=True,
            retry_after_s=shed.retry_after_s,
        )

    def _with_gates(self, reply: Reply) -> Reply:
        """Adds the gates to a list of nodes that was gathered from the datacenters."""
        gathered = isinstance(reply, NodeList)
        return msgspec.structs.replace(reply, gates=gate_nodes(self, self._clock.monotonic())) if gathered else reply

    async def _pass_on(self, request: Request) -> Reply:
        """Passes a request on to the leading gate: a client that reaches this gate need not be able to reach that one."""
        leader = self.leadership.other_leader
        verdict = self.fitness.verdict(leader)
        if leader and verdict.decision is RoutingDecision.EVICT and ASKED.get(type(request)) is RequestKind.SUBMIT:
            # A leader that passes nothing on, or does not answer, would only keep the job waiting. It hands over, or loses its term.
            return Problem(
                kind=ProblemKind.UNAVAILABLE,
                fact=f"the leading gate {leader} gets no new jobs: {verdict.reason}",
                remedy="Ask again: another gate leads within a term",
                retryable=True,
            )
        if leader:
            passed = passed_on(request, self.name)
            try:
                return await self._caller.ask(leader, passed, FORWARD_S + passed.wait_s)
            except NodeUnavailableError:
                pass
        return self.leadership.elsewhere()

    async def _forwarded(self, request: Forward) -> Reply:
        """Answers a request that a peer passed on. A gate that does not lead refuses it, so that no request circles between gates."""
        if request.name not in BY_NAME:
            return Problem(kind=ProblemKind.UNKNOWN, fact=f"there is no request {request.name!r}")
        inner = read_body(BY_NAME[request.name], bytes(request.body))
        if not self.leads or type(inner) not in self.handlers:
            return self.leadership.nobody()
        return await self.answer(request.by, inner)

    # Writes

    async def _told(self, request: TellGate) -> Reply:
        leader = self.leadership.leader
        if leader is None:
            return self.leadership.elsewhere()
        self.watch.spoke(request.datacenter)
        if self._metrics is not None:
            self._metrics.heard(request.datacenter, request.words)
        words = [word for word in request.words if self._within_bounds(word)]
        self._flow.aggregated(len(words))
        return GateHeard(acks=tuple(await leader.hear(words)))

    def _within_bounds(self, word: DatacenterWord) -> bool:
        """Returns False for a report that is out of bounds. It alone goes unanswered, so its manager sends it again; the rest of the batch counts."""
        try:
            check(word)
        except OutOfBoundsError as error:
            self._log.warning(f"a report of datacenter {shown(word.datacenter)} is refused: {error}")
            return False
        return True

    # Views of this gate

    async def _view(self, request: AskGate) -> Reply:
        return gate_view(self, self._clock.monotonic())

    # Callbacks of its parts

    async def _heard_back(self, said: DatacenterSaid) -> None:
        self.watch.spoke(said.datacenter)
        if self.leadership.leader is not None:
            await self.leadership.leader.heard_back(said)

    async def _cannot_say(self, job_id: str, error: Exception) -> None:
        if self.leadership.leader is None:
            self.failures.note(FailedOn.JOB, job_id, TELLING, error)
        else:
            await self.leadership.leader.cannot_say(job_id, error)

    def _returned(self, datacenter: str) -> None:
        if self.leadership.leader is not None:
            self.leadership.leader.returned(datacenter)

    def _hand_over(self, reason: str) -> None:
        if self.leadership.leader is not None:
            self._log.warning(f"hands over: {reason}")
            self.leadership.leader.step_down(reason)


def _at_gate(request: Request) -> AtGate:
    return BY_NAME[str(request.__struct_config__.tag)].at_gate


def _misdirected(request: Request) -> Problem:
    """Refuses a request that only managers answer, and tells a worker, or a gate with a wrong address, which node to ask."""
    return Problem(
        kind=ProblemKind.IMPOSSIBLE,
        fact=f"this is a gate, and {request.__struct_config__.tag!r} is for the managers of a datacenter",
        remedy="Give the addresses of managers: to a worker as --managers, to a gate as --datacenter NAME=HOST:PORT",
    )

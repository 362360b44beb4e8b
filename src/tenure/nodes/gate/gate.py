"""A gate: it stands for election among its peers, leads or passes requests on to the leader, and answers managers and clients.

It knows neither HTTP nor processes: it takes requests and returns replies, so that the simulator runs it as it is. Clients send it the
requests that they would send to a manager.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from tenure.bound_checks import check, shown
from tenure.clock import Clock
from tenure.control.async_caller import AsyncCaller
from tenure.control.event_feed import EventFeed, StreamItem
from tenure.control.messages.events import GetEvents
from tenure.control.messages.gates import AskGate, DatacenterWord, Forward, GateHeard, TellGate
from tenure.control.messages.job_details import RetryJob, SubmitMany
from tenure.control.messages.jobs import (
    AskLeader,
    AskWhy,
    Cancel,
    ListJobs,
    Problem,
    ProblemKind,
    Redirect,
    Submit,
    address_of,
    candidate_at,
)
from tenure.control.messages.nodes import NodeList
from tenure.control.messages.operations import BY_NAME, AtGate
from tenure.control.messages.wire import Placed, Reply, Request
from tenure.control.problems import problem
from tenure.control.request_decoding import read_body
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import ConfigurationError, DeposedError, NodeUnavailableError, OutOfBoundsError, TenureError
from tenure.health.overload import OverloadConfig
from tenure.health.shedding import Asked
from tenure.ids import IdSource
from tenure.jobs.settings import GateSettings
from tenure.nodes.gate.candidacy import JOURNAL, GateCandidacy
from tenure.nodes.gate.datacenter_queries import GATHERED, DatacenterQueries
from tenure.nodes.gate.fitness import Fitness
from tenure.nodes.gate.flow import Forwarding
from tenure.nodes.gate.job_handlers import GateJobHandlers
from tenure.nodes.gate.lines import Lines
from tenure.nodes.gate.load import Load, memory_percent
from tenure.nodes.gate.placing import Placing
from tenure.nodes.gate.probing import ProbeSettings
from tenure.nodes.gate.views import gate_nodes, gate_view, leader_view
from tenure.nodes.gate.watch import Watch
from tenure.nodes.loop_keeper import FailedOn, LoopKeeper, ProductFailures
from tenure.randomness import Random

if TYPE_CHECKING:
    from tenure.nodes.gate.metrics import GateMetrics

FORWARD_S = 10.0
"""The seconds that the leading gate may take for a request that is passed on to it, beyond the wait that the request asks for."""
ASKED: dict[type[Request], Asked] = {
    Submit: Asked.SUBMIT,
    SubmitMany: Asked.SUBMIT,
    RetryJob: Asked.SUBMIT,
    ListJobs: Asked.INFORM,
    AskWhy: Asked.INFORM,
    GetEvents: Asked.INFORM,
    **dict.fromkeys(GATHERED, Asked.INFORM),
}
MEASURED = (Submit, Cancel, TellGate)
"""Requests whose duration shows how loaded the gate is. Others may wait for a job or a datacenter, so their duration shows nothing."""


class Gate:
    """One gate. `run` it until it is cancelled; `answer` works from the first moment on."""

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
        metrics: GateMetrics | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        if not datacenters or not all(datacenters.values()):
            raise ConfigurationError(
                "a gate needs at least one datacenter, each with the address of a manager",
                remedy="Give --datacenter NAME=HOST:PORT[,HOST:PORT]",
            )
        probes = probes or ProbeSettings()
        self.name, self.address, self._caller, self._clock, self._say = name, address, caller, clock, say
        self._metrics = metrics
        self.peers = [peer for peer in peers if peer != address]
        self.keeper = LoopKeeper(clock, random, ProductFailures(clock, say), say=say)
        self.failures = self.keeper.failures
        given: dict[str, Any] = {"clock": clock, "random": random, "say": say, "keeper": self.keeper}
        self.watch = Watch(caller, datacenters, settings=probes, **given)
        self.load = Load(clock, config=overload, memory=memory, say=say)
        self._flow = Forwarding(clock)
        self.fitness = Fitness(name, caller, self.peers, self.watch, self.load, self._flow, settings=probes, **given)
        self.lines = Lines(
            datacenters, caller, timeout_s=probes.timeout_s, spoke=self.watch.spoke, say=say, keeper=self.keeper
        )
        self.candidacy = self.candidacy_class(
            candidate_at(name, address),
            engine,
            calls,
            self.lines,
            settings=settings,
            fit=self.fitness.fit,
            link_suspect=self.watch.link_suspect,
            flow=self._flow,
            heed=metrics.count if metrics is not None else lambda events: None,
            elected=metrics.elections.inc if metrics is not None else lambda: None,
            ids=ids,
            ttl_s=ttl_s,
            **given,
        )
        self.placing = Placing(address, self.peers, self.candidacy, self.watch, self._flow)
        self.queries = DatacenterQueries(name, self.lines, self.watch.why_silent, self.failures)
        self._jobs = GateJobHandlers(self, engine, calls, clock)
        self.events = EventFeed(
            engine.journal(JOURNAL),
            calls,
            clock=clock,
            state=self._jobs.state_for,
            queue_of=self._jobs.queue_of,
            keep=self.keeper.keep,
        )
        self._connect()
        self.handlers: dict[type[Request], Callable[[Any], Awaitable[Reply]]] = {
            TellGate: self._told,
            **self._jobs.handlers,
        }
        """Maps the requests that only the leader answers to their handlers; other gates pass such requests on to it."""
        self.everywhere: dict[type[Request], Callable[[Any], Awaitable[Reply]]] = {
            AskLeader: self._leader_view,
            AskGate: self._view,
            Forward: self._forwarded,
            GetEvents: self.events.page,
        }

    def _connect(self) -> None:
        """Connects the callbacks between the parts of this gate."""
        self.candidacy.on_change = self._jobs.look
        self.watch.on_return = self._returned
        self.fitness.on_hand_over = self._hand_over
        if self._metrics is not None:
            self.load.on_shed = self._metrics.turned_away
            self.failures.count = self._metrics.failed_on

    async def run(self) -> None:
        """Stands for election, leads and follows, and probes and measures all the while. Cancelling resigns."""
        try:
            await self.keeper.keep_all(
                {
                    "node": self.candidacy.run,
                    "datacenters": self.watch.run,
                    "gates": self.fitness.run,
                    "load": self.load.run,
                }
            )
        finally:
            self._jobs.close()
            self.events.close()
            await self.lines.close()

    @property
    def leads(self) -> bool:
        return self.candidacy.leader is not None

    @property
    def unready(self) -> dict[str, str]:
        """The reasons why an orchestrator should send no caller here; empty when it may."""
        reasons: dict[str, str] = {}
        if not self.candidacy.engine_answers:
            reasons["engine"] = "its engine does not answer"
        if self.candidacy.ledger.damage is not None:
            reasons["journal"] = str(self.candidacy.ledger.damage)
        if self.watch.link_suspect():
            reasons["link"] = self.watch.brake().reason
        return reasons

    # Answering

    async def answer(self, sender: str, request: Request) -> Reply:
        """Returns the reply to any request. It raises nothing: an error becomes a `Problem`."""
        kind, begun = type(request), self._clock.monotonic()
        try:
            check(request)
            if why := self._turned_away(request):
                return why
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
            return self._elsewhere()
        except TenureError as error:
            return problem(error)
        except Exception as error:
            name = kind.__name__
            return problem(self.failures.note(FailedOn.REQUEST, name, f"answering a {name} from {sender}", error))
        finally:
            self._measure(kind, self._clock.monotonic() - begun)

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
        shed = self.load.why_not(ASKED.get(type(request), Asked.VITAL), _priority(request))
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
        if not isinstance(reply, NodeList):
            return reply
        return msgspec.structs.replace(reply, gates=gate_nodes(self, self._clock.monotonic()))

    async def _pass_on(self, request: Request) -> Reply:
        """Passes a request on to the leading gate: a client that reaches this gate need not be able to reach that one."""
        leader = self._leader_address()
        if leader:
            wait_s = max(0.0, getattr(request, "wait_s", 0.0))
            body = msgspec.Raw(msgspec.json.encode(request))
            passed = Forward(name=str(request.__struct_config__.tag), body=body, by=self.name, wait_s=wait_s)
            try:
                return await self._caller.ask(leader, passed, FORWARD_S + wait_s)
            except NodeUnavailableError:
                pass
        return self._elsewhere()

    async def _forwarded(self, request: Forward) -> Reply:
        """Answers a request that a peer passed on. A gate that does not lead refuses it, so that no request circles between gates."""
        if request.name not in BY_NAME:
            return Problem(kind=ProblemKind.UNKNOWN, fact=f"there is no request {request.name!r}")
        inner = read_body(BY_NAME[request.name], bytes(request.body))
        if not self.leads or type(inner) not in self.handlers:
            return self._nobody()
        return await self.answer(request.by, inner)

    def _leader_address(self) -> str:
        leader = address_of(self.candidacy.ledger.book.state.gate)
        return "" if leader == self.address else leader

    def _elsewhere(self) -> Reply:
        leader = self._leader_address()
        damaged = self.candidacy.ledger.damage is not None and not self.candidacy.term_is_current
        if not leader or self.leads or damaged:
            return self._nobody()
        return Redirect(address=leader, epoch=self.candidacy.ledger.book.epoch)

    def _nobody(self) -> Problem:
        if self.candidacy.ledger.damage is not None:
            return problem(self.candidacy.ledger.damage)
        return Problem(
            kind=ProblemKind.UNAVAILABLE,
            fact="no gate leads now, as far as this one knows",
            remedy="Ask again: the next leader is elected within a term",
            retryable=True,
        )

    # Writes

    async def _told(self, request: TellGate) -> Reply:
        leader = self.candidacy.leader
        if leader is None:
            return self._elsewhere()
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
            self._say(f"a report of datacenter {shown(word.datacenter)} is refused: {error}")
            return False
        return True

    # Views of this gate

    async def _leader_view(self, request: AskLeader) -> Reply:
        return leader_view(self)

    async def _view(self, request: AskGate) -> Reply:
        return gate_view(self, self._clock.monotonic())

    # Callbacks of its parts

    def _returned(self, datacenter: str) -> None:
        if self.candidacy.leader is not None:
            self.candidacy.leader.returned(datacenter)

    def _hand_over(self, reason: str) -> None:
        if self.candidacy.leader is not None:
            self._say(f"hands over: {reason}")
            self.candidacy.leader.step_down(reason)


def _priority(request: Request) -> int:
    """Returns the highest priority of the jobs in a request, so that no job is turned away because of the others beside it."""
    if isinstance(request, Submit):
        return request.submission.priority
    return max((one.priority for one in request.submissions), default=0) if isinstance(request, SubmitMany) else 0


def _at_gate(request: Request) -> AtGate:
    return BY_NAME[str(request.__struct_config__.tag)].at_gate


def _misdirected(request: Request) -> Problem:
    """Refuses a request that only managers answer, and tells a worker, or a gate with a wrong address, which node to ask."""
    return Problem(
        kind=ProblemKind.IMPOSSIBLE,
        fact=f"this is a gate, and {request.__struct_config__.tag!r} is for the managers of a datacenter",
        remedy="Give the addresses of managers: to a worker as --managers, to a gate as --datacenter NAME=HOST:PORT",
    )

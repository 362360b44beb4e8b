"""The links of a gate to its datacenters: they carry the messages that it owes them, and the questions that callers ask about them.

A message that a datacenter did not answer is still owed, and the leader puts it here again (`jobs.gate_outbox`).

A list is gathered from every datacenter, and each line says where it is from. A datacenter that does not answer in time is named as missing in the
reply, beside the lines of the others. A request that changes something goes to one datacenter, which the caller has to name where there are several.
Any gate does this, leading or not. `signal_decision` judges what the datacenters of a job answered to a signal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from tenure.control.async_caller import Route
from tenure.control.claims import passed_on
from tenure.control.messages.events import EventPage, GetEvents
from tenure.control.messages.gates import MOST_BYTES, MOST_WORDS, DatacenterSaid, GateWord, TellDatacenter
from tenure.control.messages.jobs import Done
from tenure.control.messages.nodes import ListNodes, NodeList, WorkerNode
from tenure.control.messages.queues import (
    DeadLetterList,
    ListDeadLetters,
    ListQueues,
    ListSchedules,
    QueueList,
    ScheduleList,
)
from tenure.control.messages.wire import Missing, Placed, Problem, ProblemKind, Reply, Request, shifted
from tenure.control.messages.workflows import ListThresholds, ListWorkflows, ThresholdList, WorkflowList
from tenure.control.streams import StreamItem
from tenure.errors import ArgumentsError, ConfigurationError, NodeUnavailableError
from tenure.jobs.arguments import stored_bytes
from tenure.jobs.decisions import GateDecision, Outcome, Rule
from tenure.jobs.gate_outbox import GateMessage, Owed
from tenure.jobs.model import GateJobTrackingInfo, JobSubmission
from tenure.nodes.gate.probes import ProbeTools
from tenure.nodes.loop_keeper import FailedOn, ProductFailures
from tenure.nodes.outbox_lane import LaneLimits, OutboxLane

_encode = msgspec.json.Encoder().encode


def _size_of(message: GateMessage) -> int:
    return len(_encode(message)) + stored_bytes(message.workflows) if isinstance(message, JobSubmission) else 200


async def as_it_is(submission: JobSubmission) -> JobSubmission:
    return submission


WholeSubmission = Callable[[JobSubmission], Awaitable[JobSubmission]]
AskOrder = Callable[[Sequence[str]], list[str]]
LIMITS = LaneLimits[GateMessage](MOST_WORDS, under_way=4, size_of=_size_of, bytes=MOST_BYTES)
"""With four requests under way, one that hangs takes a quarter of the lane."""


class DatacenterLink:
    """Sends messages and questions to one datacenter."""

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        tools: ProbeTools,
        said: Callable[[DatacenterSaid], Awaitable[None]],
        failed: Callable[[str, Exception], Awaitable[None]],
        order: AskOrder,
        whole: WholeSubmission,
    ) -> None:
        self._order, self._whole = order, whole
        self.name, self._timeout_s, self._said, self._log = name, tools.settings.timeout_s, said, tools.log
        self.route = Route(tools.caller, addresses)
        keep = partial(tools.keeper.keep, f"link to {name}")
        # Decisions have a lane of their own, so that no submission delays a cancel.
        self._decisions = OutboxLane(self._send, failed, keep, LIMITS)
        self._submissions = OutboxLane(self._send, failed, keep, LIMITS)

    def put(self, owed: Owed) -> None:
        lane = self._submissions if isinstance(owed.message, JobSubmission) else self._decisions
        lane.put(owed.job_id, owed.message)

    async def ask(self, request: Request, wait_s: float = 0.0) -> Reply:
        """Asks the datacenter's managers, which may hold the answer back for `wait_s`. Raises `NodeUnavailableError`.

        A manager whose verdict is to evict it is asked last, even if it answered the last request.
        """
        addresses = self._order(self.route.addresses)
        if addresses != self.route.addresses:
            self.route.addresses = addresses
            self.route.preferred = addresses[0]
        return await self.route.ask(request, self._timeout_s + wait_s)

    async def _send(self, batch: list[GateMessage]) -> None:
        # Large arguments are read only now: what waits in a lane has their keys.
        submissions = tuple([await self._whole(one) for one in batch if isinstance(one, JobSubmission)])
        words: tuple[GateWord, ...] = tuple(one for one in batch if not isinstance(one, JobSubmission))
        told = TellDatacenter(datacenter=self.name, submissions=submissions, words=words)
        try:
            reply = await self.ask(told)
        except NodeUnavailableError:
            return
        if isinstance(reply, DatacenterSaid):
            await self._said(reply)
        elif isinstance(reply, Problem):
            self._log.warning(f"datacenter {self.name} refused what it was told: {reply.fact}")

    async def close(self) -> None:
        await asyncio.gather(self._decisions.close(), self._submissions.close())


class DatacenterLinks:
    """The links to all datacenters of a gate."""

    def __init__(
        self,
        tools: ProbeTools,
        datacenters: Mapping[str, Sequence[str]],
        *,
        said: Callable[[DatacenterSaid], Awaitable[None]],
        failed: Callable[[str, Exception], Awaitable[None]],
        order: AskOrder = list,
        whole: WholeSubmission = as_it_is,
    ) -> None:
        """`said` is called with each answer of a datacenter, `failed` with a job whose message cannot be sent, and the exception. `order` puts
        the managers of a datacenter into the order in which they should be asked. `whole` returns a submission with its large arguments."""
        self._links = {
            name: DatacenterLink(name, addresses, tools, said, failed, order, whole)
            for name, addresses in datacenters.items()
        }

    def put(self, owed: Owed) -> None:
        """Sends an owed message. One for a datacenter that this gate does not know stays owed: another gate, or this one restarted, may know it."""
        link = self._links.get(owed.datacenter)
        if link is not None:
            link.put(owed)

    @property
    def names(self) -> list[str]:
        return list(self._links)

    def get(self, name: str) -> DatacenterLink | None:
        return self._links.get(name)

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))


GATHER_S = 3.0
"""The seconds for each datacenter of a list. A client waits 5 s for an answer: a part of the list in time is worth more than all of it too late."""
PASS_S = 4.0
"""The seconds for a request that is passed on to one datacenter, beyond the wait that the request asks for."""
STREAM_PAGE_S = 10.0


class JoinedReply(NamedTuple):
    """The rule by which the answers of several datacenters become one: the type of each answer, and the fields whose lines are joined."""

    reply: type[Reply]
    lines: tuple[str, ...]


GATHERED: Mapping[type[Placed], JoinedReply] = {
    ListNodes: JoinedReply(NodeList, ("managers", "workers")),
    ListQueues: JoinedReply(QueueList, ("queues",)),
    ListWorkflows: JoinedReply(WorkflowList, ("workflows",)),
    ListThresholds: JoinedReply(ThresholdList, ("thresholds",)),
    ListDeadLetters: JoinedReply(DeadLetterList, ("letters",)),
    ListSchedules: JoinedReply(ScheduleList, ("schedules",)),
}


class DatacenterQueries:
    """Part of a gate: asks its datacenters on behalf of a caller."""

    def __init__(
        self, name: str, links: DatacenterLinks, why_silent: Callable[[str], str], failures: ProductFailures
    ) -> None:
        """`why_silent` returns the reason why a datacenter need not be asked; empty for one that should be."""
        self._name, self._links, self._why_silent, self._failures = name, links, why_silent, failures

    async def answer(self, request: Placed) -> Reply:
        """Returns the answer of one datacenter, or of all. Raises `NodeUnavailableError`, and `ConfigurationError` where the request must name
        a datacenter and does not, or names an unknown one."""
        if not request.datacenter and type(request) in GATHERED:
            return await self._gather(request, GATHERED[type(request)])
        return await self._pass(self._link(request), request)

    async def stream(self, request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
        """Yields the events of one datacenter, read page by page. The cursors are that datacenter's, so a caller may resume there or here."""
        link, wait_s = self._link(request), 0.0
        while True:
            page = await self._pass(link, msgspec.structs.replace(request, wait_s=wait_s))
            if not isinstance(page, EventPage):
                raise _refusal(page, request.datacenter)
            gap = (
                [StreamItem("gap", page.gap.cursor, data=msgspec.json.encode(page.gap))] if page.gap is not None else []
            )
            told = (
                StreamItem("event", one.cursor, str(one.event["type"]), msgspec.json.encode(one.event))
                for one in page.events
            )
            yield [*gap, *told, StreamItem("beat", page.cursor)]
            request, wait_s = msgspec.structs.replace(request, after=page.cursor), STREAM_PAGE_S

    # One datacenter

    def _link(self, request: Placed) -> DatacenterLink:
        known = self._links.names
        name = request.datacenter or (known[0] if len(known) == 1 else "")
        link = self._links.get(name)
        if link is not None:
            return link
        tag, there_are = request.__struct_config__.tag, f"There are: {', '.join(known)}"
        if not name:
            raise ConfigurationError(
                f"{tag!r} is for one datacenter, and this gate has {len(known)}",
                remedy=f"Name it, as datacenter={known[0]} (--datacenter {known[0]}). {there_are}",
            )
        raise ConfigurationError(f"this gate does not know the datacenter {name!r}", remedy=there_are)

    async def _pass(self, link: DatacenterLink, request: Placed) -> Reply:
        """Passes a request on to one datacenter in the name of its caller, whose role this gate has checked, and the datacenter checks again."""
        passed = passed_on(msgspec.structs.replace(request, datacenter=link.name), self._name)
        return await _within(PASS_S + passed.wait_s, link.name, link.ask(passed, passed.wait_s))

    # All datacenters

    async def _gather(self, request: Placed, part: JoinedReply) -> Reply:
        if getattr(request, "after", ""):
            raise ConfigurationError(
                "a next page is of one mailbox of one datacenter", remedy="Name both: datacenter=…, mailbox=…"
            )
        names = self._links.names
        answers = await asyncio.gather(*(self._one(name, request, part) for name in names))
        found = {name: answer for name, answer in zip(names, answers, strict=True) if isinstance(answer, part.reply)}
        if not found:
            return _nobody(dict(zip(names, answers, strict=True)))
        missing = tuple(
            Missing(datacenter=name, reason=_reason(answer))
            for name, answer in zip(names, answers, strict=True)
            if name not in found
        )
        return _merged(part, found, missing)

    async def _one(self, name: str, request: Placed, part: JoinedReply) -> Reply | str:
        """Returns a datacenter's answer, or the reason why there is none. Any exception leaves out this datacenter only."""
        try:
            if why := self._why_silent(name):
                return why
            link = self._links.get(name)
            assert link is not None
            answer = await _within(GATHER_S, name, self._pass(link, request))
            if isinstance(answer, part.reply):
                _merged(part, {name: answer}, ())  # raises here for an answer that would spoil the joined one
            return answer
        except NodeUnavailableError as error:
            return error.fact
        except Exception as error:
            return self._failures.note(FailedOn.DATACENTER, name, f"asking datacenter {name}", error).fact


async def _within(seconds: float, datacenter: str, asking: Awaitable[Reply]) -> Reply:
    try:
        async with asyncio.timeout(seconds):
            return await asking
    except TimeoutError:
        raise NodeUnavailableError(
            f"datacenter {datacenter} did not answer within {seconds:g} s", remedy="Ask again when it is back"
        ) from None


def _placed(one: Any, datacenter: str, behind: float) -> Any:
    """Returns a line with the datacenter that it is from. `behind`: the seconds that this datacenter's clock is behind the answer's."""
    if not isinstance(one, WorkerNode):
        return msgspec.structs.replace(one, datacenter=datacenter)
    attempts = tuple(msgspec.structs.replace(run, grants=shifted(run.grants, behind)) for run in one.attempts)
    grants, since = shifted(one.grants, behind), one.since + behind if one.since else 0.0
    return msgspec.structs.replace(one, datacenter=datacenter, attempts=attempts, grants=grants, since=since)


def _merged(part: JoinedReply, found: Mapping[str, Any], missing: tuple[Missing, ...]) -> Reply:
    more: dict[str, Any] = {}
    first = next(iter(found.values()))
    if hasattr(first, "now"):
        more["now"] = max(answer.now for answer in found.values())
    lines = {
        field: tuple(
            _placed(one, name, more.get("now", 0.0) - getattr(answer, "now", 0.0))
            for name, answer in found.items()
            for one in getattr(answer, field)
        )
        for field in part.lines
    }
    if hasattr(first, "count"):
        more["count"] = sum(answer.count for answer in found.values())
    return part.reply(**lines, **more, missing=missing)


def _reason(answer: Reply | str) -> str:
    if isinstance(answer, Problem):
        return f"it refuses: {answer.fact}"
    return answer if isinstance(answer, str) else f"it answered {type(answer).__name__}"


def _nobody(answers: Mapping[str, Reply | str]) -> Reply:
    """Returns the reply when no datacenter had an answer: a refusal of the request itself, where one gave it; else that all are away."""
    for answer in answers.values():
        if isinstance(answer, Problem) and answer.kind in (ProblemKind.INVALID, ProblemKind.IMPOSSIBLE):
            return answer
    said = "; ".join(f"{name}: {_reason(answer)}" for name, answer in answers.items())
    return Problem(
        kind=ProblemKind.UNAVAILABLE,
        fact=f"no datacenter answers ({said})",
        remedy="Ask again, or ask the managers of one datacenter directly",
        retryable=True,
    )


def _refusal(reply: Reply, datacenter: str) -> NodeUnavailableError:
    fact = reply.fact if isinstance(reply, Problem) else f"it answered {type(reply).__name__}"
    return NodeUnavailableError(f"the events of datacenter {datacenter} are not to be had: {fact}")


def in_words(answer: Reply | None) -> str:
    """Returns what a datacenter said to a request that acts on a job."""
    if isinstance(answer, Done):
        return answer.reason or str(answer.outcome)
    return answer.fact if isinstance(answer, Problem) else "it does not answer"


def all_in_words(answers: Mapping[str, Reply | None], info: GateJobTrackingInfo) -> str:
    words = "; ".join(f"{name}: {in_words(one)}" for name, one in answers.items())
    return words or f"it has ended: {info.state}"


def signal_decision(answers: Mapping[str, Reply | None], info: GateJobTrackingInfo) -> GateDecision:
    """Returns what became of a signal. Each datacenter keeps it, and its id makes a second try harmless.

    Raises `ArgumentsError` where a datacenter says that the signal itself is wrong. Raises `NodeUnavailableError`, which lets the sender try again, where
    none has taken it and one did not answer, or has not got the job yet: the gate has accepted it and is still sending it.
    """
    words = all_in_words(answers, info)
    if any(isinstance(one, Done) and one.outcome is not Outcome.REFUSED for one in answers.values()):
        return GateDecision([], Outcome.ACCEPTED, Rule.ASKED, words, info.job_id)
    for one in answers.values():
        if isinstance(one, Problem) and one.kind in (ProblemKind.INVALID, ProblemKind.IMPOSSIBLE):
            raise ArgumentsError(one.fact, remedy=one.remedy)
    if any(one is None or (isinstance(one, Problem) and _passes(one)) for one in answers.values()):
        raise NodeUnavailableError(f"no datacenter has taken the signal ({words})")
    return GateDecision([], Outcome.REFUSED, Rule.ASKED, words, info.job_id)


def _passes(problem: Problem) -> bool:
    return problem.retryable or problem.kind is ProblemKind.UNKNOWN

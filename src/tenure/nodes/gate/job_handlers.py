"""Answers a gate's requests about jobs, from the gate's own record and the answers of the datacenters, and places new jobs.

A workflow of a job in several datacenters is called `datacenter/workflow` here, because each datacenter runs the whole job. Results live in the
datacenters. When a job has ended in a datacenter, the gate keeps the datacenter's answer, so that it need not ask again, and can show the answer while
that datacenter is away. `Placement` decides in which datacenters a job runs (those that it names, or the best ones now), and makes that durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.clock import Clock
from tenure.control.caller import parse_address
from tenure.control.claims import scope
from tenure.control.messages.job_output import GetEvidence, GetLogs, GetOutput
from tenure.control.messages.jobs import (
    AskWhy,
    Cancel,
    Done,
    GetJob,
    GetResult,
    JobView,
    ListJobs,
    MoveRunningJob,
    PauseRunningJob,
    ResultView,
    ResumePausedJob,
    RetimeRunningJob,
    SignalJob,
    SteeringRequest,
    WhyReply,
    WorkflowView,
)
from tenure.control.messages.wire import Problem, ProblemKind, Reply, Request
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.engines.contracts.engine import MAX_STORE_BYTES
from tenure.errors import ConfigurationError, EngineCorruptError, NodeUnavailableError, TenureError, UnknownJobError
from tenure.jobs.arguments import check_not_stored
from tenure.jobs.decisions import GateDecision, Outcome, Rule
from tenure.jobs.gate_decisions import GateSteer
from tenure.jobs.gate_jobs import GateCancel, GateSubmit
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import Address, GateJobTrackingInfo, JobSubmission
from tenure.jobs.states import JobState
from tenure.jobs.why import MOST_ATTEMPTS_SHOWN, answered_there, why_everywhere
from tenure.nodes.gate.datacenter_health import DatacenterWatch
from tenure.nodes.gate.datacenter_links import all_in_words, signal_decision
from tenure.nodes.gate.fitness import Forwarding
from tenure.nodes.gate.leader import ARCHIVE, GateLeadership
from tenure.nodes.job_handlers import JobHandlers, Repeatable
from tenure.nodes.job_listing import gate_list
from tenure.nodes.job_views import gate_view, in_our_time, runs_in_our_time
from tenure.nodes.loop_keeper import FailedOn
from tenure.nodes.stored_values import read_record, stored_keys

if TYPE_CHECKING:
    from tenure.nodes.gate.gate import Gate


ANSWERS = "gate-answers"
"""The store with the answers of datacenters in which a job has ended."""
ANSWERS_TTL_S = 7 * 86_400


class GateJobHandlers(JobHandlers):
    """Part of a gate: its handlers run where the gate leads."""

    def __init__(self, gate: Gate, engine: Engine, calls: Calls, clock: Clock) -> None:
        super().__init__(engine, calls, clock)
        self._gate = gate
        self._archive, self._answers = engine.store(ARCHIVE), engine.store(ANSWERS)

    @property
    def position(self) -> tuple[int, int]:
        return self._gate.leadership.epoch, self._gate.leadership.ledger.seq

    async def accept(self, submissions: Sequence[JobSubmission]) -> Sequence[GateDecision | TenureError]:
        kept = [await self._kept(one) for one in submissions]
        placed = [one for one in kept if isinstance(one, JobSubmission)]
        outcomes = await self._gate.placement.place_all(placed)
        for one, outcome in zip(placed, outcomes, strict=True):
            known = self.has_ended(one.job_id) or self.submission_of(one.job_id) is not None
            if isinstance(outcome, TenureError) and not outcome.retryable and not known:
                await self._arguments.delete(stored_keys(one))
        made = iter(outcomes)
        return [one if isinstance(one, TenureError) else next(made) for one in kept]

    async def _kept(self, submission: JobSubmission) -> JobSubmission | TenureError:
        """Returns a submission as the gate's journal can hold it: large arguments are in the gate's own store."""
        try:
            check_not_stored(submission)
            return await self._arguments.kept(submission, write=not self.has_ended(submission.job_id))
        except ConfigurationError as error:
            return error

    async def cancel(self, request: Cancel) -> GateDecision:
        command = GateCancel(by=request.by, job_id=request.job_id, reason=request.reason)
        return await self._gate.leadership.commit(command)

    async def steer(self, request: SteeringRequest) -> GateDecision:
        if isinstance(request, MoveRunningJob):
            return await self._move(request)
        if isinstance(request, SignalJob):
            return await self._signal(request)
        return await self._gate.leadership.commit(gate_command_of(request))

    async def _signal(self, request: SignalJob) -> GateDecision:
        """Passes a signal on to the datacenters in which the job runs."""
        info = await self._known(request.job_id)
        names = list(info.running)
        answers = await asyncio.gather(*(self._ask_datacenter(name, request) for name in names))
        return signal_decision(dict(zip(names, answers, strict=True)), info)

    async def _move(self, request: MoveRunningJob) -> GateDecision:
        """Passes the move on to the datacenters in which it runs. A move changes nothing that the gate itself decides on."""
        info = await self._known(request.job_id)
        if request.workflow:
            datacenter, workflow = where(info, request.workflow)
            asked = {datacenter: msgspec.structs.replace(request, workflow=workflow)}
        else:
            asked = dict.fromkeys(info.running, request)
        answers = await asyncio.gather(*(self._ask_datacenter(name, one) for name, one in asked.items()))
        moved = any(isinstance(answer, Done) for answer in answers)
        words = all_in_words(dict(zip(asked, answers, strict=True)), info)
        outcome = Outcome.ACCEPTED if moved else Outcome.REFUSED
        return GateDecision([], outcome, Rule.ASKED, words, info.job_id)

    # The gate's own record

    @property
    def book(self) -> GateJobTracker:
        return self._gate.leadership.ledger.book

    def submission_of(self, job_id: str) -> JobSubmission | None:
        info = self._gate.leadership.ledger.book.jobs.get(job_id)
        return info.submission if info is not None else None

    def live_submissions(self) -> Iterable[JobSubmission]:
        jobs = self._gate.leadership.ledger.book.jobs.values()
        return [info.submission for info in jobs if info.submission is not None and not info.state.terminal]

    async def list_jobs(self, request: ListJobs) -> Reply:
        leadership = self._gate.leadership
        now, leader, within = leadership.time.now(), leadership.leader, scope()
        counts = leader.reported_counts.of if leader is not None else None
        return await leadership.ledger.read(lambda tracker: gate_list(tracker, now, request, counts, within))

    async def repeatable(self, job_id: str) -> Repeatable:
        info = await self._known(job_id)
        return Repeatable(info.submission, info.state.terminal, tuple(info.target_datacenters))

    async def _known(self, job_id: str) -> GateJobTrackingInfo:
        """Returns a copy of a job's record, also of an archived job. Raises `UnknownJobError`."""

        def look(tracker: GateJobTracker) -> GateJobTrackingInfo | None:
            info = tracker.jobs.get(job_id)
            return None if info is None else _copy(info)

        info = await self._gate.leadership.ledger.read(look)
        if info is None:
            stored = await self._calls.run(self._archive.get, job_id)
            if stored is None:
                raise UnknownJobError(job_id)
            info = read_record(stored, GateJobTrackingInfo, f"job {job_id!r}")
        return info

    # Answers of the datacenters

    async def view(self, job_id: str, *, whole: bool = True) -> JobView | Problem:
        """Returns the view of all datacenters together. With `whole`, it returns a `Problem` where a datacenter with a result does not answer."""
        info = await self._known(job_id)
        names = list(info.target_datacenters)
        answers = dict(zip(names, await asyncio.gather(*(self._ask(info, name) for name in names)), strict=True))
        missing = [name for name in names if answers[name] is None and info.dc_status[name] is JobState.COMPLETED]
        if whole and info.state.terminal and missing:
            # A caller would take an ended job without its result for a job that has none.
            return Problem(
                kind=ProblemKind.UNAVAILABLE,
                fact=f"job {job_id!r} ended ({info.state}), and its result is in {', '.join(missing)}, which does not answer",
                remedy="Ask again when the datacenter is back: nothing is lost",
                retryable=True,
            )
        leadership = self._gate.leadership
        deadline, now = leadership.ledger.book.deadline(info), leadership.time.now()
        return gate_view(info, deadline, now, answers, self._gate.watch.class_of)

    async def _ask(self, info: GateJobTrackingInfo, datacenter: str) -> JobView | None:
        key = f"{info.job_id}/{datacenter}"
        if info.dc_status[datacenter].terminal:
            stored = await self._calls.run(self._answers.get, key)
            if stored is not None:
                with suppress(EngineCorruptError):  # a copy: the datacenter itself is asked instead
                    return read_record(stored, JobView, f"job {key!r}")
        if not info.dc_heard[datacenter]:
            return None
        reply = await self._ask_datacenter(datacenter, GetJob(job_id=info.job_id))
        if not isinstance(reply, JobView):
            return None  # the datacenter does not answer, never knew the job, or has forgotten it
        reply = in_our_time(reply, self._gate.leadership.time.now())
        if reply.ended and info.dc_status[datacenter].terminal and (ttl := _kept_for(info, reply)) > 0:
            copy = msgspec.json.encode(reply)
            if len(copy) <= MAX_STORE_BYTES:
                await self._calls.run(self._answers.put, key, copy, ttl=ttl)
        return reply

    async def whole_result(self, view: JobView, one: WorkflowView) -> Any:
        """Asks the datacenter in which it ran, under the name that it has there."""
        request = GetResult(job_id=view.job_id, workflow=one.name.rpartition("/")[2])
        reply = await self._ask_datacenter(one.datacenter, request)
        if not isinstance(reply, ResultView):
            raise NodeUnavailableError(
                f"datacenter {one.datacenter!r} has the result of {one.name!r}, and does not answer"
            )
        return reply.result

    async def why(self, request: AskWhy) -> WhyReply:
        """Returns the gate's chain of decisions, and below it that of each datacenter that answers."""
        job_id, tracker = request.job_id, GateJobTracker()
        info = tracker.state.jobs[job_id] = await self._known(job_id)
        told, names = why_everywhere(tracker, job_id), list(info.target_datacenters)
        answers = await asyncio.gather(*(self._ask_datacenter(name, AskWhy(job_id=job_id)) for name in names))
        parts, found, runs, now = [], list(told.found), list(told.runs), self._gate.leadership.time.now()
        for name, answer in zip(names, answers, strict=True):
            prefix = f"{name}/" if len(names) > 1 else ""
            if isinstance(answer, WhyReply):
                told = answered_there(told, info, name, answer.why)
                found += [msgspec.structs.replace(one, workflow=prefix + one.workflow) for one in answer.why.found]
                runs += runs_in_our_time(answer, now, prefix)
            silent = f"it does not answer; {info.dc_status[name]} by its last word\n"
            parts.append(f"In {name}: {answer.text if isinstance(answer, WhyReply) else silent}")
        text = "\n".join([str(told), *parts])  # each datacenter's part has its own evidence
        runs.sort(key=lambda one: one.started_at)
        told = msgspec.structs.replace(told, found=tuple(found[:MOST_ATTEMPTS_SHOWN]), runs=tuple(runs))
        return WhyReply(why=told, text=text, now=now)

    async def _ask_datacenter(self, datacenter: str, request: Request) -> Reply | None:
        """Returns a datacenter's reply, or None. It does not ask a silent datacenter, so that the caller need not wait for the timeout."""
        link = self._gate.links.get(datacenter)
        if link is None or self._gate.watch.silent(datacenter):
            return None
        try:
            return await link.ask(request)
        except NodeUnavailableError:
            return None

    async def _where_it_ran(self, request: GetLogs | GetEvidence | GetOutput) -> Reply:
        """Passes the request on to the datacenter where the workflow ran."""
        datacenter, workflow = where(await self._known(request.job_id), request.workflow)
        link = self._gate.links.get(datacenter)
        if link is None:
            raise NodeUnavailableError(f"this gate was not told of datacenter {datacenter!r}")
        return await link.ask(msgspec.structs.replace(request, workflow=workflow))

    logs = evidence = output = _where_it_ran


def gate_command_of(request: PauseRunningJob | ResumePausedJob | RetimeRunningJob) -> GateSteer:
    if isinstance(request, RetimeRunningJob):
        return GateSteer(
            by=request.by,
            job_id=request.job_id,
            timeout_seconds=request.timeout_seconds,
            add_s=request.add_s,
            reason=request.reason,
        )
    paused = isinstance(request, PauseRunningJob)
    return GateSteer(by=request.by, job_id=request.job_id, paused=paused, reason=request.reason)


def where(info: GateJobTrackingInfo, workflow: str) -> tuple[str, str]:
    """Splits `datacenter/workflow` into its two parts. A job in one datacenter may leave out the first part."""
    if len(info.target_datacenters) == 1:
        only = info.target_datacenters[0]
        return only, workflow.removeprefix(f"{only}/")
    datacenter, _, rest = workflow.partition("/")
    if datacenter in info.target_datacenters:
        return datacenter, rest
    raise ConfigurationError(
        f"job {info.job_id!r} ran in {len(info.target_datacenters)} datacenters, and {workflow!r} names none of them",
        remedy=f"Name one as DATACENTER/WORKFLOW, of: {', '.join(info.target_datacenters)}",
    )


def _kept_for(info: GateJobTrackingInfo, view: JobView) -> float:
    """Returns the seconds for which the gate may keep this answer: not longer than the submission lets anybody keep its results."""
    ttl = info.submission.result_ttl if info.submission is not None else None
    if ttl is None or view.results_expired:
        return ANSWERS_TTL_S
    return min(ANSWERS_TTL_S, view.ended_at + ttl - view.now)


def _copy(info: GateJobTrackingInfo) -> GateJobTrackingInfo:
    """Returns a deep copy, because the fold changes the record in place."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(info), type=GateJobTrackingInfo)


class Placement:
    """Places jobs. Part of a gate that leads."""

    def __init__(
        self, address: str, peers: Sequence[str], leadership: GateLeadership, watch: DatacenterWatch, flow: Forwarding
    ) -> None:
        self._address, self._peers = address, peers
        self._leadership, self._watch, self._flow = leadership, watch, flow

    async def place_all(self, submissions: Sequence[JobSubmission]) -> list[GateDecision | TenureError]:
        """Places many jobs. Returns for each its decision, or the error that refused it."""
        commands = [self._placed(submission) for submission in submissions]
        outcomes = await self._leadership.commit_all([one for one in commands if isinstance(one, GateSubmit)])
        made = iter(outcomes)
        answers: list[GateDecision | TenureError] = []
        for command in commands:
            answer = command if isinstance(command, TenureError) else next(made)
            if isinstance(command, GateSubmit) and isinstance(answer, GateDecision) and answer.events:
                self._flow.accepted(command.target_datacenters)
            answers.append(answer)
        return answers

    def _placed(self, submission: JobSubmission) -> GateSubmit | TenureError:
        try:
            submission = self._addressed(submission)
            targets = self._targets(submission)
        except TenureError as error:
            return error
        except Exception as error:
            return self._leadership.failures.note(FailedOn.JOB, submission.job_id, "placing it", error)
        return GateSubmit(by=submission.submitted_by, submission=submission, target_datacenters=targets)

    def _addressed(self, submission: JobSubmission) -> JobSubmission:
        """Returns the submission with the addresses to which managers report: this gate first, then its peers."""
        others = tuple(_pair(peer) for peer in self._peers)
        return msgspec.structs.replace(
            submission, gate_addr=_pair(self._address), gate_addrs=others, gate_epoch=0, global_submitted_at=0.0
        )

    def _targets(self, submission: JobSubmission) -> tuple[str, ...]:
        """Returns the datacenters that the job names, or the best ones now. A job that the gate knows already stays where it is."""
        tracker = self._leadership.ledger.book
        if info := tracker.jobs.get(submission.job_id):
            return tuple(info.target_datacenters)
        unknown = [name for name in submission.target_datacenters if name not in self._watch.datacenters]
        if unknown:
            raise ConfigurationError(
                f"job {submission.job_id!r} names datacenter {unknown[0]!r}, which this gate does not know",
                remedy=f"There are: {', '.join(self._watch.datacenters)}",
            )
        if submission.target_datacenters:
            return submission.target_datacenters
        if submission.datacenters > len(self._watch.datacenters):
            raise ConfigurationError(
                f"job {submission.job_id!r} needs {submission.datacenters} datacenters, and this gate has {len(self._watch.datacenters)}",
                remedy=f"Ask for fewer. There are: {', '.join(self._watch.datacenters)}",
            )
        choice = self._watch.choose(submission.datacenters)
        if len(choice.chosen) < submission.datacenters:
            said = "; ".join(f"{name}: {reason}" for name, reason in choice.reasons.items())
            raise NodeUnavailableError(
                f"job {submission.job_id!r} needs {submission.datacenters} datacenters, and {len(choice.chosen)} can take it ({said})",
                remedy="Ask again, or name target_datacenters: a named one gets the job when it is back",
            )
        return choice.chosen


def _pair(address: str) -> Address:
    """Returns host and port. A scheme stays with the host, because the manager that reports joins the two again."""
    parse_address(address)
    host, _, port = address.rpartition(":")
    return host, int(port)

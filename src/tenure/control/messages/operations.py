"""Everything that can be asked of a node: one table, from which the server, the clients and the OpenAPI document are made.

To add a request: write its struct (tag = path; the first sentence of its docstring is its summary in the documentation), add a line here, and register its handler where the node is put together.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any, NamedTuple, Union, cast

import msgspec

from tenure.control.messages import events, gates, job_output, jobs, nodes, queues, tokens, workers, workflows
from tenure.control.messages.tokens import Role
from tenure.control.messages.wire import AskLeader, LeaderView, Problem, Redirect, Reply, Request

__all__ = [
    "BY_NAME",
    "MAX_REQUEST_BYTES",
    "OPERATIONS",
    "AtGate",
    "Operation",
    "Role",
    "Within",
    "decode_reply",
    "decode_request",
]

MAX_REQUEST_BYTES = 1 << 20
MAX_SUBMISSION_BYTES = 8 * MAX_REQUEST_BYTES
"""A request that carries submissions: their arguments may have 7 MiB."""


class Within(StrEnum):
    """The way in which a request of a caller that is bound to queues or labels is held within them. Whoever adds an operation chooses one."""

    NOBODY = "nobody"
    """Such a caller is refused: the answer shows, or the request changes, more than its jobs."""
    OPEN = "open"
    """It tells nothing of jobs, and changes none."""
    SUBMISSION = "submission"
    """The door checks each submission in it."""
    JOB = "job"
    """The handler looks the job up. One that is out of bounds is as unknown as one that does not exist."""
    SCHEDULE = "schedule"
    """The door checks the submission in it, and the handler the schedule that has this name now."""
    QUEUE = "queue"
    """The door checks the queue that it names. A caller that is bound to labels may not: the queue has the jobs of others, too."""
    QUEUES = "queues"
    """The handler leaves queues out that are out of bounds. A caller that is bound to labels is refused: the counts and keys are those of others, too."""
    CUT = "cut"
    """The handler leaves everything out that is out of bounds."""


class AtGate(StrEnum):
    """The way in which a gate handles a request. Every operation has one: no request is answered with "there is no such thing"."""

    OWN = "own"
    """Answered from what the gate cluster knows; passed on where a datacenter is named."""
    GATHERED = "gathered"
    """Asked of every datacenter, each line with where it is from; or of the one that is named."""
    PASSED = "passed"
    """Passed on to the datacenter that is named. It may be left out where the gate has only one."""
    REFUSED = "refused"
    """For managers only: the answer says whom to ask."""


class Operation(NamedTuple):
    """One request: what it answers besides `Redirect` and `Problem`, who may ask it, and whether it only reads."""

    request: type[Request]
    reply: type[Reply]
    role: Role
    reads: bool
    streams: bool = False
    """True when a GET may also be answered with a stream."""
    body_bytes: int = MAX_REQUEST_BYTES
    at_gate: AtGate = AtGate.OWN

    @property
    def name(self) -> str:
        return str(self.request.__struct_config__.tag)

    @property
    def summary(self) -> str:
        """Returns the first sentence of the request's docstring."""
        return " ".join((self.request.__doc__ or "").split()).partition(". ")[0].rstrip(".")

    @property
    def within(self) -> Within:
        return WITHIN.get(self.request, Within.NOBODY)

    def open_to(self, roles: Collection[Role]) -> bool:
        """Returns True when a caller with these roles may ask it."""
        return self.role in roles or (self.reads and self.role is Role.CLIENT and Role.READER in roles)


WITHIN: dict[type[Request], Within] = {
    AskLeader: Within.OPEN,
    **dict.fromkeys((jobs.Submit, jobs.SubmitMany), Within.SUBMISSION),
    **dict.fromkeys(
        (
            jobs.Cancel,
            jobs.GetJob,
            jobs.AskWhy,
            jobs.GetResult,
            jobs.RetryJob,
            job_output.GetLogs,
            job_output.GetEvidence,
            job_output.GetOutput,
        ),
        Within.JOB,
    ),
    **dict.fromkeys(
        (jobs.PauseRunningJob, jobs.ResumePausedJob, jobs.RetimeRunningJob, jobs.MoveRunningJob, jobs.SignalJob),
        Within.JOB,
    ),
    **dict.fromkeys((queues.SetSchedule, queues.DropSchedule, queues.TriggerSchedule), Within.SCHEDULE),
    **dict.fromkeys((queues.PauseQueue, queues.ResumeQueue, queues.ChangeQueue), Within.QUEUE),
    queues.ListQueues: Within.QUEUES,
    **dict.fromkeys((jobs.ListJobs, queues.ListSchedules, events.GetEvents, jobs.AwaitJobs), Within.CUT),
}
"""How each request of a bound caller is held within its bounds. What is not here is refused to such callers."""

OPERATIONS: tuple[Operation, ...] = (
    Operation(jobs.Submit, jobs.Done, Role.CLIENT, False, body_bytes=MAX_SUBMISSION_BYTES),
    Operation(jobs.Cancel, jobs.Done, Role.CLIENT, False),
    Operation(jobs.GetJob, jobs.JobView, Role.CLIENT, True),
    Operation(jobs.ListJobs, jobs.JobList, Role.CLIENT, True),
    Operation(jobs.AwaitJobs, jobs.EndedJobs, Role.CLIENT, True),
    Operation(jobs.AskWhy, jobs.WhyReply, Role.CLIENT, True),
    Operation(
        queues.SetSchedule, jobs.Done, Role.CLIENT, False, body_bytes=MAX_SUBMISSION_BYTES, at_gate=AtGate.PASSED
    ),
    Operation(queues.DropSchedule, jobs.Done, Role.CLIENT, False, at_gate=AtGate.PASSED),
    Operation(queues.TriggerSchedule, jobs.Done, Role.CLIENT, False, at_gate=AtGate.PASSED),
    Operation(queues.ListSchedules, queues.ScheduleList, Role.CLIENT, True, at_gate=AtGate.GATHERED),
    Operation(events.GetEvents, events.EventPage, Role.CLIENT, True, streams=True),
    Operation(jobs.SubmitMany, jobs.ManySubmitted, Role.CLIENT, False, body_bytes=MAX_SUBMISSION_BYTES),
    Operation(jobs.GetResult, jobs.ResultView, Role.CLIENT, True),
    Operation(jobs.RetryJob, jobs.Done, Role.CLIENT, False),
    Operation(jobs.PauseRunningJob, jobs.Done, Role.CLIENT, False),
    Operation(jobs.ResumePausedJob, jobs.Done, Role.CLIENT, False),
    Operation(jobs.RetimeRunningJob, jobs.Done, Role.CLIENT, False),
    Operation(jobs.SignalJob, jobs.Done, Role.CLIENT, False),
    Operation(jobs.MoveRunningJob, jobs.Done, Role.CLIENT, False),
    Operation(job_output.GetLogs, job_output.LogPage, Role.CLIENT, True),
    Operation(job_output.GetOutput, job_output.OutputPage, Role.CLIENT, True, streams=True),
    Operation(job_output.GetEvidence, job_output.EvidenceView, Role.CLIENT, True),
    Operation(queues.ListQueues, queues.QueueList, Role.CLIENT, True, at_gate=AtGate.GATHERED),
    Operation(workflows.ListWorkflows, workflows.WorkflowList, Role.CLIENT, True, at_gate=AtGate.GATHERED),
    Operation(workflows.ListThresholds, workflows.ThresholdList, Role.CLIENT, True, at_gate=AtGate.GATHERED),
    Operation(queues.PauseQueue, jobs.Done, Role.OPERATOR, False, at_gate=AtGate.PASSED),
    Operation(queues.ResumeQueue, jobs.Done, Role.OPERATOR, False, at_gate=AtGate.PASSED),
    Operation(queues.ChangeQueue, jobs.Done, Role.OPERATOR, False, at_gate=AtGate.PASSED),
    Operation(nodes.AskOverview, nodes.Overview, Role.CLIENT, True, at_gate=AtGate.PASSED),
    Operation(nodes.ListNodes, nodes.NodeList, Role.CLIENT, True, at_gate=AtGate.GATHERED),
    Operation(nodes.DrainNode, jobs.Done, Role.OPERATOR, False, at_gate=AtGate.PASSED),
    Operation(nodes.UndrainNode, jobs.Done, Role.OPERATOR, False, at_gate=AtGate.PASSED),
    Operation(nodes.HoldName, jobs.Done, Role.OPERATOR, False, at_gate=AtGate.PASSED),
    Operation(nodes.ReleaseName, jobs.Done, Role.OPERATOR, False, at_gate=AtGate.PASSED),
    Operation(queues.ListDeadLetters, queues.DeadLetterList, Role.OPERATOR, True, at_gate=AtGate.GATHERED),
    Operation(queues.GetDeadLetter, queues.DeadLetterView, Role.OPERATOR, True, at_gate=AtGate.PASSED),
    Operation(queues.ReplayDeadLetter, queues.LetterDone, Role.OPERATOR, False, at_gate=AtGate.PASSED),
    Operation(queues.DiscardDeadLetter, queues.LetterDone, Role.OPERATOR, False, at_gate=AtGate.PASSED),
    Operation(AskLeader, LeaderView, Role.CLIENT, True),
    Operation(workers.WorkerReport, workers.WorkerDirective, Role.WORKER, False, at_gate=AtGate.REFUSED),
    Operation(workers.ExtendDeadline, workers.ExtensionReply, Role.WORKER, False, at_gate=AtGate.REFUSED),
    Operation(
        gates.TellDatacenter,
        gates.DatacenterSaid,
        Role.NODE,
        False,
        body_bytes=MAX_SUBMISSION_BYTES,
        at_gate=AtGate.REFUSED,
    ),
    Operation(gates.TellGate, gates.GateHeard, Role.NODE, False),
    Operation(gates.AskDatacenter, gates.DatacenterView, Role.NODE, True, at_gate=AtGate.REFUSED),
    Operation(gates.AskGate, gates.GateView, Role.CLIENT, True),
    Operation(gates.Forward, gates.GateView, Role.NODE, False),
    Operation(tokens.CreateToken, tokens.TokenDone, Role.OPERATOR, False),
    Operation(tokens.RevokeToken, tokens.TokenDone, Role.OPERATOR, False),
    Operation(tokens.ListTokens, tokens.TokenList, Role.OPERATOR, True),
    Operation(tokens.TellRevoked, tokens.TokenDone, Role.NODE, False, at_gate=AtGate.REFUSED),
)

BY_NAME: dict[str, Operation] = {operation.name: operation for operation in OPERATIONS}
"""By path."""

_requests = {operation.name: msgspec.json.Decoder(operation.request) for operation in OPERATIONS}
_replies = tuple(dict.fromkeys([*(operation.reply for operation in OPERATIONS), Redirect, Problem]))
_reply: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Union[_replies])  # noqa: UP007 - a union of what a table holds


def decode_request(name: str, body: bytes) -> Request:
    """Returns the request of this name. The tag is in the path; in the body it may be left out. Raises `msgspec.DecodeError`."""
    return _requests[name].decode(body or b"{}")


def decode_reply(body: bytes) -> Reply:
    """Raises `msgspec.DecodeError` for what is no reply."""
    try:
        return cast("Reply", _reply.decode(body))
    except (UnicodeDecodeError, RecursionError) as error:  # a node that we ask must not end us with a deep answer
        raise msgspec.DecodeError(str(error)) from error

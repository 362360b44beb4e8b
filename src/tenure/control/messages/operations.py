"""Everything that can be asked of a node: one table, from which the server, the clients and the OpenAPI document are made.

To add a request: write its struct (tag = path), add a line here, and register its handler where the node is put together.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any, NamedTuple, Union, cast

import msgspec

from tenure.control.messages.events import EventPage, GetEvents
from tenure.control.messages.gates import (
    AskDatacenter,
    AskGate,
    DatacenterSaid,
    DatacenterView,
    Forward,
    GateHeard,
    GateView,
    TellDatacenter,
    TellGate,
)
from tenure.control.messages.job_output import EvidenceView, GetEvidence, GetLogs, GetOutput, LogPage, OutputPage
from tenure.control.messages.jobs import (
    AskWhy,
    AwaitJobs,
    Cancel,
    Done,
    EndedJobs,
    GetJob,
    GetResult,
    JobList,
    JobView,
    ListJobs,
    ManySubmitted,
    MoveRunningJob,
    PauseRunningJob,
    ResultView,
    ResumePausedJob,
    RetimeRunningJob,
    RetryJob,
    SignalJob,
    Submit,
    SubmitMany,
    WhyReply,
)
from tenure.control.messages.nodes import (
    AskOverview,
    DrainNode,
    HoldName,
    ListNodes,
    NodeList,
    Overview,
    ReleaseName,
    UndrainNode,
)
from tenure.control.messages.queues import (
    ChangeQueue,
    DeadLetterList,
    DeadLetterView,
    DiscardDeadLetter,
    DropSchedule,
    GetDeadLetter,
    LetterDone,
    ListDeadLetters,
    ListQueues,
    ListSchedules,
    PauseQueue,
    QueueList,
    ReplayDeadLetter,
    ResumeQueue,
    ScheduleList,
    SetSchedule,
    TriggerSchedule,
)
from tenure.control.messages.tokens import (
    CreateToken,
    ListTokens,
    RevokeToken,
    Role,
    TellRevoked,
    TokenDone,
    TokenList,
)
from tenure.control.messages.wire import AskLeader, LeaderView, Problem, Redirect, Reply, Request
from tenure.control.messages.workers import ExtendDeadline, ExtensionReply, WorkerDirective, WorkerReport
from tenure.control.messages.workflows import ListThresholds, ListWorkflows, ThresholdList, WorkflowList

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
    summary: str
    streams: bool = False
    """True when a GET may also be answered with a stream."""
    body_bytes: int = MAX_REQUEST_BYTES
    at_gate: AtGate = AtGate.OWN

    @property
    def name(self) -> str:
        return str(self.request.__struct_config__.tag)

    @property
    def within(self) -> Within:
        return WITHIN.get(self.request, Within.NOBODY)

    def open_to(self, roles: Collection[Role]) -> bool:
        """Returns True when a caller with these roles may ask it."""
        return self.role in roles or (self.reads and self.role is Role.CLIENT and Role.READER in roles)


WITHIN: dict[type[Request], Within] = {
    AskLeader: Within.OPEN,
    **dict.fromkeys((Submit, SubmitMany), Within.SUBMISSION),
    **dict.fromkeys((Cancel, GetJob, AskWhy, GetResult, RetryJob, GetLogs, GetEvidence, GetOutput), Within.JOB),
    **dict.fromkeys((PauseRunningJob, ResumePausedJob, RetimeRunningJob, MoveRunningJob, SignalJob), Within.JOB),
    **dict.fromkeys((SetSchedule, DropSchedule, TriggerSchedule), Within.SCHEDULE),
    **dict.fromkeys((PauseQueue, ResumeQueue, ChangeQueue), Within.QUEUE),
    ListQueues: Within.QUEUES,
    **dict.fromkeys((ListJobs, ListSchedules, GetEvents, AwaitJobs), Within.CUT),
}
"""How each request of a bound caller is held within its bounds. What is not here is refused to such callers."""

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        Submit,
        Done,
        Role.CLIENT,
        False,
        "Run a job, once, however often it is asked",
        body_bytes=MAX_SUBMISSION_BYTES,
    ),
    Operation(Cancel, Done, Role.CLIENT, False, "End a job now, or before it is known"),
    Operation(GetJob, JobView, Role.CLIENT, True, "How one job stands; may wait for its end"),
    Operation(ListJobs, JobList, Role.CLIENT, True, "The newest jobs"),
    Operation(AwaitJobs, EndedJobs, Role.CLIENT, True, "Which of many jobs have ended; may wait for one of them"),
    Operation(AskWhy, WhyReply, Role.CLIENT, True, "The chain of decisions that brought a job to where it is"),
    Operation(
        SetSchedule,
        Done,
        Role.CLIENT,
        False,
        "Have a job run again and again: by cron, or every so often",
        body_bytes=MAX_SUBMISSION_BYTES,
        at_gate=AtGate.PASSED,
    ),
    Operation(DropSchedule, Done, Role.CLIENT, False, "End a schedule; what runs goes on", at_gate=AtGate.PASSED),
    Operation(TriggerSchedule, Done, Role.CLIENT, False, "Run the job of a schedule now", at_gate=AtGate.PASSED),
    Operation(
        ListSchedules,
        ScheduleList,
        Role.CLIENT,
        True,
        "Every schedule, and what became of its instants",
        at_gate=AtGate.GATHERED,
    ),
    Operation(GetEvents, EventPage, Role.CLIENT, True, "What is decided, in order and without a gap", streams=True),
    Operation(
        SubmitMany,
        ManySubmitted,
        Role.CLIENT,
        False,
        "Run many jobs; each has an outcome of its own",
        body_bytes=MAX_SUBMISSION_BYTES,
    ),
    Operation(GetResult, ResultView, Role.CLIENT, True, "What a workflow returned; may wait for its end"),
    Operation(RetryJob, Done, Role.CLIENT, False, "Run an ended job once more, as a new job that names the old one"),
    Operation(PauseRunningJob, Done, Role.CLIENT, False, "Pause a job: what runs ends with its checkpoint"),
    Operation(ResumePausedJob, Done, Role.CLIENT, False, "Let a paused job go on"),
    Operation(RetimeRunningJob, Done, Role.CLIENT, False, "Give a job another deadline, or more time"),
    Operation(SignalJob, Done, Role.CLIENT, False, "Send a signal to a job, once for each id"),
    Operation(MoveRunningJob, Done, Role.CLIENT, False, "Have what runs go on from its checkpoint on another worker"),
    Operation(GetLogs, LogPage, Role.CLIENT, True, "What an attempt logged, page by page"),
    Operation(GetOutput, OutputPage, Role.CLIENT, True, "What a workflow emits while it runs", streams=True),
    Operation(GetEvidence, EvidenceView, Role.CLIENT, True, "What was found of an attempt that died"),
    Operation(
        ListQueues, QueueList, Role.CLIENT, True, "What each queue holds, and its limits", at_gate=AtGate.GATHERED
    ),
    Operation(
        ListWorkflows,
        WorkflowList,
        Role.CLIENT,
        True,
        "The workflows that workers serve: arguments, settings, versions",
        at_gate=AtGate.GATHERED,
    ),
    Operation(
        ListThresholds,
        ThresholdList,
        Role.CLIENT,
        True,
        "The stall thresholds of workflows: set, learned, and which holds",
        at_gate=AtGate.GATHERED,
    ),
    Operation(PauseQueue, Done, Role.OPERATOR, False, "Start nothing more from a queue", at_gate=AtGate.PASSED),
    Operation(ResumeQueue, Done, Role.OPERATOR, False, "Let a paused queue go on", at_gate=AtGate.PASSED),
    Operation(ChangeQueue, Done, Role.OPERATOR, False, "Change the limits of a queue", at_gate=AtGate.PASSED),
    Operation(
        AskOverview, Overview, Role.CLIENT, True, "How the datacenter is, and what is wrong", at_gate=AtGate.PASSED
    ),
    Operation(
        ListNodes, NodeList, Role.CLIENT, True, "Managers and workers, and how they are", at_gate=AtGate.GATHERED
    ),
    Operation(DrainNode, Done, Role.OPERATOR, False, "Give a worker no more work", at_gate=AtGate.PASSED),
    Operation(UndrainNode, Done, Role.OPERATOR, False, "Let a drained worker take work again", at_gate=AtGate.PASSED),
    Operation(
        HoldName, Done, Role.OPERATOR, False, "Say that something that attempts wait for is down", at_gate=AtGate.PASSED
    ),
    Operation(ReleaseName, Done, Role.OPERATOR, False, "Say that it is back", at_gate=AtGate.PASSED),
    Operation(
        ListDeadLetters, DeadLetterList, Role.OPERATOR, True, "Messages that were given up", at_gate=AtGate.GATHERED
    ),
    Operation(
        GetDeadLetter,
        DeadLetterView,
        Role.OPERATOR,
        True,
        "One message that was given up, with its body",
        at_gate=AtGate.PASSED,
    ),
    Operation(
        ReplayDeadLetter,
        LetterDone,
        Role.OPERATOR,
        False,
        "Put a dead letter back into its mailbox",
        at_gate=AtGate.PASSED,
    ),
    Operation(
        DiscardDeadLetter, LetterDone, Role.OPERATOR, False, "Forget a dead letter for good", at_gate=AtGate.PASSED
    ),
    Operation(AskLeader, LeaderView, Role.CLIENT, True, "Who leads, as far as this node knows"),
    Operation(
        WorkerReport,
        WorkerDirective,
        Role.WORKER,
        False,
        "What a worker runs, answered with what is wanted",
        at_gate=AtGate.REFUSED,
    ),
    Operation(
        ExtendDeadline,
        ExtensionReply,
        Role.WORKER,
        False,
        "A worker asks for time that its work has earned",
        at_gate=AtGate.REFUSED,
    ),
    Operation(
        TellDatacenter,
        DatacenterSaid,
        Role.NODE,
        False,
        "A gate's submissions, decisions and questions",
        body_bytes=MAX_SUBMISSION_BYTES,
        at_gate=AtGate.REFUSED,
    ),
    Operation(TellGate, GateHeard, Role.NODE, False, "A datacenter's reports on the jobs that a gate gave it"),
    Operation(AskDatacenter, DatacenterView, Role.NODE, True, "A gate's probe of a manager", at_gate=AtGate.REFUSED),
    Operation(AskGate, GateView, Role.CLIENT, True, "How a gate is, and what it sees of the datacenters"),
    Operation(
        Forward,
        GateView,
        Role.NODE,
        False,
        "A request that a gate passes on: to the one that leads, or to a datacenter",
    ),
    Operation(CreateToken, TokenDone, Role.OPERATOR, False, "Let a token in, on all nodes, from now on"),
    Operation(RevokeToken, TokenDone, Role.OPERATOR, False, "Let a token or a certificate in nowhere any more"),
    Operation(ListTokens, TokenList, Role.OPERATOR, True, "Tokens and certificates, and what each may do"),
    Operation(TellRevoked, TokenDone, Role.NODE, False, "A gate's list of revoked tokens", at_gate=AtGate.REFUSED),
)

BY_NAME: dict[str, Operation] = {operation.name: operation for operation in OPERATIONS}
"""By path."""

_requests = {operation.name: msgspec.json.Decoder(operation.request) for operation in OPERATIONS}
_replies = tuple(dict.fromkeys([*(operation.reply for operation in OPERATIONS), Redirect, Problem]))
_reply: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Union[_replies])  # noqa: UP007 - a union of what a table holds


def decode_request(name: str, body: bytes) -> Request:
    """The request of this name. The tag is in the path; in the body it may be left out. Raises `msgspec.DecodeError`."""
    return _requests[name].decode(body or b"{}")


def decode_reply(body: bytes) -> Reply:
    """Raises `msgspec.DecodeError` for what is no reply."""
    try:
        return cast("Reply", _reply.decode(body))
    except (UnicodeDecodeError, RecursionError) as error:  # a node that we ask must not end us with a deep answer
        raise msgspec.DecodeError(str(error)) from error

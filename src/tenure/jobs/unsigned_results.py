"""Results without a signature that fits, where managers have keys: they are refused, and an attempt that has lost its message by one is tried again.

A result that was forged leaves the message of its work where it is, and the true result still counts. A worker without the key has settled its message:
nothing will ever come for that attempt. The leader cannot tell them apart by the result, so it notes the attempt here and asks the engine for its
message. The note is in the record of the workflow: a leader that takes over goes on with it (decision 0610).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from tenure.jobs.attempt_results import RecordFailure, consequence, failed_attempt, refuse
from tenure.jobs.attempts import AttemptCommand, find, unknown
from tenure.jobs.decisions import Decides, Decision, Event, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.states import AttemptCause, Undoes, WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

SENT = (WorkflowState.QUEUED, WorkflowState.RUNNING)
"""The states in which the engine has the message of an attempt, or had it until somebody settled it."""
READ_FOR_EACH = 10
"""The records that a look reads for each attempt that it may return: some are over, or not sent yet."""
NOT_SIGNED = "its result was not signed with a key that counts, and its message is gone from the engine"


class RefuseUnsigned(AttemptCommand, frozen=True, kw_only=True):
    worker: str = ""
    delivery: int = 0
    why: str = ""


class FailUnsigned(AttemptCommand, frozen=True, kw_only=True):
    """The engine has no message of this attempt any more, and all results that were sent before that are recorded."""

    generation: int


class UnsignedRefused(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An outcome of the attempt came without a signature that fits. The leader looks whether the engine still has the message of this generation."""

    workflow: str
    attempt: int
    generation: int
    worker: str = ""
    why: str = ""

    def growth(self) -> int:
        return 30


class UnsignedIndex:
    """The workflows to follow up, and the last refusal of all. A book that is read back builds it from the records."""

    def __init__(self) -> None:
        self.noted: dict[tuple[str, str], None] = {}
        self.last: tuple[float, str, str] | None = None
        """When it was, and of which job and workflow."""

    def read(self, info: JobInfo) -> None:
        for name, workflow in info.workflows.items():
            if workflow.unsigned is not None:
                self.note(info.id, name, workflow.unsigned[1])

    def note(self, job_id: str, workflow: str, at: float) -> None:
        self.noted[job_id, workflow] = None
        if self.last is None or at >= self.last[0]:
            self.last = (at, job_id, workflow)


def is_noted(info: JobInfo, workflow: WorkflowRecord) -> bool:
    """Returns True while the attempt that counts has to be followed up."""
    note = workflow.unsigned
    return note is not None and note[0] == workflow.generation and not info.state.terminal


def to_follow_up(book: JobBook, limit: int) -> list[tuple[str, str]]:
    """Returns attempts whose message the leader has to look for, and forgets those that are over.

    What was looked at goes behind the others: work that runs for hours would else keep those behind it from their turn. Each call looks at a
    bounded number, however many a forger has had noted.
    """
    found: list[tuple[str, str]] = []
    for key in list(islice(book.unsigned.noted, READ_FOR_EACH * limit)):
        if len(found) == limit:
            break
        del book.unsigned.noted[key]
        info = book.jobs.look(key[0])
        workflow = info.workflows[key[1]] if info is not None else None
        if info is None or workflow is None or not is_noted(info, workflow) or workflow.state.terminal:
            continue
        book.unsigned.noted[key] = None
        if workflow.state in SENT:
            found.append(key)
    return found


def refuse_unsigned(book: JobBook, command: RefuseUnsigned, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    resting = workflow.state is WorkflowState.PENDING and workflow.not_before > now
    could_be = workflow.state in (*SENT, WorkflowState.PENDING) and not resting and command.attempt == workflow.attempt
    if not could_be or info.state.terminal or is_noted(info, workflow):
        return refuse(info, workflow, command, command.delivery, command.worker, (Rule.UNSIGNED, command.why), now)
    event = UnsignedRefused(
        at=now,
        by=command.worker,
        rule=Rule.UNSIGNED,
        job_id=info.id,
        workflow=command.workflow,
        attempt=command.attempt,
        generation=workflow.generation,
        worker=command.worker,
        why=command.why,
    )
    return Decision([event], Outcome.REFUSED, Rule.UNSIGNED, command.why, info.id)


def fail_unsigned(book: JobBook, command: FailUnsigned, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if not is_noted(info, workflow) or workflow.generation != command.generation or workflow.state not in SENT:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, f"it is {workflow.state}", info.id)
    ran_on = workflow.worker if workflow.state is WorkflowState.RUNNING else ""
    # Nobody can say what the attempt registered: the word of its worker is not believed.
    said = RecordFailure(
        by=command.by,
        job_id=info.id,
        workflow=command.workflow,
        attempt=command.attempt,
        cause=AttemptCause.ERROR,
        worker=ran_on,
        error=NOT_SIGNED,
        undoes=Undoes.UNKNOWN,
    )
    # Another worker may have the key. The one that ran it is known by its reports; the name in a result that is not signed may be any.
    failed = msgspec.structs.replace(
        failed_attempt(book, workflow, said, now), rule=Rule.UNSIGNED, exclude=bool(ran_on)
    )
    events: list[Event] = [failed]
    if ended := consequence(info, workflow, failed):
        events.append(ended)
    return Decision(events, Outcome.ACCEPTED, Rule.UNSIGNED, "", info.id)


def unsigned_refused(book: JobBook, event: UnsignedRefused) -> None:
    info = book.jobs.get(event.job_id)
    if info is not None and event.workflow in info.workflows:
        info.workflows[event.workflow].unsigned = (event.generation, event.at)
        book.unsigned.note(event.job_id, event.workflow, event.at)


DECIDE: Decides = {RefuseUnsigned: refuse_unsigned, FailUnsigned: fail_unsigned}
FOLD: Folds = {UnsignedRefused: unsigned_refused}

"""Results that go on: from a finished workflow to those that come after it, and from an ended job to the one that repeats it.

`check_result` limits the results that the journal takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.attempt_data import HandedResult
from tenure.errors import LimitError
from tenure.jobs.attempts import move
from tenure.jobs.model import JobInfo, WorkflowRecord, WorkflowSpec
from tenure.jobs.settings import LIMITS
from tenure.jobs.states import WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.submission import JobSubmitted


def check_result(workflow: str, result: Any) -> None:
    """Raises `LimitError` for a result that is too large for the journal. It belongs into the store, and its key into the journal."""
    if result is None:
        return
    size = len(msgspec.json.encode(result))
    if size > LIMITS.max_result_bytes:
        raise LimitError(
            f"result of {workflow!r}",
            f"{size:,} bytes",
            f"at most {LIMITS.max_result_bytes:,} bytes",
            remedy="Put it into the store, and record its key",
        )


def handed_result(info: JobInfo, name: str) -> HandedResult:
    """Returns the outcome of a finished workflow, as one that comes after it gets it."""
    one = info.workflows[name]
    made_by, function = one.taken_from or info.id, one.spec.called if one.spec.called != name else ""
    if one.state is not WorkflowState.COMPLETED:
        return HandedResult(job_id=made_by, function=function, error=f"{one.state}: {one.error}"[:1_000])
    return HandedResult(job_id=made_by, function=function, attempt=one.attempt, result=one.result, key=one.result_key)


def first_record(spec: WorkflowSpec, event: JobSubmitted, *, by_workflow: bool) -> WorkflowRecord:
    """Returns the record of a new workflow. One whose result was taken over begins where it ended."""
    one, at = event.taken.get(spec.name), event.at
    if one is None:
        # From its second generation on, work looks for steps in the store: so one that takes over steps begins there.
        return WorkflowRecord(spec=spec, by_workflow=by_workflow, withdrawn=int(spec.name in event.forked))
    return WorkflowRecord(
        spec=spec,
        state=WorkflowState.COMPLETED,
        attempt=one.attempt,
        ended_at=at,
        result=one.result,
        result_key=one.key,
        taken_from=one.job_id,
        by_workflow=by_workflow,
    )


def release_followers(book: JobBook, info: JobInfo, at: float) -> None:
    """Makes each waiting workflow pending when all workflows that it comes after have ended."""
    if not info.waiting_workflows:
        return
    for workflow in info.workflows.values():
        if workflow.state is WorkflowState.WAITING and all(
            info.workflows[name].state.terminal for name in workflow.spec.after
        ):
            workflow.not_before = at
            move(book, info, workflow, WorkflowState.PENDING)


def flow_words(info: JobInfo) -> str:
    """Returns which results a job took over from the one that it repeats, and which workflows get the results of others."""
    taken = [name for name, one in info.workflows.items() if one.taken_from]
    text = f"; {listed(taken)} not run again: the results are those of {info.job.submission.retry_of}" if taken else ""
    if step := info.job.submission.retry_from:
        text += f"; it begins again from step {step!r} of job {info.job.submission.retry_of}, with the results of the steps before it"
    for spec in info.job.submission.workflows[:5]:
        if spec.after:
            text += f"; {spec.name} gets what {listed(spec.after)} returned"
    return text


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

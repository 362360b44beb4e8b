"""Results that go on: from a finished workflow to those that come after it, and from an ended job to the one that repeats it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenure.jobs.model import JobInfo, WorkflowRecord, WorkflowSpec
from tenure.jobs.states import WorkflowState
from tenure.values import HandedResult


def handed_result(info: JobInfo, name: str) -> HandedResult:
    """Returns the outcome of a finished workflow, as one that comes after it gets it."""
    one = info.workflows[name]
    made_by, function = one.taken_from or info.id, one.spec.called if one.spec.called != name else ""
    if one.state is not WorkflowState.COMPLETED:
        return HandedResult(job_id=made_by, function=function, error=f"{one.state}: {one.error}"[:1_000])
    return HandedResult(job_id=made_by, function=function, attempt=one.attempt, result=one.result, key=one.result_key)


def first_record(
    spec: WorkflowSpec, taken: Mapping[str, HandedResult], at: float, *, by_workflow: bool
) -> WorkflowRecord:
    """Returns the record of a new workflow. One whose result was taken over begins where it ended."""
    one = taken.get(spec.name)
    if one is None:
        return WorkflowRecord(spec=spec, by_workflow=by_workflow)
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


def flow_words(info: JobInfo) -> str:
    """Returns which results a job took over from the one that it repeats, and which workflows get the results of others."""
    taken = [name for name, one in info.workflows.items() if one.taken_from]
    text = f"; {listed(taken)} not run again: the results are those of {info.job.submission.retry_of}" if taken else ""
    for spec in info.job.submission.workflows[:5]:
        if spec.after:
            text += f"; {spec.name} gets what {listed(spec.after)} returned"
    return text


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

"""The shapes of signals: what the author of a workflow declared for each, off the journaled catalogue, and whether a payload fits it.

A signal that nobody declared may hold anything. One that a codec encoded is checked by the worker that opens it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.codec import is_sealed
from tenure.errors import ArgumentsError
from tenure.jobs.door import faults, versions_of
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.states import WorkflowState
from tenure.served_workflow import ServedWorkflow

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

PAYLOAD = "payload"
Shape = dict[str, Any]
"""A JSON Schema with one property, `payload`."""


def shape_of_wait(book: JobBook, workflow: WorkflowRecord, now: float) -> Shape | None:
    """Returns the shape of the signal that suspended work waits for; None where it waits for none, or nobody declared it."""
    if workflow.state is not WorkflowState.SUSPENDED or workflow.waits is None or not workflow.waits.event:
        return None
    return next(iter(_shapes(book, workflow, workflow.waits.event, now)), None)


def check_payload(book: JobBook, info: JobInfo, name: str, payload: Any, now: float) -> None:
    """Raises `ArgumentsError` for a payload that fits none of the types which the open workflows of the job declare for this signal."""
    if is_sealed(payload):
        return
    wrong = ""
    for workflow in info.workflows.values():
        for shape in _shapes(book, workflow, name, now) if not workflow.state.terminal else ():
            fault = next(faults({PAYLOAD: payload}, shape), "")
            if not fault:
                return
            wrong = wrong or fault
    if wrong:
        raise ArgumentsError(
            f"signal {name!r} does not fit: {wrong.replace('argument', 'field', 1)}",
            remedy=f"`tenure workflows {next(iter(info.workflows.values())).spec.called} --json` shows its schema",
        )


def _shapes(book: JobBook, workflow: WorkflowRecord, name: str, now: float) -> list[Shape]:
    """Returns what the versions that may go on with the work declare for a signal, the newest first."""
    found = [book.state.schemas.get(one.signals_schema) for one in _versions(book, workflow, now)]
    return [
        {**one, "required": [PAYLOAD], "properties": {PAYLOAD: one["properties"][name]}}
        for one in found
        if one is not None and name in one.get("properties", {})
    ]


def _versions(book: JobBook, workflow: WorkflowRecord, now: float) -> list[ServedWorkflow]:
    version = workflow.version
    known = versions_of(book, workflow.spec.called, now).values()
    return [one for one in known if version in ("", one.version, *one.compatible_with)]

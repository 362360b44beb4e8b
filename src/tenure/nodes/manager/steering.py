"""Turns a request that acts on a running job into the command of a datacenter's leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.control.messages.jobs import (
    MoveRunningJob,
    PauseRunningJob,
    ResumePausedJob,
    SignalJob,
    SteeringRequest,
)
from tenure.errors import ConfigurationError
from tenure.jobs import JobBook
from tenure.jobs.book import lane_of
from tenure.jobs.mailbox_names import mailbox_name
from tenure.jobs.model import WorkflowRecord
from tenure.jobs.states import WorkflowState
from tenure.jobs.steering import MoveJob, PauseJob, ResumeJob, RetimeJob
from tenure.jobs.waits import SendSignal

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager

SteeringCommand = PauseJob | ResumeJob | RetimeJob | MoveJob


def command_of(request: SteeringRequest) -> SteeringCommand | SendSignal:
    if isinstance(request, PauseRunningJob):
        return PauseJob(by=request.by, job_id=request.job_id, reason=request.reason)
    if isinstance(request, ResumePausedJob):
        return ResumeJob(by=request.by, job_id=request.job_id, reason=request.reason)
    if isinstance(request, MoveRunningJob):
        return MoveJob(by=request.by, job_id=request.job_id, workflow=request.workflow, reason=request.reason)
    if isinstance(request, SignalJob):
        return SendSignal(
            by=request.by,
            job_id=request.job_id,
            name=request.name,
            signal_id=request.signal_id,
            payload=request.payload,
        )
    return RetimeJob(
        by=request.by,
        job_id=request.job_id,
        timeout_seconds=request.timeout_seconds,
        add_s=request.add_s,
        reason=request.reason,
    )


def check_goal(manager: Manager, request: SteeringRequest) -> None:
    """Raises `ConfigurationError` for a move when no other worker could take the work: it would only begin again where it is."""
    if not isinstance(request, MoveRunningJob):
        return
    for name, worker, able in running_on(manager, manager.ledger.book, request):
        if not able - {worker}:
            raise ConfigurationError(
                f"{name!r} of job {request.job_id!r} cannot leave {worker}: no other worker that takes work serves it",
                remedy="Start another worker, or undrain one (tenure nodes), then move it",
            )


def running_on(manager: Manager, book: JobBook, request: MoveRunningJob) -> list[tuple[str, str, set[str]]]:
    """Returns (workflow, worker, the workers that could do it) for everything that the request moves."""
    info = book.jobs.get(request.job_id)
    fleet, found = manager.worker_reports.fleet, []
    for name, one in info.workflows.items() if info is not None else ():
        if one.state is not WorkflowState.RUNNING or request.workflow not in ("", name):
            continue
        assert info is not None
        able = {worker for worker in fleet.able(mailbox_name(*lane_of(info))) if serves(book, worker, one)}
        found.append((name, one.worker, able))
    return found


def serves(book: JobBook, worker: str, workflow: WorkflowRecord) -> bool:
    """Returns True when a worker registered this workflow. One that registered nothing, as those of the first release, may serve anything."""
    known = book.state.registered.get(worker)
    offer = book.state.offers.get(known.offer) if known is not None else None
    if offer is None:
        return True
    offered, wanted = (*offer.workflows, *offer.takes_over), workflow.version
    return any(name == workflow.spec.called and wanted in ("", version) for name, version in offered)

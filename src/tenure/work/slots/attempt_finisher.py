"""Finishes an attempt inside its slot: ends the processes that it started, keeps its log, and settles its outcome."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenure.beat.board import Phase
from tenure.engines.contracts import Message, Store
from tenure.errors import TenureError
from tenure.work.envelope import WorkItem, WorkResult
from tenure.work.registry import Registry, Workflow
from tenure.work.slots.attempt import Attempt, describe_error, failure_of_tenure, unstarted_result
from tenure.work.slots.attempt_logs import AttemptLogHandler, keep_log, log_key
from tenure.work.slots.settler import ONCE, Settler
from tenure.work.slots.started_processes import StartedProcesses


class AttemptFinisher:
    """Finishes attempts; safe to use from several threads. It catches the errors of one attempt, so that they do not end the slot."""

    def __init__(
        self,
        settler: Settler,
        logs: Store,
        log_handler: AttemptLogHandler,
        processes: StartedProcesses,
        registry: Registry,
        *,
        folder: Path,
        worker: str,
        trouble: Callable[[str], None],
    ) -> None:
        self._settler, self._logs, self._log_handler = settler, logs, log_handler
        self._processes, self._registry = processes, registry
        self._folder, self._worker, self._trouble = folder, worker, trouble
        self._pid = os.getpid()

    def conclude(self, attempt: Attempt, result: WorkResult) -> None:
        """Settles the outcome. The record stays occupied until then, so that the supervisor sees a kill in between."""
        if os.getpid() != self._pid:
            os._exit(0)  # a process that the workflow forked returned to here; only its parent may settle the outcome
        attempt.record.set_phase(Phase.SETTLING)
        self.end_processes(attempt)
        # The supervisor has extended the lease since the claim. The settler stops trying when it is over.
        attempt.message.lease_until = max(attempt.message.lease_until, attempt.record.lease_until)
        self._keep_log(attempt)
        try:
            self._settle(attempt.message, result, attempt.workflow, lease_until=lambda: attempt.record.lease_until)
        except TenureError as error:
            self._trouble(f"the outcome of {attempt.occupant.workflow} could not be settled: {error}")
        finally:
            attempt.record.count_end(ok=result.ok)

    def end_processes(self, attempt: Attempt) -> None:
        """Ends the processes that this attempt started. This comes before the outcome: the next attempt must not meet them."""
        occupant = attempt.occupant
        try:
            ended = self._processes.end(attempt.record.index)
        except OSError as error:  # of /proc: a workflow may have used up all file descriptors
            self._trouble(f"the processes of {occupant.workflow} could not be looked at: {error}")
            return
        if ended:
            self._trouble(f"{occupant.workflow} ({occupant.job}) left {ended} processes behind: ended")

    def fail_alone(self, message: Message[WorkItem, WorkResult], error: Exception) -> None:
        """Fails one message on which Tenure itself raised an error. Nothing else ends with it."""
        item, failure = message.body, failure_of_tenure(error)
        trace = failure.evidence.get("traceback", "")
        self._trouble(f"failed on {item.workflow[:200]!r}: {failure.reason}\n{trace[-4_000:]}")
        known = self._registry.knows(item.workflow, item.version)
        workflow = self._registry.find(item.workflow, item.version) if known else None
        try:
            self._settle(message, unstarted_result(message, self._worker, failure), workflow)
        except Exception as again:  # then the lease runs out, and the engine counts it
            self._trouble(f"and could not settle it: {describe_error(again)}")

    def _keep_log(self, attempt: Attempt) -> None:
        occupant, name = attempt.occupant, attempt.item.workflow_id or attempt.item.workflow
        try:
            self._log_handler.end(attempt.handle)
            key = log_key(occupant.job, name, occupant.attempt)
            keep_log(self._logs, self._folder, attempt.record.index, key=key, fence=attempt.message.fence)
        except TenureError as error:
            self._trouble(f"the log of {occupant.workflow} was not kept: {error}")

    def _settle(
        self,
        message: Message[WorkItem, WorkResult],
        result: WorkResult,
        workflow: Workflow[..., Any] | None,
        lease_until: Callable[[], float] | None = None,
    ) -> None:
        self._settler.settle(
            message,
            result,
            managed=message.body.managed,
            retry=workflow.retry if workflow else ONCE,
            lease_until=lease_until,
        )

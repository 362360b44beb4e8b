"""A backend of `django.tasks`: each task is a workflow of Tenure, named by its module path, and each enqueued call a job.

A call inside `transaction.atomic` becomes a job when the transaction commits. By default that is a request to a manager, made after the
commit; with the option `DATABASE` it is a row of the same transaction (`submit_in`), so that no crash can come between the two.

The names of `django.tasks` are from Django 6, or from the package django-tasks, which is the same for Django 5.2.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

from django.db import connections, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from tenure.client.client import Client
from tenure.client.transactions import submit_in
from tenure.control.messages.jobs import JobView
from tenure.errors import ConfigurationError, UnknownJobError
from tenure.jobs.states import JobState
from tenure.randomness import new_id


def _found(*places: str) -> Any:
    for place in places:
        try:
            return import_string(place)
        except ImportError:
            continue
    raise ConfigurationError(
        f"there is no {places[0]}", remedy="Use Django 6, or install django-tasks (pip install 'tenure[django]')"
    )


BaseTaskBackend: Any = _found(
    "django.tasks.backends.base.BaseTaskBackend", "django_tasks.backends.base.BaseTaskBackend"
)
Task: Any = _found("django.tasks.base.Task", "django_tasks.base.Task")
TaskContext: Any = _found("django.tasks.base.TaskContext", "django_tasks.base.TaskContext")
TaskError: Any = _found("django.tasks.base.TaskError", "django_tasks.base.TaskError")
TaskResult: Any = _found("django.tasks.base.TaskResult", "django_tasks.base.TaskResult")
TaskResultStatus: Any = _found("django.tasks.base.TaskResultStatus", "django_tasks.base.TaskResultStatus")
TaskResultDoesNotExist: Any = _found(
    "django.tasks.exceptions.TaskResultDoesNotExist", "django_tasks.exceptions.TaskResultDoesNotExist"
)
normalize_json: Any = _found("django.utils.json.normalize_json", "django_tasks.utils.normalize_json")
task_backends: Any = _found("django.tasks.task_backends", "django_tasks.task_backends")
task_enqueued: Any = _found("django.tasks.signals.task_enqueued", "django_tasks.signals.task_enqueued")
task_started: Any = _found("django.tasks.signals.task_started", "django_tasks.signals.task_started")
task_finished: Any = _found("django.tasks.signals.task_finished", "django_tasks.signals.task_finished")


OPTIONS = frozenset({"ADDRESSES", "TOKEN", "DATABASE", "SCHEMA", "DASHBOARD", "ENGINE", "MODULES", "SUBMIT"})
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_STATES = {
    JobState.PENDING: TaskResultStatus.READY,
    JobState.RUNNING: TaskResultStatus.RUNNING,
    JobState.COMPLETED: TaskResultStatus.SUCCESSFUL,
}


class TenureBackend(BaseTaskBackend):
    """`OPTIONS`: ADDRESSES and TOKEN of the managers; DATABASE, the alias whose database has the engine, to submit in its transactions (with
    SCHEMA on PostgreSQL); DASHBOARD, the address for links; ENGINE and MODULES for the worker; SUBMIT, options of every submission."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        unknown = sorted(set(self.options) - OPTIONS)
        if unknown:
            raise ConfigurationError(
                f"TASKS[{alias!r}]['OPTIONS'] has {unknown[0]!r}", remedy=f"Options are: {', '.join(sorted(OPTIONS))}"
            )

    @cached_property
    def client(self) -> Client:
        """The client of this process. It connects when it is first asked for something, and threads may share it."""
        return Client(self.options.get("ADDRESSES", "127.0.0.1:8470"), token=self.options.get("TOKEN", ""))

    @property
    def database(self) -> str | None:
        found: str | None = self.options.get("DATABASE")
        return found

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id=f"task-{new_id()[:24]}",
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        arguments = {"args": result.args, "kwargs": result.kwargs}
        options = {**self.options.get("SUBMIT", {}), **self._options_of(task), "job_id": result.id}
        if self.database is not None:
            submit_in(
                connections[self.database],
                task.module_path,
                arguments,
                schema=self.options.get("SCHEMA", "tenure"),
                **options,
            )
        else:
            # Runs at once where no transaction is open. The id is chosen already, so a request that is repeated is one job.
            transaction.on_commit(partial(self.client.submit, task.module_path, arguments, **options))
        task_enqueued.send(type(self), task_result=result)
        return result

    def _options_of(self, task: Any) -> dict[str, Any]:
        # Workers serve a few priorities, one mailbox each; 201 of them would be 201 mailboxes to look at.
        priority = (task.priority > 0) - (task.priority < 0)
        wait = (task.run_after - timezone.now()).total_seconds() if task.run_after is not None else 0.0
        # A task is a function that exists: its worker may start later than the first call.
        options: dict[str, Any] = {"queue": task.queue_name, "priority": priority, "park": True, "name": task.name}
        return options | ({"delay": wait} if wait > 0 else {})

    def get_result(self, result_id: str) -> Any:
        try:
            view = self.client.job(result_id)
        except UnknownJobError as error:
            raise TaskResultDoesNotExist(result_id) from error
        return self.result_of(view)

    def result_of(self, view: JobView) -> Any:
        """Returns a job as a task's result. Its arguments are as Tenure shows them: secrets are masked, and long values are cut."""
        (work,) = view.workflows
        status = _STATES.get(view.state, TaskResultStatus.FAILED)
        started = _moment(work.started_at or view.started_at)
        result = TaskResult(
            task=import_string(work.function),
            id=view.job_id,
            status=status,
            enqueued_at=_moment(view.submitted_at),
            started_at=_moment(view.started_at),
            finished_at=_moment(view.ended_at),
            last_attempted_at=started,
            args=list(work.arguments.get("args") or ()),
            kwargs=dict(work.arguments.get("kwargs") or {}),
            backend=self.alias,
            errors=[self._error_of(view)] if status == TaskResultStatus.FAILED else [],
            worker_ids=[work.worker] * work.attempt,
        )
        # The result is frozen, and its constructor does not take this value: the backends of django.tasks set it so, too.
        object.__setattr__(result, "_return_value", work.result)
        return result

    def _error_of(self, view: JobView) -> Any:
        found = self.client.evidence(view.job_id).evidence
        trace = found.traceback if found is not None else ""
        raised = _RAISED.findall(trace)
        path = raised[-1] if raised else "tenure.errors.JobFailed"
        if "." not in path:
            path = f"builtins.{path}" if hasattr(builtins, path) else "tenure.errors.JobFailed"
        return TaskError(exception_class_path=path, traceback=trace or view.reason)


def _moment(seconds: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, tz=UTC) if seconds else None


def plain_result(value: Any) -> Any:
    """Returns what a task returned as plain JSON. Raises `TypeError` for what JSON does not have."""
    return normalize_json(value)

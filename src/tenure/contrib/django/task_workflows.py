"""The tasks of a Django project as workflows: `tenure worker tenure.contrib.django.task_workflows`, or `manage.py tenure_worker`.

Importing this sets Django up, imports `tasks.py` of every installed application and the modules of the option `MODULES`, and marks each
task that it finds there. A task beats through `tenure.current()`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import django
from django.apps import apps
from django.db import close_old_connections
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from tenure.contrib.django.backend import (
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    TenureBackend,
    plain_result,
    task_backends,
    task_finished,
    task_started,
)
from tenure.work.context import Context
from tenure.work.registry import Workflow, workflow


def found_tasks() -> list[Any]:
    """Returns the tasks of all imported modules whose backend is ours, in the order of their paths."""
    autodiscover_modules("tasks")
    for backend in ours():
        for name in backend.options.get("MODULES", ()):
            import_module(name)
    values = [
        value for module in list(sys.modules.values()) for value in list(getattr(module, "__dict__", {}).values())
    ]
    # `type`, because isinstance asks an object for its class, and Django's lazy objects then set themselves up.
    tasks = {one.module_path: one for one in values if issubclass(type(one), Task) and one.get_backend() in ours()}
    return [tasks[path] for path in sorted(tasks)]


def ours() -> list[TenureBackend]:
    return [one for one in task_backends.all() if isinstance(one, TenureBackend)]


def workflow_of(task: Any) -> Workflow[..., Any]:
    """Returns a workflow that calls a task as `django.tasks` says: with its context where it takes one, and its signals sent."""

    def run(ctx: Context, args: list[Any] | None = None, kwargs: dict[str, Any] | None = None) -> Any:
        args, kwargs = args or [], kwargs or {}  # a schedule of a task without parameters names neither
        close_old_connections()  # one that timed out while this slot had nothing to do
        result = _running(ctx, task, args, kwargs)
        task_started.send(TenureBackend, task_result=result)
        status = TaskResultStatus.FAILED
        try:
            first = (TaskContext(task_result=result),) if task.takes_context else ()
            value = plain_result(task.call(*first, *args, **kwargs))
            status = TaskResultStatus.SUCCESSFUL
            return value
        finally:
            object.__setattr__(result, "status", status)
            object.__setattr__(result, "finished_at", timezone.now())
            task_finished.send(TenureBackend, task_result=result)
            close_old_connections()

    run.__doc__ = task.func.__doc__
    mark: Callable[..., Workflow[..., Any]] = workflow(name=task.module_path)
    return mark(run)


def _running(ctx: Context, task: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    now = timezone.now()
    return TaskResult(
        task=task,
        id=ctx.job,
        status=TaskResultStatus.RUNNING,
        enqueued_at=None,
        started_at=now,
        finished_at=None,
        last_attempted_at=now,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=["this worker"] * ctx.attempt,
    )


if not apps.ready:
    django.setup()
globals().update({f"workflow of {task.module_path}": workflow_of(task) for task in found_tasks()})

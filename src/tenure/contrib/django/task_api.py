"""The names of `django.tasks`, from Django 6 or from the package django-tasks, which is the same for Django 5.2."""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string

from tenure.errors import ConfigurationError


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

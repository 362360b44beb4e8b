"""`manage.py tenure_worker`: a worker for the project's tasks."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tenure.contrib.django.jobs import backend


class WorkerCommand(BaseCommand):
    help = "Serve the project's tasks, and the workflows of MODULE where given."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("modules", nargs="*", metavar="MODULE", help="modules with workflows of their own")
        parser.add_argument("--engine", default="", help="the engine's URL; or OPTIONS['ENGINE'], or TENURE_ENGINE")
        parser.add_argument("--backend", default=None, help="the alias in TASKS")
        parser.add_argument("--slots", type=int, default=None)

    def handle(self, *args: Any, **options: Any) -> None:
        command = worker_command(options)
        os.execvp(command[0], command)  # noqa: S606  signals reach the worker itself, and systemd sees one process


def worker_command(options: dict[str, Any]) -> list[str]:
    """Returns the command line of the worker. Raises `CommandError` without an engine."""
    found = backend(options["backend"])
    engine = options["engine"] or found.options.get("ENGINE") or os.environ.get("TENURE_ENGINE", "")
    if not engine:
        raise CommandError("no engine is named: give --engine, OPTIONS['ENGINE'] in TASKS, or TENURE_ENGINE")
    os.environ["TENURE_ENGINE"] = (
        engine  # not on the command line: it may hold a password, and everybody may list processes
    )
    if token := found.options.get("TOKEN"):
        os.environ["TENURE_TOKEN"] = token
    command = [sys.executable, "-m", "tenure", "worker", "tenure.contrib.django.task_workflows", *options["modules"]]
    command += ["--managed", *(part for queue in sorted(found.queues) for part in ("--queue", queue))]
    command += [part for priority in ("1", "0", "-1") for part in ("--priority", priority)]
    return command + (["--slots", str(options["slots"])] if options["slots"] else [])


Command = WorkerCommand  # the name that Django looks for

"""`manage.py tenure ps`: every command of `tenure`, for the managers that the settings name."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand

from tenure.contrib.django.jobs import backend


class TenureCommand(BaseCommand):
    help = "Run a command of tenure (ps, why JOB, logs JOB, cancel JOB, ...) for the managers in TASKS."

    def run_from_argv(self, argv: list[str]) -> None:
        """Passes everything on as it is: these are not Django's options."""
        self._call(argv[2:], standalone=True)

    def handle(self, *args: Any, **options: Any) -> None:
        self._call(list(args), standalone=False)

    def _call(self, arguments: list[str], *, standalone: bool) -> None:
        from tenure.cli.root import tenure

        options = backend().options
        addresses = options.get("ADDRESSES", "127.0.0.1:8470")
        os.environ.setdefault("TENURE_ADDRESS", addresses if isinstance(addresses, str) else ",".join(addresses))
        if token := options.get("TOKEN"):
            os.environ.setdefault("TENURE_TOKEN", token)
        tenure(arguments, standalone_mode=standalone)


Command = TenureCommand  # the name that Django looks for

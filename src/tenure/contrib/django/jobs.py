"""Workflows of Tenure from a Django project: submitted on commit, linked to from a page."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from django.db import transaction

from tenure.contrib.django.backend import TenureBackend, task_backends
from tenure.errors import ConfigurationError
from tenure.randomness import new_id
from tenure.work.job_submission import Target, name_of


def backend(alias: str | None = None) -> TenureBackend:
    """Returns the backend of TASKS that is ours, or the one of that alias."""
    found = [task_backends[alias]] if alias else [one for one in task_backends.all() if isinstance(one, TenureBackend)]
    if not found or not isinstance(found[0], TenureBackend):
        raise ConfigurationError(
            "no backend in TASKS is Tenure's",
            remedy="Write TASKS = {'default': {'BACKEND': 'tenure.contrib.django.backend.TenureBackend'}}",
        )
    return found[0]


def submit_on_commit(
    workflow: Target,
    arguments: Mapping[str, Any] | None = None,
    /,
    *,
    using: str | None = None,
    **options_and_arguments: Any,
) -> str:
    """Submits a workflow when the open transaction of the database `using` commits, or at once without one. Returns the id of the job.

    After the commit this is a request, which a crash can prevent. `tenure.submit_in(connection, ...)` is part of the transaction.
    """
    job_id = options_and_arguments.pop("job_id", "") or f"{name_of(workflow)[:60]}-{new_id()[:16]}"
    client = backend().client
    transaction.on_commit(
        partial(client.submit, workflow, arguments, job_id=job_id, **options_and_arguments), using=using
    )
    return job_id


def job_url(job_id: str) -> str:
    """Returns the address of a job's page on the dashboard: of the option DASHBOARD, or of the first manager."""
    options = backend().options
    addresses = options.get("ADDRESSES", "127.0.0.1:8470")
    first = addresses.split(",")[0] if isinstance(addresses, str) else addresses[0]
    root = options.get("DASHBOARD") or (first if "://" in first else f"http://{first}")
    return f"{root.rstrip('/')}/#/job/{quote(job_id, safe='')}"

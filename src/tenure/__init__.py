"""Tenure: long jobs that get time only while they prove that they advance."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # not typing's own: to import typing takes ten times as long as the rest of this
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tenure._version import __version__ as __version__
    from tenure.backoff import Retry as Retry
    from tenure.client.async_client import AsyncClient as AsyncClient
    from tenure.client.client import Client as Client
    from tenure.client.job import Job as Job
    from tenure.client.transactions import submit_in as submit_in
    from tenure.client.transactions import submit_in_async as submit_in_async
    from tenure.codec import Codec as Codec
    from tenure.errors import JobFailed as JobFailed
    from tenure.errors import JobsFailed as JobsFailed
    from tenure.errors import Permanent as Permanent
    from tenure.errors import RetryAfter as RetryAfter
    from tenure.local.embedded import embedded as embedded
    from tenure.served_workflow import Secret as Secret
    from tenure.work.context import AsyncContext as AsyncContext
    from tenure.work.context import Context as Context
    from tenure.work.context import current as current
    from tenure.work.middleware import hook as hook
    from tenure.work.middleware import injected as injected
    from tenure.work.middleware import middleware as middleware
    from tenure.work.middleware import resource as resource
    from tenure.work.registry import workflow as workflow
    from tenure.work.step_calls import step as step

__all__ = [
    "AsyncClient",
    "AsyncContext",
    "Client",
    "Codec",
    "Context",
    "Job",
    "JobFailed",
    "JobsFailed",
    "Permanent",
    "Retry",
    "RetryAfter",
    "Secret",
    "__version__",
    "current",
    "days",
    "embedded",
    "hook",
    "hours",
    "injected",
    "middleware",
    "minutes",
    "resource",
    "seconds",
    "step",
    "submit_in",
    "submit_in_async",
    "workflow",
]

# Spans of time as people say them: `timeout=hours(6)`. Everything that takes a span takes seconds.


def seconds(count: float) -> float:
    """Returns so many seconds."""
    return float(count)


def minutes(count: float) -> float:
    """Returns so many minutes, in seconds."""
    return count * 60.0


def hours(count: float) -> float:
    """Returns so many hours, in seconds."""
    return count * 3_600.0


def days(count: float) -> float:
    """Returns so many days, in seconds."""
    return count * 86_400.0


def lazy_names(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a module-level `__getattr__` for a package: `where` maps a module below it, or one of `tenure.…`, to the names that it brings.

    They are imported when they are first asked for, so that `import tenure` and a slot's start cost little. They are also the package's `__all__`.
    """
    homes = {
        name: module if module.startswith("tenure.") else f"{package}.{module}"
        for module, names in where.items()
        for name in names.split()
    }
    vars(sys.modules[package]).setdefault("__all__", list(homes))

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError:
            from tenure.machine import posix_module  # says where it would work; another missing module is raised again

            return getattr(posix_module(homes[name], f"{package}.{name}"), name)

    return find


__getattr__ = lazy_names(
    __name__,
    {
        "_version": "__version__",
        "backoff": "Retry",
        "codec": "Codec",
        "errors": "JobFailed JobsFailed Permanent RetryAfter",
        "local.embedded": "embedded",
        "client.async_client": "AsyncClient",
        "client.client": "Client",
        "client.transactions": "submit_in submit_in_async",
        "client.job": "Job",
        "work.context": "AsyncContext Context current",
        "work.middleware": "hook injected middleware resource",
        "served_workflow": "Secret",
        "work.registry": "workflow",
        "work.step_calls": "step",
    },
)

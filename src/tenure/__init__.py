"""Tenure: long jobs that get time only while they prove that they advance."""

from tenure.lazy import lazy_names

TYPE_CHECKING = False  # not typing's own: to import typing takes ten times as long as the rest of this
if TYPE_CHECKING:
    from tenure.backoff import Retry as Retry
    from tenure.client.async_client import AsyncClient as AsyncClient
    from tenure.client.client import Client as Client
    from tenure.client.job import Job as Job
    from tenure.durations import days as days
    from tenure.durations import hours as hours
    from tenure.durations import minutes as minutes
    from tenure.durations import seconds as seconds
    from tenure.errors import JobFailed as JobFailed
    from tenure.errors import JobsFailed as JobsFailed
    from tenure.local.embedded import embedded as embedded
    from tenure.work.context import AsyncContext as AsyncContext
    from tenure.work.context import Context as Context
    from tenure.work.context import current as current
    from tenure.work.registry import workflow as workflow

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncContext",
    "Client",
    "Context",
    "Job",
    "JobFailed",
    "JobsFailed",
    "Retry",
    "__version__",
    "current",
    "days",
    "embedded",
    "hours",
    "minutes",
    "seconds",
    "workflow",
]

__getattr__ = lazy_names(
    __name__,
    {
        "backoff": "Retry",
        "durations": "days hours minutes seconds",
        "errors": "JobFailed JobsFailed",
        "local.embedded": "embedded",
        "client.async_client": "AsyncClient",
        "client.client": "Client",
        "client.job": "Job",
        "work.context": "AsyncContext Context current",
        "work.registry": "workflow",
    },
)

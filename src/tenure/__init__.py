"""Tenure: long jobs that get time only while they prove that they advance."""

from typing import TYPE_CHECKING

from tenure.lazy import lazy_names

if TYPE_CHECKING:
    from tenure.work.context import AsyncContext as AsyncContext
    from tenure.work.context import Context as Context
    from tenure.work.context import current as current
    from tenure.work.registry import workflow as workflow
    from tenure.work.retry import Retry as Retry

__version__ = "0.1.0"

__all__ = ["AsyncContext", "Context", "Retry", "__version__", "current", "workflow"]

__getattr__ = lazy_names(
    __name__,
    {
        "work.context": "AsyncContext Context current",
        "work.registry": "workflow",
        "work.retry": "Retry",
    },
)

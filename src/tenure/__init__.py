"""Tenure: long jobs that get time only while they prove that they advance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.work.context import AsyncContext as AsyncContext
    from tenure.work.context import Context as Context
    from tenure.work.context import current as current
    from tenure.work.registry import workflow as workflow
    from tenure.work.retry import Retry as Retry

__version__ = "0.1.0"

__all__ = ["AsyncContext", "Context", "Retry", "__version__", "current", "workflow"]

# name: module. Imported when first asked for, so that `import tenure` costs next to nothing.
_WHERE = {
    "AsyncContext": "tenure.work.context",
    "Context": "tenure.work.context",
    "current": "tenure.work.context",
    "workflow": "tenure.work.registry",
    "Retry": "tenure.work.retry",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'tenure' has no attribute {name!r}")

"""The protocol of whatever knows the type of a job's result."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ResultDecoder(Protocol):
    """Decodes results, as a `Workflow` does by the annotation of its function."""

    def decode_result(self, value: Any) -> Any: ...

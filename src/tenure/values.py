"""Results on their way from one workflow to the next, as plain data: inside a message, or by their key in the engine's store.

Leaders make them, workers read them. This file knows neither engines nor codecs.
"""

from __future__ import annotations

from typing import Any

import msgspec

RESULTS_STORE = "results"
"""The store of an engine that keeps results which are too large for the journal."""
MAX_INLINE_BYTES = 65_536
"""The bytes of all results that one message of work, or one journaled submission, carries. Beyond it all of them go by their keys."""


class HandedResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a finished workflow, for a workflow that comes after it, and for a job that repeats its job."""

    job_id: str
    """The job whose attempt made the result. It is part of what a codec sealed."""
    function: str = ""
    """The function that made it; empty where the workflow has its name."""
    attempt: int = 1
    result: Any = None
    key: str = ""
    """The key of the result in the store; empty where it is in `result`."""
    error: str = ""
    """Says why there is no result; empty for a workflow that completed."""


def result_key(job_id: str, workflow: str, attempt: int) -> str:
    """Returns the key of a result in the store. A workflow's name has no slash, so keys of different jobs never meet."""
    return f"{job_id}/{workflow}/{attempt}"

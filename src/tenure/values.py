"""Values on their way, as plain data: results from one workflow to the next, inside a message, or by their key in the engine's store.

Leaders make them, workers read them. This file knows neither engines nor codecs.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

RESULTS_STORE = "results"
"""The store of an engine that keeps results which are too large for the journal."""
MAX_INLINE_BYTES = 65_536
"""The bytes of all results that one message of work, or one journaled submission, carries. Beyond it all of them go by their keys."""


MAX_MESSAGE_RESULT_BYTES = 262_144
"""The bytes of a result inside the message that settles its work. Of work that a leader counts, a larger one goes into the store."""
MAX_VALUE_BYTES = 7_340_032
"""7 MiB: the bytes of one result, as it is written and sealed. A value of a store has 8 MiB at most."""
LIVE_TTL_S = 366 * 86_400.0
"""The seconds for which the store keeps a result of a live job. They bound what a leader or a worker that died in between leaves behind."""
MAX_SHOWN_BYTES = MAX_VALUE_BYTES
"""The bytes of stored results that one view of an ended job holds; that of a live one, which people look at again and again, has less. The others are asked
for one by one."""
ARGUMENTS_STORE = "arguments"
"""The store of an engine that keeps arguments which are too large for the journal."""
OUTPUT_STORE = "output"
"""The store of an engine that keeps what workflows emit."""
OUTPUT_TTL_S = 30 * 86_400.0
PARENT = "tenure.parent"
"""The label that names the job whose workflow submitted this one. A job with this label is cancelled when that job does not complete."""
_ELSEWHERE = "tenure.elsewhere"


def elsewhere(size: int) -> dict[str, int]:
    """Returns what stands in a view for a result that is too large for it."""
    return {_ELSEWHERE: size}


def is_elsewhere(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(_ELSEWHERE), int)


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


def output_prefix(job_id: str, workflow: str) -> str:
    """Returns how the keys of a workflow's output begin. A digest, because a job's id may have slashes, and keys are found by their beginning."""
    return hashlib.blake2b(repr((job_id, workflow)).encode(), digest_size=16).hexdigest() + "/"


def output_key(prefix: str, first: int) -> str:
    """Returns the key of a chunk by the offset of its first item. Keys sort as offsets do."""
    return f"{prefix}{first:010}"


def output_about(job_id: str, workflow: str) -> str:
    """Names an output for a codec."""
    return f"output {job_id}/{workflow}"


def result_key(job_id: str, workflow: str, attempt: int) -> str:
    """Returns the key of a result in the store. A workflow's name has no slash, so keys of different jobs never meet."""
    return f"{job_id}/{workflow}/{attempt}"

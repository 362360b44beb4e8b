"""Plain data about attempts that leaders and workers exchange and journals keep: results on their way, silences, waits and signals.

Results go from one workflow to the next inside a message, or by their key in the engine's store: leaders make them, workers read them. A worker measures silences, and a
leader learns from them (decision 0485). This file knows neither engines nor codecs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from tenure import bounds as b

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


class AttemptSilence(msgspec.Struct, frozen=True, array_like=True):
    """Tells how long one attempt was silent between proofs, by its stall clock: a declared silence, or one under a hold, is none."""

    longest_s: b.ElapsedSeconds = 0.0
    """The longest silence after which it went on."""
    last_s: b.ElapsedSeconds = 0.0
    """The silence in which it ended."""
    allowed_s: b.ElapsedSeconds = 0.0
    """The threshold that held for it."""
    version: b.AnyNameOrNone = ""
    """The version that ran."""
    learned: bool = False
    """True when a learned threshold held, and not the set one."""


_decode_exposed = msgspec.json.Decoder(dict[str, Any]).decode


def exposed_values(text: str) -> dict[str, Any]:
    """Returns the values that an attempt shows, from their JSON; none where it is no object."""
    try:
        return _decode_exposed(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return {}


def pairs_in_words(values: Mapping[str, Any]) -> str:
    """Returns exposed values in one line, each cut to a length that people read."""
    return ", ".join(f"{name}={msgspec.json.encode(value).decode()[:200]}" for name, value in values.items())


MOST_JOBS = 1_000
"""The most children that one wait names."""


class WaitsFor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One wait. The first of its conditions that holds ends it."""

    step: b.AnyName
    """Names the wait within its workflow. The next attempt finds by it where it was."""
    after_s: b.ElapsedSeconds | None = None
    """The seconds after which it goes on in any case; None for never."""
    event: b.AnyNameOrNone = ""
    seen: b.Count = 0
    """The signals of that name which the work has taken already. The next one ends the wait."""
    jobs: Annotated[tuple[b.JobId, ...], b.items(0, MOST_JOBS)] = ()
    """The children that have to end, all of them."""
    version: b.VersionName = ""
    """The version that recorded its steps, where the one that came does not fit them. It goes on when workers serve another."""
    misfit: b.Note = ""
    """Says what does not fit."""


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A signal as its job keeps it and its workflows get it."""

    name: str
    id: str
    payload: Any = None
    at: float = 0.0
    by: str = ""

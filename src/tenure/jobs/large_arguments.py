"""Decides which arguments of a submission are too large for the journal, and what stands there for them. Pure: `nodes.stored_arguments` has the store.

A large argument is one value in the store's value of its workflow. In its place the submission keeps a mark with its size and the hash of its contents, so
that two submissions with different large arguments are different, and people see where it was. Small arguments stay: they name keys, and views show them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from tenure.attempt_data import MAX_VALUE_BYTES
from tenure.errors import ConfigurationError, LimitError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import LIMITS, JobLimits

SMALL_BYTES = 4_096
"""An argument of at most so many bytes stays in the submission, while all that stay fit."""
MOST_INLINE_BYTES = 262_144
"""The bytes of all arguments of a submission that are journaled with it. Beyond it those of each workflow are stored that are not small."""
_MARK = "tenure.stored"
_encode = msgspec.json.encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class SplitArguments(NamedTuple):
    """The arguments of one workflow: those that stay, with a mark for each that goes, and those that go."""

    kept: dict[str, Any]
    stored: dict[str, Any]

    @property
    def name(self) -> str:
        """Names the contents that go, for the last part of their key."""
        marks = [self.kept[one] for one in sorted(self.stored)]
        return hashlib.blake2b(_encode_sorted(marks), digest_size=16).hexdigest()


def too_large(submission: JobSubmission, limits: JobLimits = LIMITS) -> dict[str, SplitArguments]:
    """Returns the workflows whose arguments do not fit into the journal, each with what stays. Raises `LimitError` for what does not fit into the store either."""
    sizes = {spec.name: len(_encode(spec.arguments)) for spec in submission.workflows}
    total = sum(sizes.values())
    if total > MAX_VALUE_BYTES:
        raise LimitError(
            "arguments",
            f"{total:,} bytes",
            f"at most {MAX_VALUE_BYTES:,} bytes for one job",
            remedy="Put large inputs where the workflow can read them, a bucket or a table, and pass their address",
        )
    crowded = total > MOST_INLINE_BYTES
    most = SMALL_BYTES if crowded else limits.max_arguments_bytes
    return {spec.name: _split(spec, limits) for spec in submission.workflows if sizes[spec.name] > most}


def _split(spec: WorkflowSpec, limits: JobLimits) -> SplitArguments:
    own = {name: len(_encode(value)) for name, value in spec.arguments.items()}
    small = sum(one for one in own.values() if one <= SMALL_BYTES)
    least = SMALL_BYTES if small <= limits.max_arguments_bytes // 2 else 0
    stored = {name: value for name, value in spec.arguments.items() if own[name] > least}
    kept = {name: _mark(value, own[name]) if name in stored else value for name, value in spec.arguments.items()}
    return SplitArguments(kept, stored)


def _mark(value: Any, size: int) -> dict[str, Any]:
    digest = hashlib.blake2b(_encode_sorted(value), digest_size=16).hexdigest()
    return {_MARK: {"bytes": size, "hash": digest}}


def stored_bytes(specs: Iterable[WorkflowSpec]) -> int:
    """Returns the bytes of the arguments that are in the store."""
    return sum(_marked_bytes(one) for spec in specs if spec.arguments_at for one in spec.arguments.values())


def _marked_bytes(value: Any) -> int:
    """Returns the size that a mark names; 0 for any other value. A small argument of the user's may look like one: it must neither raise nor take away."""
    mark = value.get(_MARK) if isinstance(value, dict) and len(value) == 1 else None
    size = mark.get("bytes") if isinstance(mark, dict) else None
    return max(0, size) if isinstance(size, int) else 0


def check_not_stored(submission: JobSubmission, known: Iterable[str] = ()) -> None:
    """Raises for a submission from outside that names a key of the store, unless it is one of the `known`: it could read the arguments of others."""
    for spec in submission.workflows:
        if spec.arguments_at and spec.arguments_at not in known:
            raise ConfigurationError(
                f"workflow {spec.name!r} names a place of its arguments, and only a leader does that",
                remedy="Give the arguments themselves: large ones are stored without your doing",
            )


def schedule_owner(name: str) -> str:
    """Returns how the keys of a schedule's arguments begin. No job's id begins so."""
    return f"//schedule/{name}"


def arguments_key(owner: str, workflow: str, contents: str) -> str:
    """Returns the key of stored arguments. The contents are part of it: a refused submission under the same id overwrites nothing."""
    return f"{owner}/{workflow}/{contents}"

"""Decides whether a submission can be accepted. Everything that is wrong with it raises here, before anything is written."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from tenure.backoff import Retry
from tenure.bound_checks import check
from tenure.errors import ConfigurationError, LimitError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import JobLimits, JobSettings

_encode = msgspec.json.Encoder(order="sorted").encode
_encode_msgpack = msgspec.msgpack.Encoder().encode


def validate(submission: JobSubmission, limits: JobLimits) -> None:
    """Raise `ConfigurationError` or `LimitError`, naming the field, the value and the remedy.

    A submission may come from a client, in a batch, by a schedule, from a gate or from a workflow. For each of them this checks every
    field against the bounds of its type, then the fields against each other.
    """
    check(submission)
    for spec in submission.workflows:
        check_arguments(spec, limits)
        check_retry(spec.name, spec.retry)
    check_order(submission)
    check_ladder(submission)
    size = len(_encode(submission))
    if size > limits.max_submission_bytes:
        raise LimitError(
            "submission",
            f"{size:,} bytes",
            f"at most {limits.max_submission_bytes:,} bytes",
            remedy="Put large inputs into the store, or split the job",
        )


def fits_a_snapshot(value: Any) -> bool:
    """Returns False for integers beyond 64 bits. JSON can carry them, and the msgpack of a snapshot cannot."""
    try:
        _encode_msgpack(value)
    except OverflowError:
        return False
    return True


def encoded_size(value: Any) -> int:
    """Returns the bytes that `value` takes in a snapshot."""
    return len(_encode_msgpack(value))


def check_arguments(spec: WorkflowSpec, limits: JobLimits) -> None:
    size = len(_encode(spec.arguments))
    if size > limits.max_arguments_bytes:
        raise LimitError(
            f"arguments of {spec.name!r}",
            f"{size:,} bytes",
            f"at most {limits.max_arguments_bytes:,} bytes",
            remedy="Put large inputs into the store, and pass the key",
        )
    if not fits_a_snapshot(spec.arguments):
        raise LimitError(
            f"an integer in the arguments of {spec.name!r}",
            "beyond 64 bits",
            f"between {-(2**63):,} and {2**64 - 1:,}",
            remedy="Pass it as a string",
        )


def check_retry(name: str, retry: Retry) -> None:
    if retry.delay > retry.max_delay:
        raise LimitError(f"retry delay of {name!r}", retry.delay, f"at most max_delay ({retry.max_delay:g} s)")


def check_order(submission: JobSubmission) -> None:
    """Raises unless names are unique, `after` names workflows of this job, and no workflow waits for itself."""
    specs = {spec.name: spec for spec in submission.workflows}
    if len(specs) != len(submission.workflows):
        names = [spec.name for spec in submission.workflows]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ConfigurationError(f"workflow names must be unique: {', '.join(map(repr, twice))} appears twice")
    for spec in submission.workflows:
        for name in spec.after:
            if name not in specs:
                raise ConfigurationError(
                    f"workflow {spec.name!r} comes after {name!r}, which is not in this job",
                    remedy=f"Its workflows are: {', '.join(sorted(specs))}",
                )
    done: set[str] = set()
    left = dict(specs)
    while left:
        free = [name for name, spec in left.items() if done.issuperset(spec.after)]
        if not free:
            raise ConfigurationError(f"workflows wait for each other in a circle: {', '.join(sorted(left))}")
        done.update(free)
        for name in free:
            del left[name]


def check_ladder(submission: JobSubmission) -> None:
    """Raises unless stall < stuck < timeout, wherever both were given (DESIGN.md: the ladder must stand upright)."""
    stuck = submission.stuck_threshold
    rungs: list[tuple[str, float | None]] = [
        (f"stall of {spec.name!r}", spec.stall) for spec in submission.workflows if spec.stall is not None
    ]
    for name, stall in rungs:
        if stall is not None and stall >= (stuck if stuck is not None else submission.timeout_seconds):
            raise ladder_error(
                [(name, stall), ("stuck_threshold", stuck), ("timeout_seconds", submission.timeout_seconds)]
            )
    if stuck is not None and stuck >= submission.timeout_seconds:
        raise ladder_error([*rungs, ("stuck_threshold", stuck), ("timeout_seconds", submission.timeout_seconds)])


def ladder_error(rungs: list[tuple[str, float | None]]) -> ConfigurationError:
    drawn = " < ".join(f"{name} {'(derived)' if value is None else f'{value:g} s'}" for name, value in rungs)
    return ConfigurationError(
        f"the ladder of time does not stand upright: {drawn} does not hold",
        remedy="Each rung must be shorter than the next; leave a value out to have it derived",
    )


def settled(submission: JobSubmission, settings: JobSettings) -> JobSubmission:
    """Returns the submission as it is journaled. A stuck threshold that was left open is derived here, once."""
    if submission.stuck_threshold is not None:
        return submission
    stalls = [2 * spec.stall for spec in submission.workflows if spec.stall is not None]
    return msgspec.structs.replace(submission, stuck_threshold=max([settings.stuck_threshold, *stalls]))


def digest(submission: JobSubmission) -> str:
    """Returns a name of the contents. It is equal for a retry, also through another client or a gate's successor."""
    # A retry may belong to another trace, and is still the same job.
    labels = {key: value for key, value in submission.labels.items() if key != "traceparent"}
    contents = msgspec.structs.replace(
        submission,
        labels=labels,
        job_id="",
        submitted_by="",
        gate_addr=None,
        gate_addrs=(),
        gate_epoch=0,
        global_submitted_at=0.0,
    )
    return hashlib.blake2b(_encode(contents), digest_size=16).hexdigest()

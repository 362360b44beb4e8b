"""Whether a submission can be accepted: everything that can be wrong with it, said before anything is written."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from tenure.errors import ConfigurationError, LimitError
from tenure.jobs.model import JobSubmission, RetryPolicy, WorkflowSpec
from tenure.jobs.settings import JobLimits, JobSettings, check_positive

_encode = msgspec.json.Encoder(order="sorted").encode
_encode_msgpack = msgspec.msgpack.Encoder().encode


def validate(submission: JobSubmission, limits: JobLimits) -> None:
    """Raise `ConfigurationError` or `LimitError`, naming the field, the value and the remedy."""
    check_name("job_id", submission.job_id, limits)
    if not submission.workflows:
        raise ConfigurationError(
            f"job {submission.job_id!r} has no workflows, so it could neither run nor complete",
            remedy="Submit at least one workflow",
        )
    if len(submission.workflows) > limits.max_workflows:
        raise LimitError("workflows", len(submission.workflows), f"at most {limits.max_workflows}")
    check_positive("timeout_seconds", submission.timeout_seconds)
    if submission.timeout_seconds > limits.max_timeout:
        raise LimitError("timeout_seconds", submission.timeout_seconds, f"at most {limits.max_timeout:g} s")
    if not 0 <= submission.delay <= limits.max_timeout:
        raise LimitError("delay", submission.delay, f"between 0 and {limits.max_timeout:g} s")
    if submission.result_ttl is not None:
        check_positive("result_ttl", submission.result_ttl)
    if not 1 <= submission.datacenters <= limits.max_datacenters:
        raise LimitError("datacenters", submission.datacenters, f"between 1 and {limits.max_datacenters}")
    if len(submission.idempotency_key) > limits.max_id_chars:
        raise LimitError(
            "idempotency_key", f"{len(submission.idempotency_key)} characters", f"at most {limits.max_id_chars}"
        )
    for spec in submission.workflows:
        check_spec(spec, limits)
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
    """False for integers beyond 64 bits. JSON can carry them, and the msgpack of a snapshot cannot."""
    try:
        _encode_msgpack(value)
    except OverflowError:
        return False
    return True


def encoded_size(value: Any) -> int:
    """The bytes that this takes in a snapshot."""
    return len(_encode_msgpack(value))


def check_name(field: str, value: str, limits: JobLimits) -> None:
    if not value or len(value) > limits.max_id_chars or not value.isprintable():
        raise LimitError(field, repr(value), f"1 to {limits.max_id_chars} printable characters")


def check_spec(spec: WorkflowSpec, limits: JobLimits) -> None:
    check_name("workflow name", spec.name, limits)
    if "/" in spec.name:
        raise ConfigurationError(
            f"workflow name {spec.name!r} contains a slash", remedy='Its key is "job/workflow": use another character'
        )
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
    if spec.stall is not None:
        check_positive(f"stall of {spec.name!r}", spec.stall)
    check_retry(spec.name, spec.retry, limits)


def check_retry(name: str, retry: RetryPolicy, limits: JobLimits) -> None:
    if not 1 <= retry.max_attempts <= limits.max_attempts:
        raise LimitError(f"max_attempts of {name!r}", retry.max_attempts, f"between 1 and {limits.max_attempts}")
    if not (0 <= retry.delay <= retry.max_delay < float("inf")):
        raise LimitError(f"retry delay of {name!r}", retry.delay, f"between 0 and max_delay ({retry.max_delay:g} s)")
    if not 1 <= retry.factor <= 100:
        raise LimitError(f"retry factor of {name!r}", retry.factor, "between 1 and 100")
    if not 0 <= retry.jitter <= 1:
        raise LimitError(f"retry jitter of {name!r}", retry.jitter, "between 0 and 1")


def check_order(submission: JobSubmission) -> None:
    """Names are unique, `after` names workflows of this job, and nothing waits for itself."""
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
    """stall < stuck < timeout, wherever both were given (DESIGN.md: the ladder must stand upright)."""
    stuck = submission.stuck_threshold
    if stuck is not None:
        check_positive("stuck_threshold", stuck)
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
    """The submission as it is journaled: what was left open is derived here, once."""
    if submission.stuck_threshold is not None:
        return submission
    stalls = [2 * spec.stall for spec in submission.workflows if spec.stall is not None]
    return msgspec.structs.replace(submission, stuck_threshold=max([settings.stuck_threshold, *stalls]))


def digest(submission: JobSubmission) -> str:
    """Names the contents: equal for a retry, also through another client or a gate's successor."""
    # A retry may belong to another trace, and is the same job.
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

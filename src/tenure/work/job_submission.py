"""Builds a submission from a call of `submit`: separates options from arguments, and checks the arguments. Pure.

A function's own settings (attempts, backoff, stall) travel with the job: the leader follows them, but never imports the function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, cast

import msgspec

from tenure import tracing
from tenure.backoff import Retry
from tenure.bounds import as_name
from tenure.errors import ArgumentsError, ConfigurationError, LimitError
from tenure.ids import IdSource
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.work.registry import Workflow, plain_arguments

Target = Workflow[..., Any] | str
"""The workflow of a submission: a function marked with @workflow, or its registered name."""


class SubmitOptions(TypedDict, total=False):
    """The options of `submit` beside the workflow's own arguments. Times are in seconds."""

    timeout: float
    """The job ends, done or not, after so long; 3,600 by default."""
    queue: str
    priority: int
    delay: float
    """Seconds before it may start."""
    job_id: str
    """A repeated submission under one id is one job, for ever."""
    idempotency_key: str
    """Makes repeated submissions one job, as job_id does, but leaves the id to Tenure."""
    labels: Mapping[str, str]
    retry: Retry
    max_attempts: int
    stall: float
    stuck: float
    """No progress for so long, and the job is given up."""
    version: str
    result_ttl: float
    """Seconds for which its result is kept."""
    name: str
    """The name that lists show; by default the workflow's."""
    submitted_by: str
    target_datacenters: Sequence[str]
    """At a gate: where it runs, in each of them the whole of it."""
    datacenters: int
    """At a gate, where none is named: in how many of the best it runs; 1 by default."""


OPTIONS = frozenset(SubmitOptions.__annotations__)
ALSO = {"timeout_seconds": "timeout", "stuck_threshold": "stuck"}
"""Names that the fields of a submission have. Without this table they would become arguments of the workflow."""


def split(
    target: Target, given: Mapping[str, Any], arguments: Mapping[str, Any] | None
) -> tuple[SubmitOptions, dict[str, Any]]:
    """Returns options and arguments. It raises for a name that could be both."""
    given = {ALSO.get(key, key): value for key, value in given.items()}
    options = cast("SubmitOptions", {key: value for key, value in given.items() if key in OPTIONS})
    named = {key: value for key, value in given.items() if key not in OPTIONS}
    if isinstance(target, Workflow):
        both = sorted(OPTIONS.intersection(target.parameters).intersection(options))
        if both:
            raise ArgumentsError(
                f"{both[0]!r} is an argument of {target.name} and an option of submit",
                remedy=f"Give the workflow's own in a dictionary: submit({target.name}, {{{both[0]!r}: ...}})",
            )
    twice = sorted(set(named).intersection(arguments or ()))
    if twice:
        raise ArgumentsError(f"argument {twice[0]!r} is given twice", remedy="Give it in the dictionary or by name")
    return options, {**(arguments or {}), **named}


def spec_for(target: Target, arguments: Mapping[str, Any], options: SubmitOptions) -> WorkflowSpec:
    """Returns one workflow of a job, with its arguments checked against the function where there is one."""
    called = name_of(target)
    plain = target.sendable(arguments) if isinstance(target, Workflow) else plain_arguments(called, arguments)
    return WorkflowSpec(
        name=as_name(called),
        function=called,
        arguments=plain,
        retry=_policy(target, options.get("retry"), options.get("max_attempts")),
        stall=options.get("stall", target.stall if isinstance(target, Workflow) else None),
        version=options.get("version", ""),
    )


def submission_for(
    target: Target, arguments: Mapping[str, Any], options: SubmitOptions, ids: IdSource, queue: str = "default"
) -> JobSubmission:
    """Returns a job of one workflow."""
    spec = spec_for(target, arguments, options)
    job_id = options.get("job_id", "") or f"{spec.name}-{ids()[:16]}"
    timeout = options.get("timeout")
    fields: dict[str, Any] = {} if timeout is None else {"timeout_seconds": _seconds("timeout", timeout)}
    return JobSubmission(
        job_id=job_id,
        workflows=(spec,),
        stuck_threshold=options.get("stuck"),
        idempotency_key=options.get("idempotency_key", ""),
        name=options.get("name", ""),
        queue=options.get("queue", queue),
        priority=options.get("priority", 0),
        result_ttl=options.get("result_ttl"),
        delay=_seconds("delay", options.get("delay", 0.0)),
        submitted_by=options.get("submitted_by", ""),
        labels=_labels(options.get("labels", {})),
        target_datacenters=tuple(options.get("target_datacenters", ())),
        datacenters=options.get("datacenters", 1),
        **fields,
    )


def submit_span(submission: JobSubmission) -> tuple[str, dict[str, str]]:
    """Returns the name and the attributes of a submission's tracing span."""
    names = ", ".join(spec.called for spec in submission.workflows[:3])
    return f"submit {names}", {"tenure.job": submission.job_id, "tenure.queue": submission.queue}


def traced(submission: JobSubmission, traceparent: str) -> JobSubmission:
    """Returns the submission with the label of its trace, if it has a trace."""
    if not traceparent:
        return submission
    return msgspec.structs.replace(submission, labels={**submission.labels, tracing.LABEL: traceparent})


def spread(target: Target, inputs: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns the inputs of `map` as arguments: dictionaries as they are, any other value as the workflow's first argument."""
    found = []
    for place, value in enumerate(inputs):
        if isinstance(value, Mapping):
            found.append(dict(value))
            continue
        if not isinstance(target, Workflow) or not target.parameters:
            raise ArgumentsError(
                f"input {place} is {value!r}, and nobody knows which argument of {name_of(target)} it is",
                remedy="Give a dictionary of arguments for each input, or the function itself",
            )
        found.append({target.parameters[0]: value})
    return found


def name_of(target: Target) -> str:
    if isinstance(target, Workflow):
        return target.name
    if isinstance(target, str) and target:
        return target
    if callable(target):
        name = getattr(target, "__name__", str(target))
        raise ConfigurationError(f"{name} is not a workflow", remedy=f"Mark it: write @workflow above `def {name}`")
    raise ConfigurationError(f"{target!r} is not a workflow", remedy="Give a function marked @workflow, or its name")


def _policy(target: Target, retry: Retry | None, most: int | None) -> Retry:
    policy = retry or (target.retry if isinstance(target, Workflow) else Retry())
    return policy if most is None else msgspec.structs.replace(policy, max_attempts=most)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LimitError(name, repr(value), "a number of seconds", remedy=f"Write {name}=hours(6), or 21600")
    return float(value)


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentsError(f"label {key!r} is {value!r}", remedy="Labels are text: {'customer': '17'}")
    return dict(labels)

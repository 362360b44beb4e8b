"""Submissions: built from a call of `submit`, and the jobs that a workflow submits itself, which are its children.

A function's own settings (attempts, backoff, stall) travel with the job: the leader follows them, but never imports the function.

A child is found again by its parent's next attempt, ended with its parent, and waited for honestly. Waiting is a declared silence that lasts
until the child's own deadline, because the child is watched as every job is: a child that hangs is ended there. Each advance of the child
is a beat of the parent (decision 0161).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec

from tenure import tracing
from tenure.attempt_data import PARENT, Signal
from tenure.bounds import as_name
from tenure.codec import Codec, opened_value, sealed_value
from tenure.errors import ArgumentsError, ConfigurationError, JobFailed, JobNotEndedError, LimitError, WorkError
from tenure.jobs.arguments import too_large
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.randomness import IdSource
from tenure.served_workflow import KeyLimit, Unique
from tenure.work.plain_arguments import plain_arguments
from tenure.work.registry import Workflow
from tenure.work.submit_options import ALSO, OPTIONS, SubmitOptions, unique_of

if TYPE_CHECKING:
    from tenure.work.context import AsyncContext, BaseContext, Context


Target = Workflow[..., Any] | str
"""The workflow of a submission: a function marked with @workflow, or its registered name."""


def split(
    target: Target, given: Mapping[str, Any], arguments: Mapping[str, Any] | None
) -> tuple[SubmitOptions, dict[str, Any]]:
    """Returns options and arguments. It raises for a name that could be both."""
    given = {ALSO.get(key, key): value for key, value in given.items()}
    options = {key: value for key, value in given.items() if key in OPTIONS}
    named = {key: value for key, value in given.items() if key not in OPTIONS}
    if isinstance(target, Workflow):
        both = sorted(OPTIONS.intersection(target.parameters).intersection(options))
        if both:
            raise ArgumentsError(
                f"{both[0]!r} is an argument of {target.name} and an option of submit",
                remedy=f"Give the workflow's own in a dictionary: submit({target.name}, {{{both[0]!r}: ...}})",
            )
        options = {**target.preset, **options}
    twice = sorted(set(named).intersection(arguments or ()))
    if twice:
        raise ArgumentsError(f"argument {twice[0]!r} is given twice", remedy="Give it once")
    return cast("SubmitOptions", options), {**(arguments or {}), **named}


def positional(target: Target, given: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the arguments that a call of `submit` gives without their names. One dictionary holds all of them by name."""
    if not given or given == (None,):
        return {}
    names = target.positional if isinstance(target, Workflow) else None
    if len(given) == 1 and isinstance(given[0], Mapping):
        found = dict(given[0])
        if names and found and isinstance(target, Workflow) and not set(found).intersection(target.parameters):
            raise ArgumentsError(
                f"one dictionary is taken for all arguments of {target.name}, and none of them is called {next(iter(found))!r}",
                remedy=f"Where it is the value of {names[0]!r}, write {names[0]}={{...}}",
            )
        return found
    return bound(name_of(target), names, given)


def bound(name: str, names: Sequence[str] | None, given: tuple[Any, ...]) -> dict[str, Any]:
    """Returns values by the names of their parameters. Raises `ArgumentsError` where nobody knows the names, or there are too many values."""
    if names is None:
        raise ArgumentsError(
            f"nobody here knows which arguments of {name} these are: {', '.join(map(repr, given))[:200]}",
            remedy="Give them by name, or give the function itself",
        )
    if len(given) > len(names):
        raise ArgumentsError(
            f"{len(given)} values are given to {name}, which takes {len(names)} without a name",
            remedy=f"They are: {', '.join(names) or 'none'}",
        )
    return dict(zip(names, given, strict=False))


def spec_for(target: Target, arguments: Mapping[str, Any], options: SubmitOptions) -> WorkflowSpec:
    """Returns one workflow of a job, with its arguments checked against the function where there is one."""
    called = name_of(target)
    plain = target.sendable(arguments) if isinstance(target, Workflow) else plain_arguments(called, arguments)
    return WorkflowSpec(
        name=as_name(called),
        function=called,
        arguments=plain,
        retry=options.get("retry") or (target.retry if isinstance(target, Workflow) else None),
        max_attempts=options.get("max_attempts"),
        stall=options.get("stall", target.stall if isinstance(target, Workflow) else None),
        version=options.get("version", ""),
        concurrency=_concurrency(options, target),
    )


def _concurrency(options: SubmitOptions, target: Target) -> KeyLimit | None:
    own = target.concurrency if isinstance(target, Workflow) else None
    if "concurrency_key" not in options and "max_per_key" not in options:
        return own
    key, most = options.get("concurrency_key"), options.get("max_per_key")
    return KeyLimit(key=own.key if key is None and own else key or "", most=own.most if most is None and own else most)


def _unique(options: SubmitOptions, target: Target) -> Unique | None:
    own = target.unique if isinstance(target, Workflow) else None
    return unique_of(options.get("unique_for"), options.get("on_duplicate"), options.get("unique_key"), own)


def submission_for(
    target: Target, arguments: Mapping[str, Any], options: SubmitOptions, ids: IdSource, queue: str = ""
) -> JobSubmission:
    """Returns a job of one workflow."""
    spec = spec_for(target, arguments, options)
    job_id = options.get("job_id", "") or f"{spec.name}-{ids()[:16]}"
    timeout = options.get("timeout", target.job_timeout if isinstance(target, Workflow) else None)
    return JobSubmission(
        job_id=job_id,
        workflows=(spec,),
        timeout_seconds=None if timeout is None else _seconds("timeout", timeout),
        stuck_threshold=options.get("stuck"),
        grace=_seconds("grace", options["grace"]) if "grace" in options else None,
        idempotency_key=options.get("idempotency_key", ""),
        name=options.get("name", ""),
        queue=options.get("queue") or (target.queue if isinstance(target, Workflow) else None) or queue,
        priority=options.get("priority", target.priority if isinstance(target, Workflow) else None),
        park=options.get("park", False),
        unique=_unique(options, target),
        result_ttl=options.get("result_ttl"),
        delay=_seconds("delay", options.get("delay", 0.0)),
        submitted_by=options.get("submitted_by", ""),
        labels=_labels(options.get("labels", {})),
        target_datacenters=tuple(options.get("target_datacenters", ())),
        datacenters=options.get("datacenters", 1),
    )


def with_codec(codec: Codec | None, submission: JobSubmission) -> JobSubmission:
    """Returns the submission as it is sent: with its arguments encoded, where there is a codec. No manager can check those against a function's types.

    Raises `LimitError` for arguments that no store of an engine can hold.
    """
    if codec is None:
        too_large(submission)
        return submission
    specs = tuple(
        msgspec.structs.replace(one, arguments=sealed_value(codec, one.arguments, f"arguments {one.called}"))
        for one in submission.workflows
    )
    sealed = msgspec.structs.replace(submission, workflows=specs)
    too_large(sealed)
    return sealed


def submit_span(submission: JobSubmission) -> AbstractContextManager[tracing.Spanned]:
    """Opens the tracing span of a submission, where somebody collects traces."""
    if tracing.tracer() is None:
        return tracing.UNTRACED
    names = ", ".join(spec.called for spec in submission.workflows[:3])
    attributes = {"tenure.job": submission.job_id, "tenure.queue": submission.queue}
    return tracing.span(f"submit {names}", attributes, kind="PRODUCER")


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


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LimitError(name, repr(value), "a number of seconds", remedy=f"Write {name}=hours(6), or 21600")
    return float(value)


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentsError(f"label {key!r} is {value!r}", remedy="Labels are text: {'customer': '17'}")
    return dict(labels)


LOOK_EVERY_S = 1.0
MOST_SILENT_S = 86_400.0

R = TypeVar("R")


class ChildView(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a parent needs of a child."""

    state: str
    ended: bool
    completed: bool
    reason: str
    progress: tuple[int, int, str]
    """Attempts, steps, state: another value is an advance."""
    left_s: float
    """The seconds until its deadline."""
    result: Any = None


class JobCourier(Protocol):
    """Carries a slot's submissions and questions to the managers. Calls block; they may come from several threads."""

    poll_s: float
    """The seconds that `look` may wait for the end of the child."""

    def submit(self, submission: JobSubmission, workflow: Workflow[..., Any] | None) -> str: ...

    def look(self, job_id: str, wait_s: float) -> ChildView: ...

    def cancel(self, job_id: str, reason: str) -> None: ...

    def why(self, job_id: str) -> str: ...

    def signals(self, job_id: str, after: int) -> Sequence[Signal]: ...


class Connector(Protocol):
    """Makes a courier, in the process that needs one."""

    def __call__(self, engine_url: str, token: str) -> JobCourier: ...


def courier_from(name: str, engine_url: str, token: str) -> JobCourier:
    """Connects by `module:function`, so that this package need not import the managers' client."""
    if not name:
        return no_courier()
    module, _, function = name.partition(":")
    connect: Connector = getattr(import_module(module), function)
    return connect(engine_url, token)


def no_courier() -> JobCourier:
    raise WorkError(
        "this worker has no way to the managers, so a workflow cannot submit jobs",
        remedy="Serve it with `tenure worker --managed`, `tenure dev` or embedded()",
    )


class Children:
    """The children of one attempt. Their names are the same in the next attempt, if it submits them in the same order."""

    def __init__(self, context: BaseContext) -> None:
        self._context = context
        self._counts: Counter[str] = Counter()

    def prepare(self, target: Target, values: tuple[Any, ...], given: Mapping[str, Any], key: str) -> JobSubmission:
        """Returns the submission of a child. Its id comes from the parent, the workflow and the key, so that it is submitted once."""
        options, found = split(target, given, positional(target, values))
        if "job_id" in options or "idempotency_key" in options:
            raise ConfigurationError(
                "a child's id comes from its parent",
                remedy="Give key= to name it; its parent's next attempt finds it by that",
            )
        occupant = self._context._handle.occupant
        name = name_of(target)
        if not key:
            self._counts[name] += 1
            key = f"{name}-{self._counts[name]}"
        queue = self._context._handle.delivery.lane.rpartition(".p")[0]
        options["job_id"] = f"{occupant.job}/{occupant.workflow_id or occupant.workflow}/{key}"
        detached = options.get("labels", {}).get(PARENT) == ""
        labels = {key: value for key, value in options.get("labels", {}).items() if key != PARENT}
        options["labels"] = labels if detached else {**labels, PARENT: occupant.job}
        options.setdefault("submitted_by", f"job {occupant.job}")
        return with_codec(self._context._handle.codec, submission_for(target, found, options, str, queue))


class _Child(Generic[R]):
    def __init__(self, context: BaseContext, courier: JobCourier, job_id: str, target: Target) -> None:
        self._context, self._courier, self.id = context, courier, job_id
        self._workflow = target if isinstance(target, Workflow) else None
        self._seen: tuple[int, int, str] | None = None

    def _heard(self, view: ChildView) -> None:
        """Beats when the child has advanced, and only then."""
        if view.progress != self._seen:
            self._seen = view.progress
            self._context.beat()

    def _value(self, view: ChildView, why: str) -> R:
        if not view.completed:
            raise JobFailed(self.id, view.state, view.reason, why)
        return self._decoded(view.result)

    def _decoded(self, result: Any) -> R:
        codec = self._context._handle.codec
        if codec is not None and self._workflow is not None:
            result = opened_value(codec, result, f"result {self.id}/{as_name(self._workflow.name)}")
        return cast("R", self._workflow.decode_result(result) if self._workflow is not None else result)

    def _silence(self, view: ChildView) -> Any:
        bound = min(MOST_SILENT_S, max(1.0, view.left_s + 60.0))
        return self._context.silence(bound, f"waits for {self.id}")

    def __repr__(self) -> str:
        return f"<child {self.id}>"


class ChildJob(_Child[R]):
    """A child of a sync workflow."""

    def wait(self, timeout: float | None = None) -> R:
        """Returns the child's result. Raises `JobFailed`, which says why, or `JobNotEndedError` after `timeout`."""
        context = cast("Context", self._context)
        clock = context._handle.clock
        begun = clock.monotonic()
        view = self._courier.look(self.id, 0.0)
        with self._silence(view):
            while not view.ended:
                if timeout is not None and clock.monotonic() - begun >= timeout:
                    raise JobNotEndedError(self.id, view.state, timeout)
                self._heard(view)
                context.raise_if_cancelled()
                if not self._courier.poll_s:
                    with context._handle.changed:
                        clock.wait(context._handle.changed, LOOK_EVERY_S)
                view = self._courier.look(self.id, self._courier.poll_s)
        return self._value(view, "" if view.completed else self._courier.why(self.id))

    def cancel(self, reason: str = "") -> None:
        self._courier.cancel(self.id, reason)


class AsyncChildJob(_Child[R]):
    """A child of an async workflow."""

    async def wait(self, timeout: float | None = None) -> R:
        """Returns the child's result. Raises `JobFailed`, which says why, or `JobNotEndedError` after `timeout`."""
        context = cast("AsyncContext", self._context)
        clock = context._handle.clock
        begun = clock.monotonic()
        view = await asyncio.to_thread(self._courier.look, self.id, 0.0)
        async with self._silence(view):
            while not view.ended:
                if timeout is not None and clock.monotonic() - begun >= timeout:
                    raise JobNotEndedError(self.id, view.state, timeout)
                self._heard(view)
                if not self._courier.poll_s:
                    await clock.async_sleep(LOOK_EVERY_S)
                view = await asyncio.to_thread(self._courier.look, self.id, self._courier.poll_s)
        return self._value(view, "" if view.completed else await asyncio.to_thread(self._courier.why, self.id))

    async def cancel(self, reason: str = "") -> None:
        await asyncio.to_thread(self._courier.cancel, self.id, reason)

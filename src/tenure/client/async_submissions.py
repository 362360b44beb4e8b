"""Submitting: one run of a workflow, many, or all of a list; and workflows that are known from the catalogue only.

Type checkers know the arguments of `submit` from the function. Python's types cannot join a function's own parameters with the options of
`submit`, so there is one signature for each option: where a call has one, only that option is checked. `encode.options(...)` has both
checked (decision 0430).
"""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

import msgspec

from tenure import tracing
from tenure.backoff import Retry
from tenure.client.async_job import AsyncJob
from tenure.client.job_messages import ResultDecoder, accepted, batches, check_likeness, newest_served, properties_of
from tenure.codec import Codec
from tenure.control.messages.jobs import Done, ManySubmitted, SubmitMany, Submitted
from tenure.control.messages.wire import Request
from tenure.control.messages.workflows import ListWorkflows, WorkflowEntry, WorkflowList
from tenure.errors import ArgumentsError
from tenure.jobs.door import faults
from tenure.jobs.model import JobSubmission
from tenure.randomness import IdSource
from tenure.work.job_submission import Target, bound, positional, split, spread, submission_for, traced, with_codec
from tenure.work.plain_arguments import plain_arguments
from tenure.work.registry import Workflow
from tenure.work.submit_options import SubmitOptions, known_options

P = ParamSpec("P")
R = TypeVar("R")


class AsyncWorkflowHandle(Generic[P, R]):
    """A workflow of the catalogue, as `client.workflow(name)` returns it. `P` and `R` are those of `like`, where it was given."""

    def __init__(
        self,
        client: AsyncSubmissions,
        entries: Sequence[WorkflowEntry],
        name: str,
        version: str = "",
        like: Callable[P, R] | None = None,
        options: SubmitOptions | None = None,
    ) -> None:
        self._client, self._entries, self._like = client, tuple(entries), like
        self.name, self.version = name, version
        self._options = options or SubmitOptions()
        self.served = newest_served(self._entries, name, version)
        """The workflow as its worker registered it: schema, settings, description, source."""
        if like is not None:
            check_likeness(like, self.served)

    @property
    def parameters(self) -> tuple[str, ...] | None:
        """The names of its arguments, in the order of the function; None where its types have no schema."""
        schema = self.served.arguments
        return None if schema is None else tuple(properties_of(schema))

    def options(self, **options: Unpack[SubmitOptions]) -> AsyncWorkflowHandle[P, R]:
        """Returns this handle with options of `submit`: `handle.options(timeout=hours(6)).submit("a.mov")`."""
        changed = SubmitOptions(**{**self._options, **known_options(options)})
        return AsyncWorkflowHandle(self._client, self._entries, self.name, self.version, self._like, changed)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R]:
        """Submits one run. Every name is an argument here; `options` holds the options. When this returns, the job is durable."""
        found = bound(self.name, self.parameters, args) if args else {}
        if twice := sorted(set(found).intersection(kwargs)):
            raise ArgumentsError(f"argument {twice[0]!r} is given twice", remedy="Give it once")
        plain = plain_arguments(self.name, {**found, **kwargs})
        if self.served.arguments is not None and (fault := next(faults(plain, self.served.arguments), "")):
            raise ArgumentsError(
                f"the arguments of {self.name!r} do not fit: {fault} (version {self.served.version})",
                remedy=f"It takes ({', '.join(self.parameters or ())})",
            )
        chosen = cast("dict[str, Any]", {"version": self.version, **self._options})
        submission = self._client._submission(self.name, plain, chosen)
        job_id = (await self._client.submit_job(submission)).job_id
        return cast("AsyncJob[R]", self._client._handle(job_id, self))

    def decode_result(self, value: Any) -> Any:
        """Returns a result as the annotation of `like` has it, or as it came."""
        hints = {} if self._like is None else typing.get_type_hints(self._like, include_extras=True)
        return msgspec.convert(value, hints["return"]) if "return" in hints else value

    def __repr__(self) -> str:
        taken = "..." if self.parameters is None else ", ".join(self.parameters)
        return f"<workflow {self.name} {self.served.version} ({taken}) -> {self.served.result or '?'}>"


ReplyT = TypeVar("ReplyT")


class AsyncSubmissions(ABC):
    """A base of the client: what submits."""

    default_queue = ""
    """The queue of submissions that name none; empty leaves it to the function and its workers."""
    _ids: IdSource
    _codec: Codec | None

    @abstractmethod
    async def _expect(self, kind: type[ReplyT], request: Request, wait_s: float = 0.0) -> ReplyT: ...

    @abstractmethod
    async def submit_job(self, submission: JobSubmission) -> Done: ...

    @abstractmethod
    def _handle(self, job_id: str, workflow: ResultDecoder | str | None) -> AsyncJob[Any]: ...

    @overload
    async def submit(
        self, workflow: str, arguments: Mapping[str, Any] | None = None, /, **options_and_arguments: Any
    ) -> AsyncJob[Any]: ...

    @overload
    async def submit(
        self, workflow: Workflow[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], arguments: Mapping[str, Any] | None, /, **options_and_arguments: Any
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, timeout: float, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, grace: float, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, queue: str, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, priority: int, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, park: bool, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, delay: float, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, job_id: str, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], /, *args: Any, idempotency_key: str, **rest: Any
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], /, *args: Any, labels: Mapping[str, str], **rest: Any
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, retry: Retry, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], /, *args: Any, max_attempts: int, **rest: Any
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, stall: float, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, stuck: float, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, version: str, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], /, *args: Any, result_ttl: float, **rest: Any
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, name: str, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], /, *args: Any, submitted_by: str, **rest: Any
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], /, *args: Any, target_datacenters: Sequence[str], **rest: Any
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, datacenters: int, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], /, *args: Any, concurrency_key: str, **rest: Any
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(self, workflow: Workflow[..., R], /, *args: Any, max_per_key: int, **rest: Any) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], /, *args: Any, unique_for: float, **rest: Any
    ) -> AsyncJob[R]: ...

    async def submit(self, workflow: Any, /, *arguments: Any, **options_and_arguments: Any) -> AsyncJob[Any]:
        """Submits one run of a workflow. When this returns, the job is durable.

        Options: timeout, grace, queue, priority, delay, job_id, idempotency_key, labels, retry, max_attempts, stall, stuck, version, park, name,
        concurrency_key, max_per_key, unique_for, on_duplicate, unique_key, result_ttl, submitted_by; at a gate target_datacenters or datacenters. Every other name is an argument of the workflow. Arguments may be given by
        name, in the order of the function, or in one dictionary, where those go that are called as an option is.
        """
        submission = self._submission(workflow, positional(workflow, arguments), options_and_arguments)
        return self._handle((await self.submit_job(submission)).job_id, workflow)

    async def submit_many(self, workflow: Target, inputs: Iterable[Any], /, **options: Any) -> list[AsyncJob[Any]]:
        """Submits one job for each input: a dictionary of arguments, or the value of the workflow's first argument."""
        answers = await self.submit_each(workflow, inputs, **options)
        return [self._handle(job_id, workflow) for job_id in accepted(answers)]

    async def submit_each(self, workflow: Target, inputs: Iterable[Any], /, **options: Any) -> list[Submitted]:
        """As `submit_many`, and returns the outcome of each: one that is refused has a `problem`. Nothing is sent after a request with such a one."""
        each = (self._submission(workflow, arguments, options) for arguments in spread(workflow, inputs))
        made = [with_codec(self._codec, one) for one in each]
        answers: list[Submitted] = []
        for part in batches(made):
            with tracing.span(f"submit {len(part)} jobs", {}, kind="PRODUCER") as span:
                carried = tuple(traced(one, span.traceparent) for one in part)
                reply = await self._expect(ManySubmitted, SubmitMany(submissions=carried))
            answers += reply.jobs
            if any(one.problem is not None for one in reply.jobs):
                break
        return answers

    @overload
    async def workflow(self, name: str, *, version: str = "") -> AsyncWorkflowHandle[..., Any]: ...

    @overload
    async def workflow(self, name: str, *, like: Callable[P, R], version: str = "") -> AsyncWorkflowHandle[P, R]: ...

    async def workflow(
        self, name: str, *, like: Callable[..., Any] | None = None, version: str = ""
    ) -> AsyncWorkflowHandle[..., Any]:
        """Returns a handle of a workflow whose code this program does not have, with its arguments as the catalogue has them.

        `like` gives type checkers, and the result, their types: a function with the same parameters but for `ctx`, whose body is never run.
        Without `version`, any may do the work, and the arguments are checked against the newest that is served.
        """
        listed = await self._expect(WorkflowList, ListWorkflows(name=name))
        if not listed.workflows:  # the error names the one that was meant
            listed = await self._expect(WorkflowList, ListWorkflows())
        return AsyncWorkflowHandle(self, listed.workflows, name, version, like)

    def _submission(
        self, workflow: Target, arguments: Mapping[str, Any] | None, given: Mapping[str, Any]
    ) -> JobSubmission:
        options, found = split(workflow, given, arguments)
        return submission_for(workflow, found, options, self._ids, self.default_queue)

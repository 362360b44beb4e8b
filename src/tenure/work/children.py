"""Jobs that a workflow submits: found again by its next attempt, ended with it, and waited for honestly.

Waiting for a child is a declared silence that lasts until the child's own deadline, because the child is watched as every job is: a child
that hangs is ended there. Each advance of the child is a beat of the parent (decision 0161).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec

from tenure.errors import ConfigurationError, JobFailed, JobNotEndedError, WorkError
from tenure.jobs.model import JobSubmission
from tenure.work.job_submission import Target, name_of, split, submission_for
from tenure.work.registry import Workflow

if TYPE_CHECKING:
    from tenure.work.context import AsyncContext, BaseContext, Context

PARENT = "tenure.parent"
"""The label that names the job whose workflow submitted this one. A job with this label is cancelled when that job does not complete."""
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

    def prepare(
        self, target: Target, given: Mapping[str, Any], arguments: Mapping[str, Any] | None, key: str
    ) -> JobSubmission:
        """Returns the submission of a child. Its id comes from the parent, the workflow and the key, so that it is submitted once."""
        options, found = split(target, given, arguments)
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
        queue = occupant.queue.rpartition(".p")[0] or "default"
        options["job_id"] = f"{occupant.job}/{occupant.workflow_id or occupant.workflow}/{key}"
        detached = options.get("labels", {}).get(PARENT) == ""
        labels = {key: value for key, value in options.get("labels", {}).items() if key != PARENT}
        options["labels"] = labels if detached else {**labels, PARENT: occupant.job}
        options.setdefault("submitted_by", f"job {occupant.job}")
        return submission_for(target, found, options, str, queue)


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
        found = self._workflow.decode_result(view.result) if self._workflow is not None else view.result
        return cast("R", found)

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

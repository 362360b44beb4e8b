"""The context of a workflow, `ctx`: beats, progress, checkpoints, declared silence, cancellation.

A beat writes two words of shared memory and looks for a cancellation at most twenty times a second. It never talks to the engine: the
supervisor extends leases from what the board shows. A checkpoint does talk to the engine, and returns when it is durable.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sized
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from tenure.clock import Clock
from tenure.engines.contracts import Fence
from tenure.errors import Cancelled, LimitError, SerializationError, WorkError
from tenure.work.delivery import CANCEL_REASONS, AttemptHandle, CancelCode
from tenure.work.subprocesses import Finished, run_command, run_command_async

if TYPE_CHECKING:
    from tenure.jobs.model import JobSubmission
    from tenure.work.children import AsyncChildJob, ChildJob, Children, JobCourier

ItemT = TypeVar("ItemT")
T = TypeVar("T")

LOOK_EVERY_S = 0.05
"""A beating workflow checks at this interval for a cancellation and a lost lease."""


_current: ContextVar[BaseContext | None] = ContextVar("tenure_context", default=None)


class BaseContext:
    """The part of the context that sync and async workflows share."""

    def __init__(self, handle: AttemptHandle) -> None:
        self._handle = handle
        self._monotonic = handle.clock.monotonic
        self._floats, self._ints = handle.record.beat_ports()
        self._steps = itertools.count(1)
        self._look_at = 0.0
        self._note = ""
        self._children: Children | None = None
        self.log = logging.LoggerAdapter(
            logging.getLogger("tenure.workflow"),
            {
                "job": handle.occupant.job,
                "workflow": handle.occupant.workflow,
                "attempt": handle.occupant.attempt,
                "trace": handle.trace,
            },
        )

    def beat(
        self,
        progress: float | None = None,
        note: str | None = None,
        completed_items: int | None = None,
        total_items: int | None = None,
    ) -> None:
        """Prove that the work advances. Raises `Cancelled` when its time is over."""
        now = self._monotonic()
        self._floats[0] = now
        self._ints[1] = next(self._steps)
        if now >= self._look_at:
            self._look(now)
        if progress is not None or note is not None or completed_items is not None:
            self._tell(progress, note, completed_items, total_items)

    def _look(self, now: float) -> None:
        self._look_at = 0.0
        self.raise_if_cancelled()
        self._look_at = now + LOOK_EVERY_S

    def raise_if_cancelled(self) -> None:
        """Look now, without proving anything: raises `Cancelled` when the time of this attempt is over."""
        self._handle.look()
        if self._handle.cancel_code is not CancelCode.NONE:
            raise Cancelled(CANCEL_REASONS[self._handle.cancel_code])

    def _tell(self, progress: float | None, note: str | None, completed: int | None, total: int | None) -> None:
        if completed is not None:
            if completed < 0 or (total is not None and total < 0):
                raise LimitError("completed_items, total_items", (completed, total), "0 or more")
            if total:  # absolute counters win over the fraction
                progress = min(1.0, completed / total)
        if progress is not None:
            if not 0.0 <= progress <= 1.0:  # also refuses NaN
                raise LimitError("progress", progress, "between 0.0 and 1.0")
            self._handle.record.set_progress(progress)
        if note is not None and note != self._note:
            self._note = note
            occupant = msgspec.structs.replace(self._handle.occupant, note=note[:500])
            self._handle.occupant = occupant
            self._handle.record.describe(occupant)

    def track(self, items: Iterable[ItemT] | AsyncIterable[ItemT], total: int | None = None) -> Tracked[ItemT]:
        """Go through items with one beat after each; works in `for` and in `async for`."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        return Tracked(self, items, total)

    def silence(self, max_s: float, why: str) -> DeclaredSilence:
        """Declare a bounded quiet spell, such as a model call: the lease is kept and the stall clock stands still, once."""
        return DeclaredSilence(self, max_s, why)

    @property
    def cancelled(self) -> bool:
        """True when this attempt should end; `beat` raises `Cancelled` then."""
        self._handle.look()
        return self._handle.cancel_code is not CancelCode.NONE

    @property
    def lease_lost(self) -> bool:
        """True when another worker may run this: the engine will refuse its result."""
        self._handle.look()
        return self._handle.cancel_code is CancelCode.LEASE_LOST

    @property
    def resume(self) -> Any:
        """The value that the last attempt saved with `checkpoint`, or None on the first."""
        saved = self._handle.resumed_from
        return None if saved is None else msgspec.json.decode(saved)

    @property
    def saved(self) -> Any:
        """The value that was saved last, by this attempt or by the one before it."""
        saved = self._handle.saved
        return None if saved is None else msgspec.json.decode(saved)

    def save(self, data: Any) -> None:
        """Save where the work is, without a beat: for what says nothing about progress. It waits until that is durable.

        Workflows call `checkpoint`; this is for code below them that runs in a thread.
        """
        self._handle.keep(self._encode_checkpoint(data))

    @property
    def clock(self) -> Clock:
        """The clock of this attempt."""
        return self._handle.clock

    @property
    def job(self) -> str:
        return self._handle.occupant.job

    @property
    def attempt(self) -> int:
        return self._handle.occupant.attempt

    @property
    def deadline(self) -> float | None:
        """Seconds that are left to this attempt, or None when it has no timeout."""
        until = self._handle.occupant.deadline
        return None if until is None else max(0.0, until - self._handle.clock.boottime())

    @property
    def fence(self) -> Fence:
        """Orders the attempts at this work: give it to whatever you write to, and let it refuse lower ones."""
        self._handle.confirm_start()
        return self._handle.delivery.fence

    def _child(
        self, target: Any, arguments: Mapping[str, Any] | None, key: str, given: dict[str, Any]
    ) -> tuple[JobCourier, JobSubmission, Any]:
        """Returns the submission that `submit` of both contexts sends, and the courier that sends it."""
        # Imported here: most workflows submit nothing, and a slot shall start quickly.
        from tenure.work.children import Children
        from tenure.work.registry import Workflow

        courier = self._handle.delivery.courier()
        if self._children is None:
            self._children = Children(self)
        submission = self._children.prepare(target, given, arguments, key)
        return courier, submission, target if isinstance(target, Workflow) else None

    def _encode_checkpoint(self, data: Any) -> bytes:
        try:
            return msgspec.json.encode(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"a checkpoint of type {type(data).__name__} cannot be written as JSON: {error}",
                remedy="Save plain JSON types, a dataclass or a msgspec.Struct",
            ) from error


class Context(BaseContext):
    """`ctx` of a sync workflow."""

    def checkpoint(self, data: Any) -> None:
        """Save where the work is; the next attempt finds it in `ctx.resume`. Returns when it is durable."""
        self.save(data)
        self.beat()

    def sleep(self, seconds: float) -> None:
        """Do nothing for a while, as a declared silence that ends early on cancellation."""
        handle = self._handle
        until = self._monotonic() + seconds
        with self.silence(seconds + 1.0, "sleep"):
            while (left := until - self._monotonic()) > 0:
                self.raise_if_cancelled()
                with handle.changed:
                    handle.clock.wait(
                        handle.changed, min(left, 30.0)
                    )  # a cancellation notifies; this is for a lost one

    def submit(
        self,
        workflow: Any,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        key: str = "",
        **options_and_arguments: Any,
    ) -> ChildJob[Any]:
        """Have another workflow run as a job of its own; `wait()` for it, which proves what it proves.

        The next attempt of this job finds the same child: by `key`, or by the order in which it is submitted. It is cancelled when
        this job does not complete; `labels={"tenure.parent": ""}` lets it live on.
        """
        from tenure.work.children import ChildJob

        courier, submission, known = self._child(workflow, arguments, key, options_and_arguments)
        job_id = courier.submit(submission, known)
        self.beat()
        return ChildJob(self, courier, job_id, workflow)

    def run(self, command: list[str], **options: Any) -> Finished:
        """Run a program with one beat per line of its output; it and its children end with this attempt."""
        return run_command(self, command, **options)


class AsyncContext(BaseContext):
    """`ctx` of an async workflow: what waits is awaited."""

    async def checkpoint(self, data: Any) -> None:
        """Save where the work is; the next attempt finds it in `ctx.resume`. Returns when it is durable."""
        encoded = self._encode_checkpoint(data)
        await asyncio.to_thread(self._handle.keep, encoded)
        self.beat()

    async def sleep(self, seconds: float) -> None:
        """Do nothing for a while, as a declared silence; a cancellation cancels the task."""
        async with self.silence(seconds + 1.0, "sleep"):
            await self._handle.clock.async_sleep(seconds)

    async def submit(
        self,
        workflow: Any,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        key: str = "",
        **options_and_arguments: Any,
    ) -> AsyncChildJob[Any]:
        """Have another workflow run as a job of its own; see `Context.submit`. Tasks that submit at once give each a `key`."""
        from tenure.work.children import AsyncChildJob

        courier, submission, known = self._child(workflow, arguments, key, options_and_arguments)
        job_id = await asyncio.to_thread(courier.submit, submission, known)
        self.beat()
        return AsyncChildJob(self, courier, job_id, workflow)

    async def run(self, command: list[str], **options: Any) -> Finished:
        """Run a program with one beat per line of its output; it and its children end with this attempt."""
        return await run_command_async(self, command, **options)


class Tracked(Generic[ItemT]):
    """Items that beat as they are consumed."""

    def __init__(self, context: BaseContext, items: Iterable[ItemT] | AsyncIterable[ItemT], total: int | None) -> None:
        self._context, self._items, self._total = context, items, total

    def __iter__(self) -> Iterator[ItemT]:
        if not isinstance(self._items, Iterable):
            raise WorkError("these items come asynchronously", remedy="Write `async for`")
        beat, total = self._context.beat, self._total
        beat()
        for done, item in enumerate(self._items, 1):
            yield item
            beat(None, None, done, total)

    async def __aiter__(self) -> AsyncIterator[ItemT]:
        beat, total = self._context.beat, self._total
        beat()
        done = 0
        if isinstance(self._items, AsyncIterable):
            async for item in self._items:
                yield item
                done += 1
                beat(None, None, done, total)
            return
        for item in self._items:
            yield item
            done += 1
            beat(None, None, done, total)


class DeclaredSilence:
    """A declared quiet spell; enter it with `with` or `async with`. Leaving it is a beat."""

    def __init__(self, context: BaseContext, max_s: float, why: str) -> None:
        if not 0 < max_s <= 86_400:
            raise LimitError("silence max_s", max_s, "above 0 and at most 86,400 s")
        self._context, self._max_s, self._why = context, max_s, why

    def __enter__(self) -> None:
        context = self._context
        context.beat(note=f"silent for up to {self._max_s:g} s: {self._why}")
        context._handle.record.set_silence(context._monotonic() + self._max_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context._handle.record.set_silence(0.0)
        if kind is None:
            self._context.beat(note="")

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def current() -> BaseContext:
    """The context of the workflow that runs here, for code that was not handed one."""
    found = _current.get()
    if found is None:
        raise WorkError(
            "no workflow runs here",
            remedy="Call tenure.current() inside a workflow; in threads of your own, pass ctx on or copy the context",
        )
    return found


def run_with_context(context: Context, call: Callable[[], T]) -> T:
    """Call, with `context` as the current one."""
    token = _current.set(context)
    try:
        return call()
    finally:
        _current.reset(token)


async def await_with_context(context: AsyncContext, awaitable: Callable[[], Awaitable[T]]) -> T:
    """Await, with `context` as the current one."""
    token = _current.set(context)
    try:
        return await awaitable()
    finally:
        _current.reset(token)


def current_or_none() -> BaseContext | None:
    return _current.get()

"""Calls of steps: a finished step gives its recorded result, any other is run, with its own retry, timeout and stall, and recorded.

`@step` makes a function a step wherever a workflow calls it. `step_log` has the rules about names and order.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import typing
import zlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

import msgspec

from tenure.backoff import Retry
from tenure.errors import (
    ArgumentsError,
    Cancelled,
    LimitError,
    ReceiptHandleExpiredError,
    StepTimeoutError,
    TenureError,
)
from tenure.work.retry_verdict import RetryRules
from tenure.work.step_log import STEP, StepId, StepRecord

if TYPE_CHECKING:
    from tenure.work.context import AsyncContext, BaseContext, Context

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_ONCE = Retry(max_attempts=1)
_RULES = RetryRules()
"""Reads off an exception whether it allows another try: `Permanent`, `RetryAfter`."""


class StepCall(Generic[T]):
    """One step of one attempt: its identity, its policy, and its result as JSON."""

    def __init__(
        self,
        context: BaseContext,
        name: str,
        function: Callable[..., Any],
        key: str,
        retry: Retry | None,
        timeout: float | None,
        stall: float | None,
    ) -> None:
        if not callable(function):
            raise ArgumentsError(
                f"step {name!r} has no function to call, but {function!r}",
                remedy="Write ctx.step(name, function, *args)",
            )
        for field, value in (("timeout", timeout), ("stall", stall)):
            if value is not None and not value > 0:
                raise LimitError(f"{field} of step {name!r}", value, "a number of seconds above 0")
        self.id = StepId(STEP, name, key)
        self.function = function.function if isinstance(function, StepFunction) else function
        self.timeout, self.stall = timeout, stall
        self._context, self._handle = context, context._handle
        self._retry = (retry or _ONCE).checked(f"step {name}")
        self._tries = 0

    def begin(self) -> StepRecord | None:
        """Returns the record, or None for a step that is to be run."""
        return self._handle.begin_step(self.id)

    def value(self, encoded: bytes) -> T:
        """Returns a result as its function's annotation has it. The first run gives what every later one gives: what JSON kept."""
        kind = _return_type(self.function)
        try:
            return cast("T", msgspec.json.decode(encoded, type=kind))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ArgumentsError(
                f"the recorded result of {self.id} does not fit {kind!r}: {error}",
                remedy="Give a step another name when the type of its result changes",
            ) from error

    def encode(self, result: Any) -> bytes:
        try:
            return msgspec.json.encode(result)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ArgumentsError(
                f"the result of {self.id}, of type {type(result).__name__}, cannot be written as JSON: {error}",
                remedy="Return plain JSON types, a dataclass or a msgspec.Struct",
            ) from error

    def rest_after(self, error: Exception) -> float:
        """Returns the seconds to rest before the next try. Raises the error when there is none."""
        self._tries += 1
        useless = isinstance(error, (Cancelled, ReceiptHandleExpiredError)) or (
            isinstance(error, TenureError) and not error.retryable
        )
        said = _RULES.verdict(error)
        if useless or said.final or self._tries >= self._retry.max_attempts:
            self._handle.step_log.again(self.id)
            raise error
        if said.rest_s is not None:
            return said.rest_s
        chance = zlib.crc32(f"{self._handle.occupant.job}/{self.id}/{self._tries}".encode()) / 0xFFFFFFFF
        return self._retry.delay_s(self._tries, chance)

    def bounded(self) -> StepLimits:
        return StepLimits(self._context, self)


class StepLimits:
    """While a step runs, its stall is the attempt's; the timeout of one that blocks its thread is, too: only the supervisor can end that."""

    def __init__(self, context: BaseContext, call: StepCall[Any]) -> None:
        self._handle, self._call = context._handle, call
        self._before = context._handle.occupant

    def __enter__(self) -> None:
        call, handle = self._call, self._handle
        if call.stall is None and call.timeout is None:
            return
        occupant = handle.occupant
        deadline = occupant.deadline
        if call.timeout is not None and not inspect.iscoroutinefunction(call.function):
            own = handle.clock.boottime() + call.timeout
            deadline = own if deadline is None else min(own, deadline)
        self._describe(call.stall or occupant.stall_s, deadline)

    def __exit__(self, *_: object) -> None:
        if self._call.stall is not None or self._call.timeout is not None:
            self._describe(self._before.stall_s, self._before.deadline)

    def _describe(self, stall_s: float, deadline: float | None) -> None:
        handle = self._handle
        handle.occupant = msgspec.structs.replace(handle.occupant, stall_s=stall_s, deadline=deadline)
        handle.record.describe(handle.occupant)


def run_step(context: Context, call: StepCall[T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    """Returns the result of a step of a sync workflow."""
    found = call.begin()
    if found is not None:
        return call.value(context._handle.result_of(found))
    while True:
        try:
            with call.bounded():
                encoded = call.encode(call.function(*args, **kwargs))
        except Exception as error:
            context.pause(call.rest_after(error), f"{call.id} is tried again")
        else:
            break
    context._handle.record_step(call.id, encoded)
    context.beat()
    return call.value(encoded)


async def run_step_async(context: AsyncContext, call: StepCall[T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    """Returns the result of a step of an async workflow. A function that is not async runs in a thread."""
    handle = context._handle
    if not handle.has_read_steps:
        await context.in_thread(lambda: handle.step_log)
    found = call.begin()
    if found is not None:
        return call.value(handle.result_of(found))
    while True:
        try:
            with call.bounded():
                encoded = call.encode(await _run(context, call, args, kwargs))
        except Exception as error:
            await context.pause(call.rest_after(error), f"{call.id} is tried again")
        except BaseException:
            handle.step_log.again(call.id)
            raise
        else:
            break
    await context.in_thread(functools.partial(handle.record_step, call.id, encoded))
    context.beat()
    return call.value(encoded)


async def _run(context: AsyncContext, call: StepCall[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not inspect.iscoroutinefunction(call.function):

        def blocking() -> Any:
            with context.thread():
                return call.function(*args, **kwargs)

        return await asyncio.to_thread(blocking)
    if call.timeout is None:
        return await call.function(*args, **kwargs)
    try:
        async with asyncio.timeout(call.timeout) as bound:
            return await call.function(*args, **kwargs)
    except TimeoutError:
        if not bound.expired():
            raise  # an error of the function's own
        raise StepTimeoutError(call.id.name, call.timeout) from None


@functools.lru_cache(maxsize=512)
def _return_type(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(inspect.unwrap(function), include_extras=True).get("return", Any)
    except Exception:  # a lambda, a partial, a C function, a type that is imported for type checkers only
        return Any


class StepFunction(Generic[P, R]):
    """A function marked `@step`: inside a workflow a call of it is a step; elsewhere it is the plain function."""

    def __init__(self, function: Callable[P, R], name: str, key: str, policy: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function, self.step_name, self._key, self._policy = function, name, key, policy

    def keyed(self, key: str) -> StepFunction[P, R]:
        """Returns the step under a key of its own, for loops: `charge.keyed(order.id)(order)`."""
        return StepFunction(self.function, self.step_name, key, self._policy)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        from tenure.work.context import Context, current_or_none

        context = current_or_none()
        if context is None:
            return self.function(*args, **kwargs)
        call: StepCall[Any] = StepCall(
            context,
            self.step_name,
            self.function,
            self._key,
            self._policy.get("retry"),
            self._policy.get("timeout"),
            self._policy.get("stall"),
        )
        if inspect.iscoroutinefunction(self.function):
            running: Coroutine[Any, Any, Any] = run_step_async(cast("AsyncContext", context), call, args, dict(kwargs))
            return cast("R", running)
        if not isinstance(context, Context):
            raise ArgumentsError(
                f"step {self.step_name!r} is not async, and was called in an async workflow",
                remedy=f"Write `await ctx.step({self.step_name!r}, {self.step_name}, ...)`, which runs it in a thread",
            )
        return cast("R", run_step(context, call, args, dict(kwargs)))


@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...


@overload
def step(
    *, name: str = "", retry: Retry | None = None, timeout: float | None = None, stall: float | None = None
) -> Callable[[Callable[P, R]], StepFunction[P, R]]: ...


def step(function: Any = None, /, *, name: str = "", **policy: Any) -> Any:
    """Mark a function as a step: when a workflow calls it, its result is durable when it returns, and is not computed again."""

    def mark(target: Callable[..., Any]) -> StepFunction[..., Any]:
        return StepFunction(target, name or target.__name__, "", policy)

    return mark if function is None else mark(function)

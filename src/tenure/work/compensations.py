"""`ctx.compensate`: what a workflow wants to have run if its job fails or is cancelled, and the attempt that runs it, the last first.

A compensation is a function of a module and JSON arguments. It is known by its function and its key, or by its number among those of its function, and by
its arguments: code that runs again registers nothing twice. `kept_compensations` has the store. This file decides nothing about jobs.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import threading
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.codec import opened_bytes, sealed_bytes
from tenure.errors import ArgumentsError, LimitError, WorkError
from tenure.work.step_calls import StepFunction

if TYPE_CHECKING:
    from tenure.work.attempt_handle import AttemptHandle
    from tenure.work.context import AsyncContext, Context

MOST_COMPENSATIONS = 1_000
"""The most compensations of one workflow."""
MOST_COMPENSATION_BYTES = 256 << 10
"""The most bytes that they have together: the list is written anew with each."""
MOST_KEY_CHARS = 200


class Compensation(msgspec.Struct, frozen=True, array_like=True):
    """One registered compensation, as the store keeps it."""

    function: str
    """`module:name`; the module is empty where it is the workflow's own, which has another name in each process that runs it as a program."""
    key: str
    arguments: bytes
    """JSON of [positional, named], encoded by the worker's codec where it has one."""

    def __str__(self) -> str:
        return f"{self.function.rpartition(':')[2]}{f' ({self.key})' if self.key else ''}"


_decode_list = msgspec.msgpack.Decoder(list[Compensation]).decode
_decode_kept = msgspec.msgpack.Decoder(tuple[bytes, list[int]]).decode


class Compensations:
    """The compensations of one attempt. Its methods may be called from several threads; they wait for the engine."""

    def __init__(self, handle: AttemptHandle) -> None:
        self._handle, self._lock = handle, threading.Lock()
        self._list: list[Compensation] | None = None
        self._done: set[int] = set()
        self._counts: dict[str, int] = {}

    @property
    def registered(self) -> bool:
        """Returns True when this attempt knows of a compensation."""
        return bool(self._list)

    def add(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str, *, may_await: bool
    ) -> None:
        """Registers a compensation, unless it is registered. It is durable when this returns."""
        if self._handle.delivery.item.undo_of:
            raise WorkError(
                "a compensation cannot register compensations of its own", remedy="Undo it where it is done"
            )
        name = self._name_of(function, may_await=may_await)
        if not isinstance(key, str) or len(key) > MOST_KEY_CHARS:
            raise LimitError("key of a compensation", repr(key)[:100], f"text of at most {MOST_KEY_CHARS} characters")
        arguments = _encoded(function, args, kwargs)
        with self._lock:
            known = self.opened()
            if not key:
                self._counts[name] = count = self._counts.get(name, 0) + 1
                key = f"#{count}"
            about = self._about(name, key)
            codec = self._handle.codec
            if any((one.function, one.key) == (name, key) and self._plain(one) == arguments for one in known):
                return
            fresh = [*known, Compensation(name, key, sealed_bytes(codec, arguments, about) or b"")]
            data = msgspec.msgpack.encode(fresh)
            if len(fresh) > MOST_COMPENSATIONS or len(data) > MOST_COMPENSATION_BYTES:
                raise LimitError(
                    "the compensations of this workflow",
                    f"{len(fresh):,} of {len(data):,} bytes",
                    f"at most {MOST_COMPENSATIONS:,} of {MOST_COMPENSATION_BYTES:,} bytes",
                    remedy="Register one for several steps, and pass it their addresses",
                )
            self._handle.ask_engine(partial(self._handle.delivery.put_compensations, data))
            self._list = fresh

    def left(self) -> list[tuple[int, Compensation]]:
        """Returns (place, compensation) of what was not run yet, the last first."""
        with self._lock:
            known = self.opened()
            return [(place, one) for place, one in reversed(list(enumerate(known))) if place not in self._done]

    def done(self, place: int) -> None:
        """Records that one was run: it is not run again. The checkpoint tells the leader that this attempt came further."""
        handle = self._handle
        handle.ask_engine(partial(handle.delivery.compensated, place))
        self._done.add(place)
        handle.keep(msgspec.json.encode({"compensated": len(self._done)}))

    def call_of(self, one: Compensation) -> Callable[[], Any]:
        """Returns the call that a compensation is. Raises `ArgumentsError` where the function is not there, or its arguments do not fit it."""
        function = self._resolved(one.function)
        if function is None:
            raise ArgumentsError(
                f"the compensation {one} is not in the code of this worker",
                remedy="Deploy code that has it under this name, then: tenure retry JOB~undo",
            )
        args, kwargs = msgspec.json.decode(self._plain(one), type=tuple[list[Any], dict[str, Any]])
        return _bound(function, args, kwargs, str(one))

    def opened(self) -> list[Compensation]:
        """Returns the list of this job's compensations; the first call reads what earlier attempts recorded."""
        if self._list is None:
            if not self._handle.delivery.item.managed:
                raise WorkError(
                    "work without a leader cannot have compensations",
                    remedy="Submit it as a job: tenure submit, Client.submit or embedded()",
                )
            self._list = []
            if self._handle.may_have_steps or self._handle.delivery.item.undo_of:
                kept, done = _decode_kept(self._handle.ask_engine(self._handle.delivery.compensations))
                self._list, self._done = _decode_list(kept) if kept else [], set(done)
        return self._list

    def _about(self, name: str, key: str) -> str:
        occupant = self._handle.occupant
        job = self._handle.delivery.item.undo_of or occupant.job
        return f"compensation {job}/{occupant.workflow_id}/{name}/{key}"

    def _plain(self, one: Compensation) -> bytes:
        return opened_bytes(self._handle.codec, one.arguments, self._about(one.function, one.key)) or b""

    def _name_of(self, function: Callable[..., Any], *, may_await: bool) -> str:
        plain = function.function if isinstance(function, StepFunction) else function
        module, path = getattr(plain, "__module__", ""), getattr(plain, "__qualname__", "")
        own = module == getattr(self._handle.home, "__module__", None)
        name = f"{'' if own else module}:{path}"
        if inspect.iscoroutinefunction(plain) and not may_await:
            raise ArgumentsError(
                f"the compensation {path} is async, and its workflow is not",
                remedy="Make the workflow async, or write the compensation as a plain function",
            )
        if self._resolved(name) not in (plain, function):
            raise ArgumentsError(
                f"the compensation {function!r} cannot be found by its name, which another process has to do",
                remedy="Give ctx.compensate a function at the top level of a module, and what it needs as arguments",
            )
        return name

    def _resolved(self, name: str) -> Callable[..., Any] | None:
        module, _, path = name.partition(":")
        try:
            found: Any = _Names(vars(importlib.import_module(module)) if module else _globals_of(self._handle.home))
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError):
            return None
        return found if callable(found) else None


class _Names:
    """The names of a module, as attributes: one that runs as a program is not importable by its name."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.__dict__.update(names)


def _globals_of(function: Callable[..., Any] | None) -> Mapping[str, Any]:
    return getattr(inspect.unwrap(function), "__globals__", {}) if function is not None else {}


def _encoded(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    named = getattr(function, "__qualname__", repr(function))
    try:
        inspect.signature(function).bind(*args, **kwargs)
        return msgspec.json.encode((args, kwargs))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArgumentsError(
            f"the compensation {named} cannot be called so later: {error}",
            remedy="Pass it arguments that it takes, of plain JSON types, dataclasses or msgspec.Structs",
        ) from error


def _bound(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], words: str) -> Callable[[], Any]:
    """Returns the call, with each argument as its annotation has it."""
    plain = function.function if isinstance(function, StepFunction) else function
    try:
        hints = typing.get_type_hints(inspect.unwrap(plain), include_extras=True)
    except Exception:  # a type that is imported for type checkers only
        hints = {}
    try:
        bound = inspect.signature(plain).bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) and name in hints:
                bound.arguments[name] = msgspec.convert(value, hints[name])
    except (TypeError, msgspec.ValidationError) as error:
        raise ArgumentsError(
            f"the arguments of the compensation {words} do not fit it: {error}",
            remedy="Deploy code that takes them, then: tenure retry JOB~undo",
        ) from error
    return partial(plain, *bound.args, **bound.kwargs)


def run_compensations(context: Context) -> None:
    """Runs what is left of the compensations of a sync workflow, the last first. One that raises ends the attempt; the next one goes on with it."""
    log = context._handle.compensations
    for place, one in log.left():
        context.beat(note=f"compensates: {one}")
        log.call_of(one)()
        log.done(place)


async def run_compensations_async(context: AsyncContext) -> None:
    """Runs what is left of the compensations of an async workflow, the last first. One that is not async runs in a thread."""
    log = context._handle.compensations
    for place, one in await context.in_thread(log.left):
        context.beat(note=f"compensates: {one}")
        call = log.call_of(one)
        if inspect.iscoroutinefunction(typing.cast("partial[Any]", call).func):
            await call()
        else:
            await asyncio.to_thread(_in_own_thread, context, call)
        await context.in_thread(partial(log.done, place))


def _in_own_thread(context: AsyncContext, call: Callable[[], Any]) -> None:
    with context.thread():
        call()

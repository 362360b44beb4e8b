"""Surrounds the attempts of a worker: middleware, resources with clean-up, and hooks.

All three are marked functions at the top level of the modules that a worker serves; nothing is registered globally. A middleware wraps each
attempt and may change its outcome. A resource is made for one attempt, or once for a slot, and handed to the parameters that ask for it. A
hook is told and changes nothing. They run as the work does: inside the attempt, under its clocks.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tenure.errors import ConfigurationError

if TYPE_CHECKING:
    from tenure.work.context import AsyncContext, BaseContext, Context

T = TypeVar("T")
Moment = Literal["slot_start", "slot_end", "attempt_start", "attempt_success", "attempt_failure"]
MOMENTS = typing.get_args(Moment)
_logger = logging.getLogger(__name__)

injected: Any = type("Injected", (), {"__repr__": lambda self: "injected"})()
"""The default of a parameter that a resource fills, for type checkers: `db: Annotated[Session, session] = injected`. Submissions then need none."""


class Middleware:
    """A marked generator function: what is before its `yield` runs before an attempt's function, what is after it runs after."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.name = function, _name(function)
        self.is_async = inspect.isasyncgenfunction(function)
        if not self.is_async and not inspect.isgeneratorfunction(function):
            raise ConfigurationError(
                f"middleware {self.name} does not yield",
                remedy=f"Write: def {self.name}(ctx): ... yield ..., and the work runs at the yield",
            )
        self._open: Callable[..., Any] = (asynccontextmanager if self.is_async else contextmanager)(function)

    def around(self, context: BaseContext) -> Any:
        return self._open(context)


class Resource:
    """A marked function that makes a value, and cleans up behind its `yield`."""

    def __init__(self, function: Callable[..., Any], per: str) -> None:
        self.function, self.name, self.per = function, _name(function), per
        if per not in ("attempt", "slot"):
            raise ConfigurationError(
                f"resource {self.name} is per {per!r}", remedy="It is per='attempt', or per='slot' for what is shared"
            )
        self.is_async = inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)
        self.wants_context = "ctx" in inspect.signature(function).parameters
        if self.wants_context and per == "slot":
            raise ConfigurationError(
                f"resource {self.name} is made once for a slot, which runs many attempts, and wants a context",
                remedy="Leave ctx out, or make it per='attempt'",
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def needs(self) -> dict[str, Resource]:
        """Returns the resources that this one is made from, by parameter."""
        hints = typing.get_type_hints(self.function, include_extras=True)
        found = resources_among(hints)
        unknown = set(inspect.signature(self.function).parameters) - set(found) - {"ctx"}
        if unknown:
            raise ConfigurationError(
                f"nobody can give {', '.join(sorted(unknown))} to resource {self.name}",
                remedy="It may take ctx, and other resources: db: Annotated[Database, database]",
            )
        return found

    def open(self, given: Mapping[str, Any]) -> AbstractContextManager[Any]:
        if inspect.isgeneratorfunction(self.function):
            return contextmanager(self.function)(**given)
        return _just(self.function, given)

    def open_async(self, given: Mapping[str, Any]) -> AbstractAsyncContextManager[Any]:
        if inspect.isasyncgenfunction(self.function):
            return asynccontextmanager(self.function)(**given)
        return _just_async(self.function, given)


class Hook:
    """A marked function that is told of a moment. What it raises is logged, and changes nothing."""

    def __init__(self, function: Callable[..., Any], moment: str) -> None:
        self.function, self.name, self.moment = function, _name(function), moment
        if moment not in MOMENTS:
            raise ConfigurationError(
                f"hook {self.name} is for {moment!r}, which never comes", remedy=f"Moments are: {', '.join(MOMENTS)}"
            )
        if inspect.iscoroutinefunction(function):
            raise ConfigurationError(
                f"hook {self.name} is async, and nobody would await it",
                remedy="Write it with def; a middleware may be async",
            )

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def middleware(function: Callable[..., Any], /) -> Middleware:
    """Marks a generator function as a middleware of all workflows that the worker serves: `def timed(ctx): ...; yield; ...`.

    The first one in a module is the outermost. An error of the work comes out of the `yield`. One with `async def` fits async workflows only.
    """
    return Middleware(function)


@overload
def resource(function: Callable[..., Any], /) -> Resource: ...


@overload
def resource(*, per: Literal["attempt", "slot"] = "attempt") -> Callable[[Callable[..., Any]], Resource]: ...


def resource(
    function: Callable[..., Any] | None = None, /, *, per: str = "attempt"
) -> Resource | Callable[[Callable[..., Any]], Resource]:
    """Marks a function that makes a value for workflows, and after its `yield` cleans it up.

    A workflow asks for it with a parameter, which is no argument of its jobs: `db: Annotated[Session, session]`. A resource per slot is made
    when it is first asked for, shared by the attempts of the process, and cleaned up when the slot drains.
    """
    if function is not None:
        return Resource(function, per)
    return lambda marked: Resource(marked, per)


def hook(moment: Moment, /) -> Callable[[Callable[..., Any]], Hook]:
    """Marks a function to be told of a moment: `slot_start` and `slot_end` without arguments, `attempt_start` with ctx,
    `attempt_success` with ctx and the result, `attempt_failure` with ctx and the error."""
    return lambda marked: Hook(marked, moment)


def resources_among(hints: Mapping[str, Any]) -> dict[str, Resource]:
    """Returns the resources that annotations name, by parameter."""
    found: dict[str, Resource] = {}
    for name, hint in hints.items():
        for marked in getattr(hint, "__metadata__", ()):
            if isinstance(marked, Resource):
                found[name] = marked
    return found


class Surroundings:
    """The middleware and hooks of one worker's modules, and the resources that its slot holds open."""

    def __init__(self) -> None:
        self._middleware: dict[Middleware, None] = {}
        self._hooks: dict[str, dict[Hook, None]] = {moment: {} for moment in MOMENTS}
        self._lock = threading.RLock()
        self._held: dict[Resource, Any] = {}
        """Values of resources per slot. An async one is the task that makes it."""
        self._stack = AsyncExitStack()
        self._begun = False

    def gather(self, module: ModuleType | None) -> None:
        """Takes what is marked at the top level of a module; what was taken before keeps its place."""
        for value in list(vars(module).values()) if module is not None else ():
            if isinstance(value, Middleware):
                self._middleware[value] = None
            elif isinstance(value, Hook):
                self._hooks[value.moment][value] = None

    def check(self, name: str, resources: Mapping[str, Resource], *, is_async: bool) -> None:
        """Raises `ConfigurationError` when a workflow cannot have what surrounds it."""
        wanted: list[Middleware | Resource] = [*self._middleware, *_all_of(resources)]
        for one in () if is_async else wanted:
            if one.is_async:
                kind = type(one).__name__.lower()
                raise ConfigurationError(
                    f"{kind} {one.name} is async, and workflow {name} is not",
                    remedy=f"Write {one.name} with def, or {name} with async def, or serve them from different modules",
                )

    def surrounds(self, resources: Mapping[str, Resource]) -> bool:
        return bool(self._middleware or resources or any(self._hooks.values()))

    def run(self, context: Context, resources: Mapping[str, Resource], call: Callable[[dict[str, Any]], T]) -> T:
        """Calls the work of a sync attempt with its resources, inside the middleware."""
        self.tell("attempt_start", context)
        try:
            with ExitStack() as stack:
                for one in self._middleware:
                    stack.enter_context(one.around(context))
                made: dict[Resource, Any] = {}
                result = call({name: self._value(one, context, stack, made) for name, one in resources.items()})
        except BaseException as error:
            self.tell("attempt_failure", context, error)
            raise
        self.tell("attempt_success", context, result)
        return result

    async def run_async(
        self, context: AsyncContext, resources: Mapping[str, Resource], call: Callable[[dict[str, Any]], Awaitable[T]]
    ) -> T:
        """As `run`, for an async attempt."""
        self.tell("attempt_start", context)
        try:
            async with AsyncExitStack() as stack:
                for one in self._middleware:
                    around = one.around(context)
                    await (stack.enter_async_context(around) if one.is_async else _entered(stack, around))
                made: dict[Resource, Any] = {}
                given = {name: await self._value_async(one, context, stack, made) for name, one in resources.items()}
                result = await call(given)
        except BaseException as error:
            self.tell("attempt_failure", context, error)
            raise
        self.tell("attempt_success", context, result)
        return result

    def _value(
        self, wanted: Resource, context: BaseContext, stack: ExitStack | AsyncExitStack, made: dict[Resource, Any]
    ) -> Any:
        if wanted.per == "slot":
            return self._slot_value(wanted)
        if wanted not in made:
            given = {name: self._value(one, context, stack, made) for name, one in wanted.needs().items()}
            made[wanted] = stack.enter_context(wanted.open(given | _ctx(wanted, context)))
        return made[wanted]

    def _slot_value(self, wanted: Resource) -> Any:
        with self._lock:  # attempts in threads may ask for it at once
            if wanted not in self._held:
                given = {name: self._slot_value(one) for name, one in _shared(wanted).items()}
                self._held[wanted] = self._stack.enter_context(wanted.open(given))
            return self._held[wanted]

    async def _value_async(
        self, wanted: Resource, context: BaseContext, stack: AsyncExitStack, made: dict[Resource, Any]
    ) -> Any:
        if wanted.per == "slot":
            return await self._slot_value_async(wanted)
        if wanted not in made:
            needs = wanted.needs().items()
            given = {name: await self._value_async(one, context, stack, made) for name, one in needs}
            given |= _ctx(wanted, context)
            opened = stack.enter_async_context(wanted.open_async(given)) if wanted.is_async else None
            made[wanted] = await opened if opened is not None else stack.enter_context(wanted.open(given))
        return made[wanted]

    async def _slot_value_async(self, wanted: Resource) -> Any:
        if not wanted.is_async:
            return self._slot_value(wanted)
        if wanted not in self._held:
            # A task of its own: an attempt that is cancelled while it waits must not end what others wait for too.
            self._held[wanted] = asyncio.get_running_loop().create_task(self._open_shared(wanted))
        try:
            return await asyncio.shield(self._held[wanted])
        except Exception:
            self._held.pop(wanted, None)  # the next attempt tries again
            raise

    async def _open_shared(self, wanted: Resource) -> Any:
        given = {name: await self._slot_value_async(one) for name, one in _shared(wanted).items()}
        return await self._stack.enter_async_context(wanted.open_async(given))

    def tell(self, moment: Moment, *about: Any) -> None:
        for one in self._hooks[moment]:
            try:
                one(*about)
            except Exception:
                _logger.exception("Hook %s failed at %s; the work goes on", one.name, moment)

    def begin(self) -> None:
        """Tells the start of the slot. Call it once the slot serves."""
        self._begun = True
        self.tell("slot_start")

    async def end(self) -> None:
        """Cleans up the resources of the slot, and tells its end. Call it when no attempt runs any more, on the loop that made them."""
        self._held.clear()
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            await stack.aclose()
        except Exception:
            _logger.exception("The clean-up of a slot's resources failed")
        if self._begun:
            self.tell("slot_end")


def _all_of(resources: Mapping[str, Resource], above: tuple[Resource, ...] = ()) -> Iterator[Resource]:
    """Yields resources with those that they are made from. Raises for a circle."""
    for one in resources.values():
        if one in above:
            raise ConfigurationError(
                f"resource {one.name} is made from itself: {' from '.join(step.name for step in (*above, one))}",
                remedy="Break the circle",
            )
        yield one
        yield from _all_of(_shared(one) if one.per == "slot" else one.needs(), (*above, one))


def _shared(wanted: Resource) -> dict[str, Resource]:
    needs = wanted.needs()
    for one in needs.values():
        if one.per != "slot":
            raise ConfigurationError(
                f"resource {wanted.name} lives as long as its slot, and is made from {one.name}, which ends with an attempt",
                remedy=f"Make {one.name} per='slot', too",
            )
        if one.is_async and not wanted.is_async:
            raise ConfigurationError(
                f"resource {wanted.name} is made from {one.name}, which is async",
                remedy=f"Write {wanted.name} async, too",
            )
    return needs


def _ctx(wanted: Resource, context: BaseContext) -> dict[str, Any]:
    return {"ctx": context} if wanted.wants_context else {}


async def _entered(stack: AsyncExitStack, around: AbstractContextManager[Any]) -> Any:
    return stack.enter_context(around)


@contextmanager
def _just(function: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[Any]:
    yield function(**given)


@asynccontextmanager
async def _just_async(function: Callable[..., Any], given: Mapping[str, Any]) -> AsyncIterator[Any]:
    yield await function(**given)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))

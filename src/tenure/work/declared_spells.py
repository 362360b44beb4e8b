"""The spells of work that a context declares: items that it goes through, quiet spells, and polling. They beat for the work, or excuse it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from tenure.errors import Cancelled, LimitError, Permanent, WorkError

if TYPE_CHECKING:
    from tenure.work.context import AsyncContext, BaseContext, Context

ItemT = TypeVar("ItemT")


class Tracked(Generic[ItemT]):
    """Items that beat as they are consumed."""

    def __init__(self, context: BaseContext, items: Iterable[ItemT] | AsyncIterable[ItemT], total: int | None) -> None:
        self._context, self._items, self._total = context, items, total

    def __iter__(self) -> Iterator[ItemT]:
        if not isinstance(self._items, Iterable):
            raise WorkError("these items come asynchronously", remedy="Write `async for`")
        done = self._begin()
        for number, item in enumerate(self._items, 1):
            yield item
            done(number)
        self._context._handle.end_count()

    async def __aiter__(self) -> AsyncIterator[ItemT]:
        done, number = self._begin(), 0
        if isinstance(self._items, AsyncIterable):
            async for item in self._items:
                yield item
                number += 1
                done(number)
        else:
            for item in self._items:
                yield item
                number += 1
                done(number)
        self._context._handle.end_count()

    def _begin(self) -> Callable[[int], None]:
        """Beats, begins a new count, and returns the function that counts an item."""
        self._context.beat()
        handle = self._context._handle
        handle.mark.begin_count()
        return handle.record.item_port(handle.mark, self._total or 0, self._context.beat)


class DeclaredPolling:
    """Honest polling: it is declared, bounded, and each turn is a beat."""

    def __init__(self, context: BaseContext, every_s: float, most_s: float, why: str) -> None:
        if not 0 < every_s <= most_s <= 7 * 86_400:
            raise LimitError("polling every_s, most_s", (every_s, most_s), "above 0, in this order, and at most 7 days")
        self._context, self._every_s, self._most_s, self._why = context, every_s, most_s, why

    @contextmanager
    def _declared(self) -> Iterator[float]:
        handle, until = self._context._handle, self._context._monotonic() + self._most_s
        handle.record.set_polling(until)
        try:
            yield until
        finally:
            # The end of a poll is news: either it is there, or the work goes on without it.
            handle.show(binds=handle.mark.bound)
            handle.record.set_polling(0.0)

    def _turn(self) -> None:
        self._context.beat(note=f"polls every {self._every_s:g} s: {self._why}")

    def _pause_s(self, until: float) -> float:
        """Returns the seconds until the next turn, 0 or less when the time is over."""
        return min(self._every_s, until - self._context._monotonic())


class Polling(DeclaredPolling):
    """The turns of a sync workflow."""

    def __iter__(self) -> Iterator[None]:
        context = cast("Context", self._context)
        with self._declared() as until:
            while True:
                self._turn()
                yield
                if (seconds := self._pause_s(until)) <= 0:
                    return
                context.sleep(seconds)


class AsyncPolling(DeclaredPolling):
    """The turns of an async workflow."""

    async def __aiter__(self) -> AsyncIterator[None]:
        context = cast("AsyncContext", self._context)
        with self._declared() as until:
            while True:
                self._turn()
                yield
                if (seconds := self._pause_s(until)) <= 0:
                    return
                await context.sleep(seconds)


class NamedWait:
    """Names what the work waits for, while the block lasts. Enter it with `with` or `async with`.

    An error that leaves the block is a failure of what it names. When most of those that wait for one name are in trouble, it is down, and the
    clocks of all of them stand still (decision 0366).
    """

    def __init__(self, context: BaseContext, name: str, *, errors: bool = True) -> None:
        if not 0 < len(name) <= 200 or not name.isprintable():
            raise LimitError("the name of what it waits for", name[:200], "1 to 200 printable characters")
        self._context, self._name, self._outer, self._errors = context, name, "", errors

    def __enter__(self) -> None:
        self._outer = self._context._handle.occupant.waits_on
        self._context._wait_on(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handle = self._context._handle
        if not self._errors:
            pass
        elif isinstance(error, Exception) and not isinstance(error, Cancelled | Permanent):
            handle.failed_on = (self._name, error)
            handle.record.call_failed(True)
        elif error is None:
            handle.record.call_failed(False)
        self._context._wait_on(self._outer)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


class DeclaredSilence:
    """A declared quiet spell; enter it with `with` or `async with`.

    Neither entering nor leaving it is a step (only content is progress). So a second one needs a step before it: work that goes from one
    silence into the next gets nowhere, and its stall clock runs on.
    """

    def __init__(self, context: BaseContext, max_s: float, why: str, on: str = "") -> None:
        if not 0 < max_s <= 86_400:
            raise LimitError("silence max_s", max_s, "above 0 and at most 86,400 s")
        self._context, self._max_s, self._why = context, max_s, why
        self._waits = NamedWait(context, on) if on else None
        self._excused, self._outer_until = False, 0.0

    def __enter__(self) -> None:
        context, record = self._context, self._context._handle.record
        context.raise_if_cancelled()
        if self._waits is not None:
            self._waits.__enter__()
        context._tell(None, f"silent for up to {self._max_s:g} s: {self._why}", None, None)
        self._excused = record.steps != context._silence_steps
        if self._excused:
            self._outer_until = record.silent_until  # of a silence around this one
            record.set_silence(max(self._outer_until, context._monotonic() + self._max_s))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context, record = self._context, self._context._handle.record
        if self._excused:
            # Its beat is behind it by as much as it was silent: within the bound, the stall clock starts anew.
            record.touch(min(context._monotonic(), record.silent_until))
            record.set_silence(self._outer_until)
        context._silence_steps = record.steps
        if self._waits is not None:
            self._waits.__exit__(kind, error, trace)
        if kind is None:
            context._tell(None, "", None, None)
            context.raise_if_cancelled()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

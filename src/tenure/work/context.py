"""The contexts of sync and async workflows, `ctx`: what differs between them is how they wait. `base_context` has what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tenure.attempt_data import Signal
from tenure.backoff import Retry
from tenure.work.async_child_submissions import AsyncChildSubmissions
from tenure.work.base_context import (
    LOOK_EVERY_S,
    BaseContext,
    await_with_context,
    current,
    current_or_none,
    run_with_context,
)
from tenure.work.child_submissions import ChildSubmissions
from tenure.work.declared_spells import AsyncPolling, Polling
from tenure.work.step_calls import StepCall, run_step, run_step_async
from tenure.work.subprocesses import Finished, run_command, run_command_async
from tenure.work.wait_calls import IN_SLOT_S, awaited, seconds_until

if TYPE_CHECKING:
    from tenure.work.job_submission import AsyncChildJob, ChildJob

__all__ = [
    "LOOK_EVERY_S",
    "AsyncContext",
    "BaseContext",
    "Context",
    "await_with_context",
    "current",
    "current_or_none",
    "run_with_context",
]

T = TypeVar("T")


class Context(ChildSubmissions):
    """`ctx` of a sync workflow."""

    def checkpoint(self, data: Any) -> None:
        """Save where the work is; the next attempt finds it in `ctx.resume`. Returns when it is durable."""
        self.save(data)
        self.beat()

    def emit(self, *items: Any) -> None:
        """Append items to the job's output, which `client.output`, `tenure output` and the API give out while it runs. Durable when it returns.

        An item is known by its place: what a later attempt emits again is there already (docs/waiting.md).
        """
        self._handle.output.emit(items)
        self.beat()

    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        key: str = "",
        retry: Retry | None = None,
        timeout: float | None = None,
        stall: float | None = None,
        **kwargs: Any,
    ) -> T:
        """Call a function once: its result is durable when this returns, and later attempts of this workflow get it from there.

        `key` tells repeated steps of one name apart. `retry` is for this step alone. Past `timeout` the attempt ends; `stall` is the longest
        silence between its beats.
        """
        return run_step(self, StepCall(self, name, function, key, retry, timeout, stall), args, kwargs)

    def compensate(self, function: Callable[..., Any], /, *args: Any, key: str = "", **kwargs: Any) -> None:
        """Have a function called if the job fails, is cancelled or times out: `ctx.compensate(refund, charge_id)`. Durable when it returns.

        They run the last first, in a job of their own (`JOB~undo`), with any worker that serves this workflow. The function stands at the top level of
        a module, and its arguments are JSON. Registering the same again changes nothing (docs/waiting.md).
        """
        self._handle.compensations.add(function, args, kwargs, key, may_await=False)
        self.beat()

    def sleep(
        self, seconds: float = 0.0, *, days: float = 0.0, hours: float = 0.0, minutes: float = 0.0, key: str = ""
    ) -> None:
        """Do nothing for a while. A span in days, hours or minutes, and seconds beyond 15 minutes, give the slot back (docs/waiting.md)."""
        after_s, plain = self._span(seconds, days, hours, minutes)
        if self._stays(after_s, plain):
            self.pause(after_s, "sleep")
        else:
            self._waits.sleep(self._waits.step_for("sleep", "sleep", key), after_s)
            self.beat()

    def wait_until(self, when: datetime | float, *, key: str = "") -> None:
        """Go on at this time: Unix time, or a `datetime` with a zone. Gives the slot back."""
        after_s = seconds_until(when, self._handle.clock.wall())
        step = self._waits.step_for("until", "time", key)
        if after_s > IN_SLOT_S:
            self._waits.sleep(step, after_s)
        elif after_s:
            self.pause(after_s, "wait_until")

    def wait_event(self, name: str, *, timeout: float | None = None, key: str = "") -> Any:
        """Return the payload of the next signal of this name, and give the slot back until it comes. Raises `WaitTimeoutError`."""
        payload = self._waits.event(self._waits.step_for("event", name, key), timeout)
        self.beat()
        return payload

    def poll_events(self) -> tuple[Signal, ...]:
        """Ask for the signals that came since, at most once a second, and return all that the job has got, oldest first. It waits for none."""
        self._handle.events.ask()
        return self.events

    def wait_job(self, child: ChildJob[T]) -> T:
        """Return a child's result, and give the slot back until it has ended. Raises `JobFailed`."""
        return cast("T", self.gather([child])[0])

    def gather(self, children: Sequence[ChildJob[Any]]) -> list[Any]:
        """Return the results of children, in their order, and give the slot back until all have ended. Raises `JobFailed`."""
        found = self._waits.jobs(children)
        self.beat()
        return found

    def pause(self, seconds: float, why: str) -> None:
        """Wait inside the slot, as a declared silence that ends early on cancellation."""
        handle = self._handle
        until = self._monotonic() + seconds
        with self.silence(seconds + 1.0, why):
            while (left := until - self._monotonic()) > 0:
                self.raise_if_cancelled()
                with handle.changed:
                    # A cancellation notifies; the bound is for a lost one.
                    handle.clock.wait(handle.changed, min(left, 30.0))
        self.beat()  # a silence is no step, and work that slept goes on

    def polling(self, every_s: float, most_s: float, why: str) -> Polling:
        """Look at something every `every_s` seconds, for `most_s` at most: `for _ in ctx.polling(30, 3600, "the export"):`.

        Each turn is a beat, and nothing new is expected meanwhile. Leave the loop with `break` when it is there; its `else` branch runs
        when it never came.
        """
        return Polling(self, every_s, most_s, why)

    def run(self, command: list[str], **options: Any) -> Finished:
        """Run a program with one beat per line of its output; it and its children end with this attempt."""
        return run_command(self, command, **options)


class AsyncContext(AsyncChildSubmissions):
    """`ctx` of an async workflow: what waits is awaited."""

    async def checkpoint(self, data: Any) -> None:
        """Save where the work is; the next attempt finds it in `ctx.resume`. Returns when it is durable."""
        encoded = self._encode_checkpoint(data)
        await self.in_thread(partial(self._handle.keep, encoded))
        self.beat()

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Await a call that waits for the engine or the managers."""
        return await asyncio.to_thread(call)

    async def emit(self, *items: Any) -> None:
        """Append items to the job's output; see `Context.emit`. Emit from one task at a time."""
        await self.in_thread(partial(self._handle.output.emit, items))
        self.beat()

    async def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T] | T],
        /,
        *args: Any,
        key: str = "",
        retry: Retry | None = None,
        timeout: float | None = None,
        stall: float | None = None,
        **kwargs: Any,
    ) -> T:
        """Call a function once; see `Context.step`. One that is not async runs in a thread. Steps that run at once have no order."""
        return await run_step_async(self, StepCall(self, name, function, key, retry, timeout, stall), args, kwargs)

    async def compensate(self, function: Callable[..., Any], /, *args: Any, key: str = "", **kwargs: Any) -> None:
        """Have a function called if the job fails, is cancelled or times out; see `Context.compensate`. It may be async."""
        await self.in_thread(partial(self._handle.compensations.add, function, args, kwargs, key, may_await=True))
        self.beat()

    async def sleep(
        self, seconds: float = 0.0, *, days: float = 0.0, hours: float = 0.0, minutes: float = 0.0, key: str = ""
    ) -> None:
        """Do nothing for a while; see `Context.sleep`."""
        after_s, plain = self._span(seconds, days, hours, minutes)
        if self._stays(after_s, plain):
            await self.pause(after_s, "sleep")
        else:
            await awaited(self, partial(self._waits.sleep, self._waits.step_for("sleep", "sleep", key), after_s))
            self.beat()

    async def wait_until(self, when: datetime | float, *, key: str = "") -> None:
        """Go on at this time; see `Context.wait_until`."""
        after_s = seconds_until(when, self._handle.clock.wall())
        step = self._waits.step_for("until", "time", key)
        if after_s > IN_SLOT_S:
            await awaited(self, partial(self._waits.sleep, step, after_s))
        elif after_s:
            await self.pause(after_s, "wait_until")

    async def wait_event(self, name: str, *, timeout: float | None = None, key: str = "") -> Any:
        """Return the payload of the next signal of this name; see `Context.wait_event`."""
        payload = await awaited(self, partial(self._waits.event, self._waits.step_for("event", name, key), timeout))
        self.beat()
        return payload

    async def poll_events(self) -> tuple[Signal, ...]:
        """Ask for the signals that came since; see `Context.poll_events`."""
        await self.in_thread(self._handle.events.ask)
        return self.events

    async def wait_job(self, child: AsyncChildJob[T]) -> T:
        """Return a child's result; see `Context.wait_job`."""
        return cast("T", (await self.gather([child]))[0])

    async def gather(self, children: Sequence[AsyncChildJob[Any]]) -> list[Any]:
        """Return the results of children; see `Context.gather`."""
        found: list[Any] = await awaited(self, partial(self._waits.jobs, children))
        self.beat()
        return found

    async def pause(self, seconds: float, why: str) -> None:
        """Wait inside the slot, as a declared silence."""
        async with self.silence(seconds + 1.0, why):
            await self._handle.clock.async_sleep(seconds)
        self.beat()

    def polling(self, every_s: float, most_s: float, why: str) -> AsyncPolling:
        """Look at something every `every_s` seconds, for `most_s` at most: `async for _ in ctx.polling(30, 3600, "the export"):`.

        Each turn is a beat, and nothing new is expected meanwhile. Leave the loop with `break` when it is there; its `else` branch runs
        when it never came.
        """
        return AsyncPolling(self, every_s, most_s, why)

    async def run(self, command: list[str], **options: Any) -> Finished:
        """Run a program with one beat per line of its output; it and its children end with this attempt."""
        return await run_command_async(self, command, **options)

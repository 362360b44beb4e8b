"""Calls that block, made from an event loop: a disk or an engine may be slow, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def off_loop(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `call` in a thread and returns its result. The blocking twin of the caller makes the call itself."""
    return await asyncio.to_thread(call, *args, **kwargs)


async def awaited(value: T | Awaitable[T]) -> T:
    """Returns the value, awaited where it can be: a hook that users write may be async or not. The blocking twin takes it as it is."""
    return await value if inspect.isawaitable(value) else value

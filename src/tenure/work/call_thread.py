"""A thread that makes calls one after another, so that the caller does not wait for them.

Loops that work in an event loop need it: a beat there may have to renew a lease, and the engine's answer would block the event loop.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from tenure.engines.contracts import Mailbox
from tenure.engines.memory.mailbox import MemoryMailbox

_logger = logging.getLogger(__name__)

HandOver = Callable[[Callable[[], None]], object]
"""Takes a call and has it made soon."""


class CallThread:
    """Makes calls in one thread. Use it in a `with`: leaving it ends the thread after the calls that it has taken."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: an engine that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._deliver, name=f"tenure-calls-{name}", daemon=True)

    def take(self, call: Callable[[], None]) -> None:
        """Queues a call and returns at once. The thread logs what the call raises."""
        self._calls.put(call)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._calls.put(None)

    def _deliver(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                _logger.exception("A call that was handed over failed")


@contextmanager
def call_thread_for(mailbox: Mailbox[Any, Any], name: str) -> Iterator[HandOver | None]:
    """Yields a thread's `take`, which makes the engine calls of a loop that works in an event loop.

    Yields None for the memory engine, which never blocks: there a test in manual time does the same thing every time.
    """
    if isinstance(mailbox, MemoryMailbox):
        yield None
        return
    with CallThread(name) as thread:
        yield thread.take

"""The messages of a loop: those of one claim that wait for their turn, and the policy that gives a message up.

Nothing is stranded behind work that runs long. What waits has only a short, provisional lease, which does not count as a delivery; it is
given back on the first beat after a while, and by the lease itself when no beat comes.
"""

from __future__ import annotations

import logging
import math
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Generic, Self

from tenure.beat.heartbeat import Heartbeat
from tenure.engines.contracts import BodyT, Mailbox, Message, ReplyT
from tenure.engines.memory.mailbox import MemoryMailbox
from tenure.errors import LimitError, ReceiptHandleExpiredError, TenureError
from tenure.work.retry_verdict import ANY_ERROR, Errors

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


CLAIM_S = 30.0
"""The lease of a claim that waits its turn."""
_PATIENCE_S = CLAIM_S / 3


class Batch(Generic[BodyT, ReplyT]):
    """Hands out the messages of one claim in turn, and gives back those that would wait for too long."""

    def __init__(
        self,
        messages: Sequence[Message[BodyT, ReplyT]],
        give_back: Callable[[Message[BodyT, ReplyT]], None],
    ) -> None:
        self._give_back = give_back
        # Popped by the loop and by whichever thread beats: each message goes to exactly one of them.
        self._waiting = deque(messages)

    def start_next(self, lease_s: float | None) -> Message[BodyT, ReplyT] | None:
        """Returns the next message. Its claim becomes a lease of so many seconds (None: it has its full lease already)."""
        while (message := self._take()) is not None:
            if lease_s is None:
                return message
            try:
                message.extend_visibility(lease_s)
            except ReceiptHandleExpiredError:
                continue  # its short lease is over: it never started, so it does not count, and another consumer may have it
            except TenureError as error:
                if not error.retryable:
                    raise
                _logger.warning("Message %s could not be started, and its claim runs out: %s", message.id, error)
                continue
            return message
        return None

    @contextmanager
    def patience(self, heartbeat: Heartbeat, hand_over: HandOver | None = None) -> Iterator[None]:
        """While the block lasts, a beat that comes after ten seconds gives the waiting messages back, or has that done."""
        if not self._waiting:
            yield
            return

        def on_beat(_now: float, _gap: float) -> None:
            watch.due = math.inf
            if hand_over is None:
                self.give_back()
            else:
                hand_over(self.give_back)

        watch = heartbeat.watch(on_beat, due=heartbeat.clock.monotonic() + _PATIENCE_S)
        try:
            yield
        finally:
            heartbeat.unwatch(watch)

    def give_back(self) -> None:
        """Release everything that was not started, the last one first: each goes back to the head of the queue."""
        while True:
            try:
                message = self._waiting.pop()
            except IndexError:
                return
            self._give_back(message)

    def _take(self) -> Message[BodyT, ReplyT] | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None


class OnLeaseLost(StrEnum):
    """The loop's reaction when the work in hand loses its lease."""

    CONTINUE = "continue"  # it goes on, and its result is discarded (document 003)
    CANCEL = "cancel"  # its next beat raises LeaseLostError


class Ending(StrEnum):
    """The end of one delivery."""

    DONE = "done"
    FAILED = "failed"  # nacked: it comes again after a while
    DEAD_LETTER = "dead letter"
    LOST = "lost"  # the lease was gone before it could be settled
    RELEASED = "released"  # given back unstarted


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """Decides which failed messages become dead letters.

    Attributes:
        max_delivery_count: A message that failed in this many attempts is given up. A replayed dead letter begins anew.
        include_errors: Errors that are given up at the first time: a retry cannot help.
        exclude_errors: Errors that say nothing about the message (the database is down): they never make it a dead letter,
            whatever the count. Where an error is in both, this wins: giving up cannot be taken back, waiting can.
    """

    max_delivery_count: int = 5
    include_errors: Errors = ()
    exclude_errors: Errors = ()

    def __post_init__(self) -> None:
        if self.max_delivery_count < 1:
            raise LimitError("max_delivery_count", self.max_delivery_count, "1 or more")
        for field in ("include_errors", "exclude_errors"):
            for kind in getattr(self, field):
                if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                    raise LimitError(field, repr(kind), "exception classes")

    def verdict(self, attempt: int, error: BaseException) -> str | None:
        """Returns why a message is to be given up whose work raised this in this attempt; None to let it come back.

        Pass `Message.attempt`, which leaves out deliveries that were handed over through no fault of the work.
        """
        if isinstance(error, self.exclude_errors):
            return None
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if isinstance(error, self.include_errors) or ANY_ERROR.verdict(error).final:
            return f"{what} (not worth a retry)"
        if attempt >= self.max_delivery_count:
            return f"failed in attempt {attempt} of {self.max_delivery_count}: {what}"
        return None


KEEP_TRYING = DeadLetterPolicy(max_delivery_count=sys.maxsize)
"""The policy of a loop that was given none: the mailbox's own `max_delivery_count` bounds the attempts, and `Permanent` ends them."""

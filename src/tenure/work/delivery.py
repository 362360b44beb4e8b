"""One delivery of work as a slot sees it, the handle of the attempt that runs it, and the reasons to end an attempt.

A slot, its attempts and their contexts use `WorkDelivery` and nothing else of an engine. `EngineDelivery` is today's way: an engine of the
slot's own. Each method is one request with one answer and passes plain data, so that the supervisor's channel can take the engine's place.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from tenure.backoff import Retry
from tenure.beat.board import BeatRecord, Occupant
from tenure.clock import Clock
from tenure.engines.contracts import Fence, Message, Ticket
from tenure.errors import ReceiptHandleExpiredError
from tenure.work.envelope import WorkItem, WorkResult

if TYPE_CHECKING:
    from tenure.work.children import JobCourier
    from tenure.work.runner import Settler

WorkMessage = Message[WorkItem, WorkResult]


class WorkDelivery(ABC):
    """A claimed delivery. Its methods may be called from several threads; all but `release` fail once the lease is lost."""

    def __init__(self, item: WorkItem, queue: str, ticket: Ticket, saved: bytes | None) -> None:
        self.item, self.queue, self.ticket = item, queue, ticket
        self.saved = saved
        """The checkpoint of the delivery before this one."""
        self.lease_until = ticket.lease_until
        """The boot time at which the claim's lease is lost. The supervisor's extensions are on the board, not here."""

    @property
    def fence(self) -> Fence:
        return Fence(self.ticket.generation, self.ticket.delivery_count)

    @property
    def attempt(self) -> int:
        """Returns which try this is, as limits count them: deliveries that were handed over are no tries."""
        return self.ticket.delivery_count - self.ticket.forgiven

    @abstractmethod
    def extend(self, seconds: float) -> float:
        """Extends the lease and returns the boot time until which it is ours."""

    @abstractmethod
    def checkpoint(self, data: bytes | None) -> None:
        """Starts the delivery, so that the engine counts it, and saves the data, if any. It is durable when this returns."""

    @abstractmethod
    def settle(self, result: WorkResult, retry: Retry) -> str:
        """Tries once to settle the outcome, by the policy of the item and of its function. Returns a word on how that ended."""

    @abstractmethod
    def release(self) -> None:
        """Gives the work back through no fault of its own. This delivery does not count."""

    @abstractmethod
    def courier(self) -> JobCourier:
        """Returns the way to the managers, which submits further jobs and looks after them."""


class EngineDelivery(WorkDelivery):
    """A delivery in a process that has an engine of its own."""

    def __init__(
        self,
        message: WorkMessage,
        queue: str,
        settler: Settler,
        clock: Clock,
        courier: Callable[[], JobCourier] | None = None,
    ) -> None:
        super().__init__(message.body, queue, message.ticket, message.checkpoint)
        self._message, self._settler, self._clock, self._courier = message, settler, clock, courier

    def extend(self, seconds: float) -> float:
        return extend_message(self._message, seconds, self._clock)

    def checkpoint(self, data: bytes | None) -> None:
        # 0 s: the expiry is the supervisor's to move.
        self._message.extend_visibility(0, data)

    def settle(self, result: WorkResult, retry: Retry) -> str:
        return self._settler.settle(self._message, result, managed=self.item.managed, retry=retry)

    def release(self) -> None:
        self._message.release()

    def courier(self) -> JobCourier:
        from tenure.work.children import no_courier  # most workflows submit nothing, and a slot shall start quickly

        return (self._courier or no_courier)()


def extend_message(message: Message[Any, Any], seconds: float, clock: Clock) -> float:
    """Extends a lease, and returns the boot time until which it holds.

    The time is counted from before the call: the engine began to count later, so we never believe in a lease that is over.
    """
    asked = clock.boottime()
    message.extend_visibility(seconds)
    return asked + seconds


class CancelCode(IntEnum):
    """The reason for which the supervisor, or the slot itself, ends an attempt. The board stores the number."""

    NONE = 0
    CANCEL = 1
    STALL = 2
    TIMEOUT = 3
    LEASE_LOST = 4
    DRAIN = 5
    UNSETTLED = 6


CANCEL_REASONS = {
    CancelCode.CANCEL: "cancelled by request",
    CancelCode.STALL: "no beat within the stall threshold",
    CancelCode.TIMEOUT: "past the deadline of this attempt",
    CancelCode.LEASE_LOST: "the lease was lost; another delivery may be running",
    CancelCode.DRAIN: "the worker is shutting down",
    CancelCode.UNSETTLED: "its outcome could not be handed over",
}


class AttemptHandle:
    """Holds the record on the board, the delivery and the clock of one attempt. The context and the runner use it from several threads."""

    def __init__(
        self,
        record: BeatRecord,
        delivery: WorkDelivery,
        occupant: Occupant,
        clock: Clock,
    ) -> None:
        self.record, self.delivery, self.occupant, self.clock = record, delivery, occupant, clock
        self.trace = ""
        """The id of the trace that this attempt belongs to, for its logs."""
        self.cancel_code = CancelCode.NONE
        """Set once, under `changed`: the first reason stays."""
        self.resumed_from: bytes | None = delivery.saved
        self.saved: bytes | None = delivery.saved
        self.changed = threading.Condition()
        """Notified by `cancel`, so that a sleeping workflow wakes at once."""
        self.on_cancel: list[Callable[[], object]] = []

    def cancel(self, code: CancelCode) -> None:
        """Asks the attempt to end. A second call changes nothing: the first reason stays."""
        with self.changed:
            if self.cancel_code is not CancelCode.NONE:
                return
            self.cancel_code = code
            self.changed.notify_all()
        for call in self.on_cancel:
            call()

    def look(self) -> None:
        """Cancels the attempt if the board says so, or if its lease is over. A stopped supervisor writes no cancel, hence the second."""
        asked = self.record.cancel_requested
        if asked:
            self.cancel(CancelCode(asked))
        elif self.lease_is_over:
            self.cancel(CancelCode.LEASE_LOST)

    @property
    def lease_is_over(self) -> bool:
        """Returns True when the lease is over by our own clock. Nothing may start then, because another worker may have the work."""
        return self.clock.boottime() >= self.record.lease_until

    def confirm_start(self) -> None:
        """Makes sure that the engine counts this delivery before its fence is used outside.

        The supervisor's first extension does so too; a lease that has moved shows that it did.
        """
        if self.record.lease_until <= self.occupant.ticket.lease_until:
            self.keep(None)

    def keep(self, checkpoint: bytes | None) -> None:
        try:
            self.delivery.checkpoint(checkpoint)
            if checkpoint is not None:
                self.saved = checkpoint
        except ReceiptHandleExpiredError:
            self.cancel(CancelCode.LEASE_LOST)
            raise

"""The handle of one running attempt, which the workflow's context and its runner share, and the reasons to end an attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import IntEnum

from tenure.beat.board import BeatRecord, Occupant
from tenure.clock import Clock
from tenure.errors import ReceiptHandleExpiredError
from tenure.work.delivery import WorkDelivery


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

"""Where one attempt runs, and why it is asked to end: what the context of a workflow and its runner share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from tenure.beat.board import Occupant, Record
from tenure.clock import Clock
from tenure.engines.contracts import Message
from tenure.errors import ReceiptHandleExpiredError

if TYPE_CHECKING:
    from tenure.work.children import JobCourier


class CancelCode(IntEnum):
    """Why the supervisor, or the slot itself, ends an attempt. Written to the board."""

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
    """Where one attempt runs: its record on the board, its message, its clock. Shared by the context and its runner."""

    def __init__(
        self,
        record: Record,
        message: Message[Any, Any],
        occupant: Occupant,
        clock: Clock,
        courier: Callable[[], JobCourier] | None = None,
    ) -> None:
        self.record, self.message, self.occupant, self.clock = record, message, occupant, clock
        self.courier = courier
        self.trace = ""
        """The id of the trace that this attempt belongs to, for its logs."""
        self.cancel_code = CancelCode.NONE
        self.resumed_from: bytes | None = message.checkpoint
        self.saved: bytes | None = message.checkpoint
        self.changed = threading.Condition()
        self.on_cancel: list[Callable[[], object]] = []

    def cancel(self, code: CancelCode) -> None:
        """Ask the attempt to end. The first reason stays."""
        with self.changed:
            if self.cancel_code is not CancelCode.NONE:
                return
            self.cancel_code = code
            self.changed.notify_all()
        for call in self.on_cancel:
            call()

    def look(self) -> None:
        """Take over what the board says, and count our own lease down in case the supervisor is stopped."""
        asked = self.record.cancel_requested
        if asked:
            self.cancel(CancelCode(asked))
        elif self.lease_is_over:
            self.cancel(CancelCode.LEASE_LOST)

    @property
    def lease_is_over(self) -> bool:
        """By our own clock; then nothing may start, because another worker may have it."""
        return self.clock.boottime() >= self.record.lease_until

    def confirm_start(self) -> None:
        """Make sure that the engine counts this delivery, before its fence is used for anything outside.

        The supervisor's first extension does it as well; a lease that moved says that it has.
        """
        if self.record.lease_until <= self.occupant.ticket.lease_until:
            self.keep(None)

    def keep(self, checkpoint: bytes | None) -> None:
        try:
            # 0 s: the expiry is the supervisor's to move; this only starts the delivery and saves the data.
            self.message.extend_visibility(0, checkpoint)
            if checkpoint is not None:
                self.saved = checkpoint
        except ReceiptHandleExpiredError:
            self.cancel(CancelCode.LEASE_LOST)
            raise

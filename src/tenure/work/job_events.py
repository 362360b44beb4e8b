"""The signals of a job as one attempt knows them: those that its dispatch brought, and those that it has asked for since."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tenure.attempt_data import Signal
from tenure.errors import TenureError

if TYPE_CHECKING:
    from tenure.work.attempt_handle import AttemptHandle

ASK_EVERY_S = 1.0
"""A workflow that polls in a tight loop asks the leader no more often."""


class JobEvents:
    """Its methods may be called from several threads. `known` only grows, in the order of the job's inbox."""

    def __init__(self, handle: AttemptHandle) -> None:
        self._handle = handle
        self._lock = threading.Lock()
        self._ask_at = 0.0
        self.known: tuple[Signal, ...] = handle.delivery.item.signals

    def ask(self) -> None:
        """Asks the leader for the signals that came since, unless it was asked a moment ago. One that does not answer has none to tell."""
        handle = self._handle
        with self._lock:
            now = handle.clock.monotonic()
            if not handle.delivery.item.managed or now < self._ask_at:
                return
            self._ask_at = now + ASK_EVERY_S
            try:
                self.known += tuple(handle.delivery.courier().signals(handle.occupant.job, len(self.known)))
            except TenureError:
                return

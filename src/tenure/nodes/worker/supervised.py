"""A supervisor of slot processes as a worker node's `SlotRunner`, over its incarnations.

An eviction ends a supervisor with everything that it started: attempts, slots, strays, its board. The next one has a name of its own and takes
nothing until it is allowed to. `run` belongs to the thread that owns the slots; the rest may be called from the node's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from tenure.beat.board import Phase
from tenure.clock import Clock
from tenure.nodes.slot_runner import SlotsView
from tenure.nodes.worker.board_report import attempt_report
from tenure.work.slots.supervisor import Supervisor


class SupervisedSlots:
    """One worker process's slots. Create it, `run` it in the main thread."""

    def __init__(self, make: Callable[[Callable[[], None]], Supervisor], *, clock: Clock) -> None:
        """`make` gives a fresh supervisor, which calls what it is given when an attempt began or ended."""
        self._make, self._clock = make, clock
        self._bell: Callable[[], None] = lambda: None
        self._stop = False
        self._supervisor = make(self._ring)
        self._evicting: Supervisor | None = None

    def _ring(self) -> None:
        self._bell()

    # The owner's side

    @property
    def supervisor(self) -> Supervisor:
        """The one of the present incarnation."""
        return self._supervisor

    def run(self) -> int:
        """Until told to stop; over evictions. The exit code of the last supervisor."""
        while True:
            code = self._supervisor.run()
            if self._evicting is not self._supervisor or self._told_to_stop() or code:
                return code
            successor = self._make(self._ring)
            successor.admit(0)
            self._supervisor = successor
            if self._told_to_stop():  # the signal may have come while there was nobody to hear it
                successor.drain()
            self._ring()

    def drain(self) -> None:
        """As `Supervisor.drain`; safe in a signal handler."""
        self._stop = True
        self._supervisor.drain()

    def _told_to_stop(self) -> bool:
        return self._stop

    # The node's side

    @property
    def incarnation(self) -> str:
        return self._supervisor.incarnation

    def view(self) -> SlotsView:
        supervisor = self._supervisor
        now, boottime = self._clock.monotonic(), self._clock.boottime()
        readings = supervisor.readings()
        totals, settings = supervisor.totals(), supervisor.settings
        empty = sum(reading.phase is Phase.EMPTY for _, reading in readings)
        reports = [
            attempt_report(reading, now, supervisor.lease_of(index, reading.serial) - boottime)
            for index, reading in readings
        ]
        return SlotsView(
            attempts=tuple(one for one in reports if one is not None),
            slots=settings.slots * settings.concurrency,
            free=empty if supervisor.accepting else 0,
            accepting=supervisor.accepting or not supervisor.ready.is_set(),
            lanes=settings.lanes,
            completed=totals.completed,
            failed=totals.failed,
            steps=totals.steps,
            mishaps=supervisor.mishaps,
        )

    def listen(self, bell: Callable[[], None]) -> None:
        self._bell = bell

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        self._supervisor.admit(most, peers)

    def cancel(self, job: str, *, workflow_id: str = "", attempt: int = 0, reason: str = "") -> bool:
        return self._supervisor.cancel(job, workflow_id=workflow_id, attempt=attempt, reason=reason)

    def evict(self, reason: str) -> None:
        supervisor = self._supervisor
        self._evicting = supervisor
        supervisor.hand_over(f"this worker was evicted: {reason}")

"""The supervisors of a worker process, one after the other.

An eviction ends a supervisor with everything that it started: attempts, slots, strays, its board. The next supervisor has an incarnation of
its own, and takes no work until the node allows it. A worker imports this when it starts, and what reports to a leader only where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenure.beat.record import Phase
from tenure.clock import Clock
from tenure.engines.contracts import Fence
from tenure.errors import EngineWentBackError
from tenure.work.slots.supervisor import Supervisor

if TYPE_CHECKING:
    from tenure.control.messages.workers import HeldName
    from tenure.nodes.slot_runner import SlotsView

CONNECT = "tenure.nodes.worker.courier:connect"
"""Connects a worker with its managers, as `SlotSettings.courier` wants it. Only a supervisor whose workflows submit jobs imports it."""


class SupervisedSlots:
    """The slots of one worker process. Create it, and `run` it in the main thread."""

    def __init__(self, make: Callable[[Callable[[], None]], Supervisor], *, clock: Clock) -> None:
        """`make` returns a fresh supervisor. The supervisor calls the function that `make` gets when an attempt began or ended."""
        self._make, self._clock = make, clock
        self._bell: Callable[[], None] = lambda: None
        self._stop = False
        self._supervisor = make(self._ring)
        self._evicting: Supervisor | None = None

    def _ring(self) -> None:
        self._bell()

    # Called by the thread that owns the slots

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of the present incarnation."""
        return self._supervisor

    def run(self) -> int:
        """Runs one supervisor after the other, until `drain` is called. Returns the exit code of the last one."""
        while True:
            code = self._supervisor.run()
            if self._evicting is not self._supervisor or self._told_to_stop() or code:
                return code
            successor = self._make(self._ring)
            successor.admit(0)  # the leader has not judged the new incarnation yet
            self._supervisor = successor
            if self._told_to_stop():  # a signal during the exchange went to the old supervisor, which had ended
                successor.drain()
            self._ring()

    def drain(self) -> None:
        """Drains the present supervisor and starts no other one. A signal handler may call it."""
        self._stop = True
        self._supervisor.drain()

    def engine_lost(self, error: EngineWentBackError) -> None:
        """Ends the present supervisor, which settles nothing more, and starts no other one. Any thread may call it."""
        self._stop = True
        self._supervisor.engine_lost(error)

    def _told_to_stop(self) -> bool:
        return self._stop

    # Called by the worker node's thread (`SlotRunner`)

    @property
    def incarnation(self) -> str:
        return self._supervisor.incarnation

    def view(self) -> SlotsView:
        from tenure.nodes.slot_runner import SlotsView, attempt_report  # only a worker with managers is asked

        supervisor = self._supervisor
        now, boottime = self._clock.monotonic(), self._clock.boottime()
        readings = supervisor.board.readings()
        totals, settings = supervisor.board.totals(), supervisor.settings
        empty = sum(reading.phase is Phase.EMPTY for _, reading in readings)
        reports = [
            attempt_report(reading, now, supervisor.board.lease_of(index, reading.serial) - boottime)
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
            serves=supervisor.serves,
            mishaps=supervisor.mishaps,
        )

    def listen(self, bell: Callable[[], None]) -> None:
        self._bell = bell

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        self._supervisor.admit(most, peers)

    def hold(self, holds: tuple[HeldName, ...]) -> None:
        self._supervisor.hold(holds)

    def cancel(
        self, job: str, *, workflow_id: str = "", attempt: int = 0, fence: Fence | None = None, reason: str = ""
    ) -> bool:
        return self._supervisor.cancel(job, workflow_id=workflow_id, attempt=attempt, fence=fence, reason=reason)

    def evict(self, reason: str) -> None:
        supervisor = self._supervisor
        self._evicting = supervisor  # before `hand_over`: `run` looks at it as soon as the supervisor returns
        supervisor.hand_over(f"this worker was evicted: {reason}")

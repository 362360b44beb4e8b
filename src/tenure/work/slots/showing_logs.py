"""The log of an attempt that still runs, shown to others every few seconds while it grows. The supervisor's part: the slot is busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure.beat.board import Occupant, Phase, Reading
from tenure.clock import Clock
from tenure.engines.contracts import Fence, Store
from tenure.errors import TenureError
from tenure.work.slots.attempt_logs import SHOW_EVERY_S, log_key, log_path, show_log


@dataclass(slots=True)
class Shown:
    """How much of one attempt's log others can see."""

    serial: int
    due: float
    size: int = 0
    busy: bool = False


class LogShow:
    """Told of each look at a record; `submit` runs a call in another thread."""

    def __init__(self, store: Store, folder: Path, clock: Clock, submit: Callable[[Callable[[], None]], Any]) -> None:
        self._store, self._folder, self._clock, self._submit = store, folder, clock, submit
        self._shown: dict[int, Shown] = {}

    def look(self, index: int, reading: Reading) -> None:
        occupant = reading.occupant
        if reading.phase is not Phase.RUNNING or occupant is None or not occupant.managed:
            self._shown.pop(index, None)
            return
        now, shown = self._clock.monotonic(), self._shown.get(index)
        if shown is None or shown.serial != reading.serial:
            # Soon, for the first lines of it: somebody may be watching how it begins.
            shown = self._shown[index] = Shown(reading.serial, now + SHOW_EVERY_S / 4)
        if shown.busy or now < shown.due:
            return
        shown.due = now + SHOW_EVERY_S
        try:
            grown = log_path(self._folder, index).stat().st_size > shown.size
        except OSError:
            return
        if grown:
            shown.busy = True
            self._submit(lambda: self._show(index, shown, occupant))

    def _show(self, index: int, shown: Shown, occupant: Occupant) -> None:
        key = log_key(occupant.job, occupant.workflow_id or occupant.workflow, occupant.attempt)
        fence = Fence(occupant.ticket.generation, occupant.ticket.delivery_count)
        try:
            shown.size = show_log(self._store, self._folder, index, key=key, fence=fence, shown=shown.size)
        except TenureError:
            return  # shown later, or at the end, when the engine is back
        finally:
            shown.busy = False

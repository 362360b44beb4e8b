"""Remembers which starts of workers have left, so that a report which one of them sent before that comes too late to bring it back."""

from __future__ import annotations

from tenure.control.messages.workers import WorkerReport


class DepartedStarts:
    """The starts of workers that said that they leave, each with the number of that report and when it came.

    A worker has two requests under way when it is told to stop, and says that it leaves by a third. A busy leader may read them in another order.
    A worker that was registered anew by a late one would be in the fleet without a catalogue, for 30 s, and the door would be open meanwhile.
    """

    def __init__(self) -> None:
        self._left: dict[tuple[str, str], tuple[int, float]] = {}

    def note(self, report: WorkerReport, now: float) -> None:
        """Notes that a start leaves with this report. One without an incarnation of its own cannot be told from the worker's next start."""
        if report.incarnation:
            self._left[report.worker, report.start] = report.number, now

    def is_late(self, report: WorkerReport) -> bool:
        """Returns True for a report that was sent before the word that its start leaves."""
        known = self._left.get((report.worker, report.start))
        return known is not None and report.number <= known[0]

    def forget(self, before: float) -> None:
        """Forgets those that left before this time."""
        self._left = {start: found for start, found in self._left.items() if found[1] >= before}

"""What a worker shows: one written list, read when somebody asks."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from tenure.clock import ManualClock
from tenure.control.messages.workers import AttemptReport
from tenure.nodes.slot_runner import SlotsView
from tenure.nodes.worker.metrics import WorkerGauges


def view(*silences: float) -> SlotsView:
    attempts = tuple(
        AttemptReport(job_id=f"j{number}", workflow="w", attempt=1, delivery=1, steps=3, silent_s=silent)
        for number, silent in enumerate(silences)
    )
    return SlotsView(attempts, 4, 4 - len(attempts), True, ("default.p0",), completed=7, failed=2, steps=40)


def test_a_worker_shows_its_slots_and_the_longest_silence() -> None:
    registry = CollectorRegistry()
    registry.register(WorkerGauges(lambda: view(2.0, 31.5), lambda: None, ManualClock()))
    shown = registry.get_sample_value
    assert shown("tenure_worker_slots", {"state": "free"}) == 2
    assert shown("tenure_worker_slots", {"state": "busy"}) == 2
    assert shown("tenure_worker_longest_silence_seconds") == 31.5
    assert (shown("tenure_worker_completed_total"), shown("tenure_worker_failed_total")) == (7, 2)


def test_the_written_list_of_a_workers_metrics_is_the_list() -> None:
    registry = CollectorRegistry()
    registry.register(WorkerGauges(view, lambda: None, ManualClock()))
    exported = set(re.findall(r"^# TYPE (\w+)", generate_latest(registry).decode(), re.M))
    written = Path(__file__).parents[3].joinpath("docs/metrics.md").read_text()
    listed = set(re.findall(r"^\| `(tenure_\w+)", written.partition("## Workers")[2].partition("\n## ")[0], re.M))
    assert exported == listed

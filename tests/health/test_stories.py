"""The parts together, as a leader uses them: windows, states, deadlines, tracker."""

from __future__ import annotations

from tenure.clock import ManualClock
from tenure.health.deadlines import WorkerHealthManager
from tenure.health.extension import HealthcheckExtensionRequest
from tenure.health.node_states import WorkerHealthState
from tenure.health.window import CompletionRate, ProgressWindow


class Datacenter:
    """One leader and one worker that reports every five seconds while a script says what its work does."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.window, self.rate = ProgressWindow(), CompletionRate()
        self.manager = WorkerHealthManager(clock=self.clock)
        self.manager.register("w")
        self.evicted_at: float | None = None
        self.allowed_until = 0.0

    def run(self, seconds: int, *, beat_every: int | None = None, ask: bool = False) -> None:
        """Let time pass; the attempt beats at that interval, or not at all."""
        for second in range(5, seconds + 5, 5):
            self.clock.advance(5)
            now = self.clock.monotonic()
            if beat_every and second % beat_every == 0:
                self.window.step("a", self.window.counts(now).counter + 1, now)
            counts = self.window.counts(now)
            self.manager.on_report(
                WorkerHealthState(
                    "w",
                    now,
                    0,
                    True,
                    1,
                    counts.assigned,
                    counts.completions_last_interval,
                    self.rate.expected(now),
                    counts.advancing,
                    counts.silent,
                ),
                allowed_until=self.allowed_until,
            )
            if ask and self.manager.deadline("w") - now <= 5:
                self.manager.handle_extension_request(
                    HealthcheckExtensionRequest("w", "long_workflow", 0.5, 0.0, 1, counts.counter)
                )
            if self.manager.sweep().evict:
                self.evicted_at = now
                return


def test_a_job_of_ten_hours_that_beats_every_25_seconds_is_never_touched() -> None:
    datacenter = Datacenter()
    datacenter.window.begin("a", datacenter.clock.monotonic())
    datacenter.run(36_000, beat_every=25)
    assert datacenter.evicted_at is None
    assert datacenter.manager.workers.get_routing_decision("w") == "route"
    assert [entry.health_class for entry in datacenter.manager.workers.history("w")] == ["BUSY", "HEALTHY"]


def test_a_hang_is_drained_after_one_interval_and_evicted_after_one_deadline_more() -> None:
    datacenter = Datacenter()
    datacenter.window.begin("a", datacenter.clock.monotonic())
    datacenter.run(600, beat_every=10)
    last_beat = datacenter.clock.monotonic()
    datacenter.run(30)
    assert datacenter.manager.workers.get_verdict("w").health_class == "STUCK"
    assert datacenter.manager.workers.get_routing_decision("w") == "evict"
    assert datacenter.evicted_at is None
    datacenter.run(600)
    assert datacenter.evicted_at is not None
    assert 55 <= datacenter.evicted_at - last_beat <= 60


def test_a_hang_that_begs_for_time_gets_one_free_grant_and_no_more() -> None:
    datacenter = Datacenter()
    datacenter.window.begin("a", datacenter.clock.monotonic())
    datacenter.run(600, beat_every=10)
    last_beat = datacenter.clock.monotonic()
    datacenter.run(600, ask=True)
    assert datacenter.evicted_at is not None
    assert 85 <= datacenter.evicted_at - last_beat <= 90
    asked = [record.response for record in datacenter.manager.evidence("w")]
    assert [response.granted for response in asked] == [True, False, False]  # the last one past the deadline
    assert "No progress" in (asked[1].denial_reason or "")
    assert "already marked suspect" in (asked[2].denial_reason or "")


def test_work_that_may_be_silent_for_ten_minutes_is_given_ten_minutes() -> None:
    datacenter = Datacenter()
    datacenter.window.begin("a", datacenter.clock.monotonic())
    datacenter.allowed_until = datacenter.clock.monotonic() + 600
    datacenter.window.allow_silence("a", datacenter.allowed_until)
    datacenter.run(595)
    assert datacenter.evicted_at is None
    datacenter.run(600)
    assert datacenter.evicted_at is not None
    assert 600 <= datacenter.evicted_at - 1_000.0 <= 600 + 30

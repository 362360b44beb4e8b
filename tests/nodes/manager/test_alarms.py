"""What those on call see: alarms said once, metrics of what was decided, one list of both, and counts of the last minutes in equal steps."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control.messages.jobs import Cancel, Submit
from tenure.control.messages.workers import WorkerReport
from tenure.jobs.alarms import AlarmKind
from tenure.jobs.attempt_results import AttemptFailed
from tenure.jobs.states import AttemptCause
from tenure.logs import log_to
from tenure.nodes.manager.manager import Manager
from tenure.nodes.manager.observer import STEP_S, STEPS, Observer, PulseCounter
from tenure.nodes.manager.serving import NodeMetrics


def test_work_that_nobody_takes_is_said_once_and_once_that_it_is_over() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        await group.until(lambda: manager.observer.alarms)
        (alarm,) = manager.observer.alarms
        assert (alarm.kind, alarm.subject) == (AlarmKind.NOTHING_CLAIMED, "default.p0")
        await ask(manager, Cancel(job_id="j-1"))
        await group.until(lambda: not manager.observer.alarms)
        told = [text for text in group.said if "queue_not_empty" in text]
        assert len(told) == 2
        assert told[0].startswith("ALARM")
        assert "tenure worker" in told[0]
        assert told[1].startswith("alarm over")

    run(story)


def test_an_engine_that_does_not_answer_is_an_alarm_on_every_manager() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        leadership.leader = None
        leadership.term_is_current = leadership.engine_answers = False
        observer = Observer(leadership, clock=group.clock, log=log_to(group.said.append))
        group.clock.advance(2 * leadership.term_s + 1)
        observer.look()
        assert [alarm.kind for alarm in observer.alarms] == [AlarmKind.ENGINE_SILENT]
        leadership.engine_answers = True
        observer.look()
        assert [alarm.kind for alarm in observer.alarms] == [AlarmKind.NO_LEADER]
        leadership.term_is_current = True
        observer.look()
        assert observer.alarms == ()

    run(story)


def measured(group: ManagerGroup) -> tuple[Manager, CollectorRegistry]:
    """A manager with metrics in a registry of its own."""
    metrics = NodeMetrics()
    manager = group.made("m-1", metrics=metrics.manager)
    metrics.watch(manager)
    group.start("m-1", manager)
    return manager, metrics.registry


def test_decisions_are_counted_and_the_state_is_shown() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, registry = measured(group)
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        await ask(manager, WorkerReport(worker="w", lanes=("default.p0",), slots=4, free=4))
        await group.until(lambda: registry.get_sample_value("tenure_dispatches_total"))
        shown = registry.get_sample_value
        assert shown("tenure_jobs_submitted_total") == 1
        assert shown("tenure_elections_won_total") == 1
        assert shown("tenure_manager_leads") == 1
        assert shown("tenure_jobs", {"state": "live"}) == 1
        assert shown("tenure_attempts_open", {"state": "queued"}) == 1
        assert shown("tenure_work_left_seconds", {"queue": "default"}) == 60.0  # nobody knows it yet
        assert shown("tenure_workers", {"verdict": "route"}) == 1
        before = shown("tenure_lane_oldest_seconds", {"lane": "default.p0"})
        group.clock.advance(7.0)
        assert shown("tenure_lane_oldest_seconds", {"lane": "default.p0"}) == before + 7.0
        await ask(manager, Cancel(job_id="j-1"))
        assert shown("tenure_jobs_ended_total", {"state": "cancelled"}) == 1

    run(story)


def test_the_written_list_of_metrics_is_the_list_of_metrics() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, registry = measured(group)
        await group.until(lambda: manager.leads)
        exported = set(re.findall(r"^# TYPE (\w+)", generate_latest(registry).decode(), re.M))
        exported = {name for name in exported if not name.endswith("_created")}
        written = Path(__file__).parents[3].joinpath("docs/metrics.md").read_text()
        listed = set(re.findall(r"^\| `(tenure_\w+)", written.partition("## Managers")[2].partition("\n## ")[0], re.M))
        assert exported == listed

    run(story)


def failed(at: float) -> AttemptFailed:
    return AttemptFailed(at=at, job_id="j", workflow="w", attempt=1, cause=AttemptCause.ERROR, error="no")


def test_events_are_counted_in_the_step_of_their_time_and_steps_between_are_empty() -> None:
    pulse = PulseCounter()
    pulse.count([failed(1_000.0), failed(1_001.0)])
    pulse.count([failed(1_000.0 + 2 * STEP_S)])
    read = pulse.read(1_000.0 + 2 * STEP_S)
    assert read.failed == (2, 0, 1)
    assert read.completed == (0, 0, 0)
    assert read.until == 1_000.0 + 3 * STEP_S


def test_what_waits_and_runs_stays_until_somebody_says_otherwise() -> None:
    pulse = PulseCounter()
    pulse.level(1_000.0, waiting=3, running=2)
    pulse.level(1_000.0 + 3 * STEP_S, waiting=0, running=5)
    read = pulse.read(1_000.0 + 3 * STEP_S)
    assert (read.waiting, read.running) == ((3, 3, 3, 0), (2, 2, 2, 5))


def test_only_the_last_minutes_are_kept_and_a_long_rest_costs_nothing() -> None:
    pulse = PulseCounter()
    pulse.count([failed(1_000.0)])
    read = pulse.read(1_000_000_000.0)
    assert len(read.failed) <= STEPS
    assert sum(read.failed) == 0
    pulse.count([failed(5.0)])  # a clock that was set back
    assert sum(pulse.read(1_000_000_000.0).failed) == 1

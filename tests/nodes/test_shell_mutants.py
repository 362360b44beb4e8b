"""Rules of the shells, each broken on purpose: a test of that shell must notice. Worlds and stories have mutants of their own beside them.

`tests/nodes/gate/test_health_of_nodes.py`, `tests/nodes/manager/test_earned_time.py`, `tests/nodes/manager/test_allowed_silence.py` and
`tests/nodes/worker/test_earning.py` break rules of health and earned time, `tests/sim/broken_datacenter.py` and `tests/sim/broken_gates.py` those that only
a world of many nodes can show.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.nodes.gate import test_gate
from tests.nodes.gate.harness import GateWorld
from tests.nodes.manager import test_gate_reports, test_manager_health, test_worker_reports
from tests.nodes.worker import test_worker
from tests.worlds.gates.cast import Plan

from tenure.control.messages.workers import Unwanted
from tenure.health.signals import HealthConfig
from tenure.nodes.gate.datacenter_health import DatacenterWatch
from tenure.nodes.gate.datacenter_links import DatacenterLinks
from tenure.nodes.gate.fitness import GateFitness, GateLoad
from tenure.nodes.gate.leader import GateLeader
from tenure.nodes.gate.probes import ProbeSettings
from tenure.nodes.manager import gate_reports, manager_health, worker_reports
from tenure.nodes.manager.manager import Manager
from tenure.nodes.manager.manager_health import DispatchFlow, WatchedCalls
from tenure.nodes.manager.worker_reports import WorkerReportHandlers
from tenure.nodes.worker import directives, worker
from tenure.nodes.worker.directives import Earning, Obedience
from tenure.nodes.worker.worker import ManagedWorker

Patch = pytest.MonkeyPatch


def at_gates(test: Callable[[Any], None], datacenters: int = 2) -> None:
    nodes = GateWorld(Plan.of(datacenters, 2))
    try:
        test(nodes)
    finally:
        nodes.close()


async def at_once(*given: Any) -> None:
    return None


def cancelling_every_attempt(self: Any, one: Unwanted) -> None:
    self._runner.cancel(one.job_id, workflow_id=one.workflow, attempt=0, reason=one.reason)


def evicting_again(self: Any, incarnation: str, reason: str) -> None:
    self._runner.allow(0)
    self._runner.evict(reason)


sound_ask = ManagedWorker._ask


async def keeping_to_its_leader(self: Any, request: Any, timeout: float, wanted: Any) -> Any:
    """It asks the one that led first for ever."""
    self.first = getattr(self, "first", "") or await self._find_leader()
    self.address = self.first
    return await sound_ask(self, request, timeout, wanted)


async def losing_its_verdict(self: Any) -> None:
    self._runner.allow(0)
    await sound_rest(self)


sound_rest = ManagedWorker._rest

MUTANTS: dict[str, tuple[Any, str, Any, Callable[[], None]]] = {
    # Workers
    "obeys deposed leaders": (Obedience, "heard", lambda self, directive: True, test_worker.test_the_word_of_a_lower_epoch_changes_nothing),
    "cancels every attempt": (ManagedWorker, "_cancel", cancelling_every_attempt, test_worker.test_a_cancel_reaches_its_attempt_and_no_other),
    "cancels nothing": (ManagedWorker, "_cancel", lambda self, one: None, test_worker.test_a_cancel_reaches_its_attempt_and_no_other),
    "is evicted more than once": (ManagedWorker, "_go", evicting_again, test_worker.test_an_evicted_worker_stops_and_comes_back_once_as_a_new_incarnation_that_waits_for_its_first_verdict),
    "is not evicted": (ManagedWorker, "_go", lambda self, incarnation, reason: None, test_worker.test_an_evicted_worker_stops_and_comes_back_once_as_a_new_incarnation_that_waits_for_its_first_verdict),
    "leaves without a word": (ManagedWorker, "leave", at_once, test_worker.test_a_worker_that_leaves_says_so),
    "asks a dead leader for ever": (ManagedWorker, "_ask", keeping_to_its_leader, test_worker.test_a_leader_that_is_gone_is_not_asked_again_once_the_election_names_another),
    "stops while nobody answers": (ManagedWorker, "_rest", losing_its_verdict, test_worker.test_while_nobody_answers_it_goes_on_under_its_last_verdict_and_finds_the_next_leader),
    "reports all the time": (ManagedWorker, "_until_due", at_once, test_worker.test_it_reports_on_a_cadence_more_often_while_something_runs_and_at_once_when_something_changes),
    "does not hear its slots": (worker, "_bell", lambda event: lambda: None, test_worker.test_it_reports_on_a_cadence_more_often_while_something_runs_and_at_once_when_something_changes),
    "reports each change by itself": (ManagedWorker, "_nap", at_once, test_worker.test_many_changes_at_once_are_few_reports),
    "never asks for time": (directives, "NEAR_SHARE", 0.0, test_worker.test_it_asks_for_time_when_its_deadline_nears_and_its_work_advances),
    "asks again after a denial": (Earning, "answered", lambda self, reply, steps, now: None, test_worker.test_a_denial_is_said_and_not_asked_for_again_at_once),
    "does not notice that it stood still": (Earning, "paused", lambda self, seconds: None, test_worker.test_the_reason_is_a_pause_of_the_whole_process_or_contention_where_there_was_one),
    # Managers
    "does not notice a full engine": (WatchedCalls, "full", "", test_manager_health.test_a_full_engine_closes_the_manager_until_it_may_have_room_again),
    "is full for ever": (manager_health, "FULL_FOR_S", 1e9, test_manager_health.test_a_full_engine_counts_as_full_until_an_append_succeeds_or_for_a_time),
    "takes jobs for a full engine": (Manager, "takes", lambda self, submission: True, test_manager_health.test_a_full_engine_closes_the_manager_until_it_may_have_room_again),
    "is not drained": (manager_health, "drained_by", lambda book, manager: "", test_manager_health.test_a_drained_manager_refuses_new_jobs_answers_for_known_ones_and_says_so_to_everybody),
    "is drained with a worker": (manager_health, "MANAGER", "", test_manager_health.test_the_name_of_a_worker_drains_no_manager_of_that_name),
    "counts nothing": (DispatchFlow, "note", lambda self, decision, job_ids: None, test_manager_health.test_the_numbers_that_a_manager_tells_are_counted),
    "owes gates nothing": (gate_reports, "report_debt", lambda info: None, test_gate_reports.test_progress_is_reported_every_interval_and_not_more_often),
    "wants everything that runs": (WorkerReportHandlers, "_unwanted", lambda self, report: wanting_all(), test_worker_reports.test_an_attempt_that_was_replaced_or_never_known_is_unwanted),
    "lets held reports wait": (WorkerReportHandlers, "touched", lambda self, job_ids: None, test_worker_reports.test_a_cancel_answers_the_report_that_is_held_and_none_of_another_job_does),
    "answers every held report": (WorkerReportHandlers, "touched", lambda self, job_ids: self._held.ring_all(), test_worker_reports.test_a_cancel_answers_the_report_that_is_held_and_none_of_another_job_does),
    "waits for ever for work that stands still": (worker_reports, "patience", lambda info, one, book: 1e6, test_worker_reports.test_a_job_is_stuck_when_its_steps_stand_still_and_not_before),
    "holds on when its term ends": (WorkerReportHandlers, "close", lambda self: None, test_worker_reports.test_a_standby_sends_a_worker_to_the_leader_and_the_end_of_a_term_lets_go_of_those_who_are_held),
    "believes anybody about an attempt": (WorkerReportHandlers, "_own", lambda self, report: report, test_worker_reports.test_what_is_said_of_an_attempt_that_another_worker_holds_is_neither_counted_nor_shown),
    # Gates
    "keeps the lead without a datacenter": (GateFitness, "_better_peer", lambda self, now: False, partial(at_gates, test_gate.test_a_leader_that_reaches_no_datacenter_hands_over_to_a_peer_that_does)),
    "never sheds load": (GateLoad, "why_not", lambda self, asked, priority=0: None, partial(at_gates, test_gate.test_an_overloaded_gate_sheds_low_priority_first_and_never_a_cancel_or_a_result)),
    "keeps what it owes to itself": (DatacenterLinks, "put", lambda self, owed: None, partial(at_gates, test_gate.test_a_cancel_reaches_every_datacenter_within_a_round_trip)),
    "does not hear what datacenters answer": (GateLeader, "heard_back", at_once, partial(at_gates, test_gate.test_a_cancel_reaches_every_datacenter_within_a_round_trip)),
    "never doubts its own link": (DatacenterWatch, "link_suspect", lambda self: False, partial(at_gates, test_gate.test_when_all_datacenters_fall_silent_our_own_link_is_suspected_and_nobody_is_declared_stuck, datacenters=3)),
    "declares the dead at once": (ProbeSettings, "health", property(lambda self: HealthConfig(0.1, max_liveness_failures=1)), partial(at_gates, test_gate.test_classes_with_reasons_unknown_first_and_unhealthy_only_after_the_suspicion_time, datacenters=3)),
}  # fmt: skip


async def wanting_all() -> tuple[Unwanted, ...]:
    return ()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_shell_that_breaks_a_rule_is_found(mutant: str, monkeypatch: Patch) -> None:
    owner, name, broken, test = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception, IndexError, ValueError)):
        test()

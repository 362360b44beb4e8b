"""Documents 000 and 001 acted out in a datacenter: a real manager on the memory engine, asked what workers ask it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control.messages.jobs import AskWhy, Submit
from tenure.control.messages.wire import Problem
from tenure.control.messages.workers import AttemptReport, ExtendDeadline, ExtensionReply, WorkerReport
from tenure.health.extension import HealthcheckExtensionRequest
from tenure.health.signals import RoutingDecision
from tenure.jobs.states import WorkflowState


async def led(group: ManagerGroup) -> tuple[Any, Any]:
    manager, leadership = group.open("m-1")
    await group.until(lambda: manager.leads)
    await ask(manager, Submit(submission=submission(stuck_threshold=1_000)))
    return manager, leadership


def report(number: int, **fields: Any) -> WorkerReport:
    attempt = AttemptReport(
        job_id="j-1", workflow="encode", attempt=1, delivery=1, steps=fields.pop("steps", 1), silent_s=1.0
    )
    attempts = (attempt,) if fields.pop("works", True) else ()
    fields = {"slots": 4, "free": 3, "lanes": ("default.p0",), **fields}
    return WorkerReport(worker="w-1", incarnation="w-1#1", number=number, attempts=attempts, **fields)


def request(progress: float) -> ExtendDeadline:
    asked = HealthcheckExtensionRequest("w-1", "long_workflow", progress, 0.0, 1)
    return ExtendDeadline(request=asked, incarnation="w-1#1")


async def passing(group: ManagerGroup, seconds: int) -> None:
    for _ in range(seconds):
        for _ in range(40):
            await asyncio.sleep(0)
        group.clock.advance(1)


def test_the_complete_protocol_flow_of_document_000() -> None:
    """Probe (deadline 30 s); progress 0.3: +30 s (60 s); progress 0.6: +15 s (75 s); 0.6 again: denied; SUSPECT after the deadline."""

    async def story(group: ManagerGroup) -> None:
        manager, leadership = await led(group)
        began = group.clock.boottime()
        directive = await ask(manager, report(1))
        assert directive.left_s == 30
        left = lambda: leadership.leader.worker_reports.fleet.left_s("w-1", leadership.time.now())  # noqa: E731
        for number, (progress, granted, deadline) in enumerate(((0.3, 30.0, 60.0), (0.6, 15.0, 75.0)), start=2):
            await ask(manager, report(number, steps=number))
            reply = await ask(manager, request(progress))
            assert isinstance(reply, ExtensionReply)
            assert (reply.response.granted, reply.response.extension_seconds) == (True, granted)
            assert left() == pytest.approx(began + deadline - group.clock.boottime(), abs=1e-6)
        reply = await ask(manager, request(0.6))
        assert (reply.response.granted, reply.response.extension_seconds) == (False, 0.0)
        assert reply.response.denial_reason == "No progress since last extension (was 0.6, now 0.6)"
        workflow = leadership.ledger.book.job("j-1").workflows["encode"]
        assert workflow.state is WorkflowState.RUNNING
        while workflow.attempt == 1 and group.clock.boottime() < began + 200:
            await passing(group, 1)
            number += 1
            # It answers every probe, and nothing moves.
            await ask(manager, report(number, steps=3))
        directive = await ask(manager, report(number + 1, steps=3))
        assert 75 <= group.clock.boottime() - began <= 78
        assert directive.verdict is RoutingDecision.EVICT
        text = (await ask(manager, AskWhy(job_id="j-1"))).text
        said = [
            "w-1 was granted 30 s (grant 1, 30 s in all)",
            "w-1 was granted 15 s (grant 2, 45 s in all)",
            "w-1 was denied more time: No progress since last extension (was 0.6, now 0.6)",
            "w-1 was evicted",
            "w-1 leaves it to others while there are any",
        ]
        places = [text.find(line) for line in said]
        assert -1 not in places, text
        assert places == sorted(places)

    run(story)


def test_an_extension_for_a_worker_that_never_reported_is_a_problem_and_not_a_grant() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = await led(group)
        assert isinstance(await ask(manager, request(0.3)), Problem)

    run(story)


@pytest.mark.parametrize(
    ("liveness", "readiness", "progress", "told"),
    [
        (True, True, "normal", "route"),
        (True, False, "normal", "drain"),
        (True, True, "zero", "drain"),  # STUCK: drain, and the timer runs
        (True, False, "zero", "drain"),
        (False, True, "normal", "evict"),
        (False, False, "zero", "evict"),
    ],
)
def test_the_rows_of_document_001s_matrix_as_a_worker_hears_them(
    liveness: bool, readiness: bool, progress: str, told: str
) -> None:
    """The two rows with LOW need peers to be slower than: tests/nodes/test_fleet.py."""

    async def story(group: ManagerGroup) -> None:
        manager, _ = await led(group)
        number = 0
        for second in range(35):
            number += 1
            steps = number if progress == "normal" else 1
            await ask(manager, report(number, steps=steps, accepting=readiness or second < 30))
            await passing(group, 1)
        if not liveness:
            await passing(group, 40)
            number += 1
        directive = await ask(manager, report(number + 1, steps=steps, accepting=readiness))
        assert directive.verdict == told

    run(story)


def test_a_datacenter_whose_workers_all_fall_silent_evicts_nobody_until_the_hold_is_over() -> None:
    """Document 001's correlation check: more than half failing is one cause, most likely here."""

    async def story(group: ManagerGroup) -> None:
        manager, leadership = await led(group)
        for name in ("a", "b", "c", "d"):
            await ask(manager, WorkerReport(worker=name, incarnation=name, slots=1, free=1))
        await passing(group, 120)
        fleet = leadership.leader.worker_reports.fleet
        assert len(fleet) == 4
        assert "4 of 4 nodes fail" in fleet.health.workers.brake_status(now=leadership.time.now()).reason
        for name in ("a", "b", "c", "d"):
            directive = await ask(manager, WorkerReport(worker=name, incarnation=name, slots=1, free=1, number=1))
            assert directive.verdict is RoutingDecision.ROUTE
        await passing(group, 2)
        assert fleet.health.workers.brake_status(now=leadership.time.now()).failing == 0

    run(story)

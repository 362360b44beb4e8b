"""What somebody on call is told first, and which command helps."""

from __future__ import annotations

from typing import Any

from tests.nodes.manager.harness import ManagerGroup, ask, passing, report, runs, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control.messages.jobs import Cancel, PauseRunningJob, Submit
from tenure.control.messages.nodes import AskOverview, DrainNode, Overview, Severity
from tenure.control.messages.queues import PauseQueue


async def kinds(manager: Any) -> dict[str, Any]:
    found = await ask(manager, AskOverview())
    assert isinstance(found, Overview)
    return {trouble.kind: trouble for trouble in found.troubles}


def test_a_datacenter_in_which_all_is_well_says_nothing() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        await ask(manager, report(runs(stall_s=30.0)))
        found = await ask(manager, AskOverview())
        assert found.troubles == ()
        assert (found.jobs, found.attempts["running"], found.workers) == ({"running": 1}, 1, {"route": 1})
        assert sum(found.pulse.submitted) == sum(found.pulse.started) == 1

    run(story)


def test_a_job_past_its_beat_and_a_paused_one_are_in_the_list_with_the_command_that_helps() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        await ask(manager, report(runs(stall_s=30.0, silent_s=31.0)))
        found = await kinds(manager)
        late = found["past_its_beat"]
        assert (late.severity, late.subject, late.remedy) == (Severity.LOOK, "j-1", "tenure why j-1")
        assert "on w-1 has not beaten for 31 s, and 30 s are allowed" in late.text
        await ask(manager, PauseRunningJob(job_id="j-1", reason="wait", by="ann"))
        await passing(group, 2)
        assert (await kinds(manager))["paused_jobs"].remedy == "tenure resume j-1 --reason WHY"

    run(story)


def test_each_trouble_says_what_since_when_and_what_helps() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        await ask(manager, report(runs(stall_s=30.0)))
        await ask(manager, DrainNode(node="w-1", reason="new disk", by="ann"))
        await ask(manager, PauseQueue(queue="nightly"))
        await ask(manager, Submit(submission=submission("j-2", timeout_seconds=3.0)))
        await passing(group, 8)
        found = await kinds(manager)
        assert found["drained"].severity is Severity.NOTE
        assert "new disk" in found["drained"].text
        assert found["drained"].remedy == "tenure drain w-1 --undo"
        assert found["paused"].remedy == "tenure queue nightly --resume"
        ended = found["ended_badly"]
        assert (ended.severity, ended.subject, ended.remedy) == (Severity.LOOK, "j-2", "tenure why j-2")
        assert "timeout" in ended.text
        assert 0 < (await ask(manager, AskOverview())).now - ended.since < 8
        assert next(iter(found)) == "ended_badly"  # the worst first

    run(story)


def test_a_silent_worker_is_told_of_before_it_is_evicted() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, report())
        assert "silent" not in await kinds(manager)
        await passing(group, 20)
        found = (await kinds(manager))["silent"]
        assert found.subject == "w-1"
        assert "was last heard 20 s ago" in found.text

    run(story)


def test_one_answer_serves_all_who_ask_at_once_and_its_time_is_right() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        first = await ask(manager, AskOverview())
        await ask(manager, Cancel(job_id="nobody"))
        group.clock.advance(0.5)
        again = await ask(manager, AskOverview())
        assert again.now - first.now == 0.5
        assert again.pulse == first.pulse
        group.clock.advance(1.0)
        assert (await ask(manager, AskOverview())).now - first.now == 1.5

    run(story)

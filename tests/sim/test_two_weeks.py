"""A job without a deadline lives for as long as it advances: real nodes in virtual time. `tests/testing/test_proof.py` has those that stand still."""

from __future__ import annotations

import asyncio
from functools import partial

from tests.soak import sized
from tests.worlds.gates import hands
from tests.worlds.gates.cast import Pace, manage
from tests.worlds.patching import environment_of
from tests.worlds.planes import SimCaller

from tenure.control.messages.jobs import Done, GetJob, JobView, Submit
from tenure.control.messages.wire import Reply, Request
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import JobState
from tenure.nodes.fleet.member import FleetSettings
from tenure.nodes.worker.worker import ManagedWorker, ReportSettings
from tenure.sim.kernel import Limits
from tenure.sim.world import Host, World

MANAGER = "m1:1"
DAYS = sized("simulated days of a job without a deadline", short=1, long=14)
STEP_S = 100.0
CALM = Pace(
    term_s=3_600.0,
    lease_s=3_600.0,
    jobs=JobSettings(),
    fleet=FleetSettings(healthcheck_s=1_000.0),
    reports=ReportSettings(every_s=50.0, idle_every_s=100.0, gap_s=10.0, listen_s=90.0, answer_s=60.0, rest_s=10.0),
)
"""Terms, leases and reports of a fleet in which little happens, so that a day is played in seconds. The stuck threshold is the default, 120 s."""


async def work(host: Host) -> None:
    slots = hands.Hands(host, CALM.lease_s, step_s=STEP_S, slots=1)
    node = ManagedWorker(host.name, slots, environment_of(host), SimCaller(host), CALM.reports)
    await asyncio.gather(slots.run(), node.run())


async def idle(host: Host) -> None:
    await host.loop.create_future()


class CalmWorld:
    """A manager, a worker with one slot, and a client."""

    def __init__(self) -> None:
        self.world = World(1, keep_trace=None, limits=Limits(steps=20_000_000))
        self.world.node(MANAGER, partial(manage, datacenter="a", pace=CALM), engine="a").start()
        self.world.node("w1", work, engine="a").start()
        self._client = self.world.node("client", idle, engine="a")
        self._client.start()
        self.world.run_for(60.0)

    def ask(self, request: Request) -> Reply:
        host, answers = self._client.host, []
        assert host is not None

        async def go() -> None:
            answers.append(await SimCaller(host).ask(MANAGER, request, 10.0))

        host.loop.create_task(go())
        self.world.run_for(1.0)
        [answer] = answers
        return answer


def test_a_job_without_a_deadline_runs_for_days_and_completes() -> None:
    """It advances every 100 s, with a stuck threshold of 120 s: of the 864 steps of a day none may be lost."""
    nodes = CalmWorld()
    try:
        steps = round(DAYS * 86_400 / STEP_S)
        spec = WorkflowSpec(name="w", arguments={"steps": steps, "ends": "well"})
        assert isinstance(nodes.ask(Submit(submission=JobSubmission(job_id="j", workflows=(spec,)))), Done)
        nodes.world.run_for(DAYS * 86_400 - 600)
        view = nodes.ask(GetJob(job_id="j"))
        assert isinstance(view, JobView)
        assert (view.state, view.deadline) == (JobState.RUNNING, None)
        nodes.world.run_for(1_200)
        view = nodes.ask(GetJob(job_id="j"))
        assert isinstance(view, JobView)
        assert (view.state, view.workflows[0].attempt) == (JobState.COMPLETED, 1), view.reason
        nodes.world.require_no_unread_errors()
    finally:
        nodes.world.close()

"""A small world in virtual time, with real gates and managers, for stories that tests tell step by step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.worlds.gates.cast import Plan, keep_gate, manage, work
from tests.worlds.planes import SimCaller

from tenure.backoff import Retry
from tenure.control.messages.jobs import AskWhy, Cancel, Done, GetJob, JobView, Submit, WhyReply
from tenure.control.messages.wire import Problem, Reply, Request
from tenure.errors import NodeUnavailableError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.nodes.gate.gate import Gate
from tenure.sim.world import Host, World


class GateWorld:
    """Nodes of a plan, and a client that asks the gates."""

    def __init__(self, plan: Plan | None = None, *, seed: int = 1, gate_class: type[Gate] = Gate) -> None:
        self.plan = plan or Plan.of(2, 2)
        self.world = World(seed, keep_trace=None)
        self.gates: dict[str, Gate] = {}
        nodes = self

        class Known(gate_class):  # type: ignore[misc, valid-type]
            def __init__(self, name: str, address: str, *given: Any, **options: Any) -> None:
                super().__init__(name, address, *given, **options)
                nodes.gates[address] = self

        for name, addresses in self.plan.managers.items():
            for address in addresses:
                program = partial(manage, datacenter=name, pace=self.plan.pace)
                self.world.node(address, program, engine=name).start()
            for worker in self.plan.workers[name]:
                self.world.node(worker, partial(work, pace=self.plan.pace), engine=name).start()
        for address in self.plan.gates:
            self.world.node(
                address, partial(keep_gate, plan=self.plan, gate_class=Known), engine=self.plan.gate_engine
            ).start()
        self._client = self.world.node("client", self._idle, engine=self.plan.gate_engine)
        self._client.start()
        self.pass_time(1.0)

    async def _idle(self, host: Host) -> None:
        await host.loop.create_future()

    def pass_time(self, seconds: float) -> None:
        self.world.run_for(seconds)
        self.world.require_no_unread_errors()

    def until(self, true: Callable[[], object], seconds: float = 30.0, step: float = 0.05) -> float:
        """How long it took, in true time."""
        begun = self.world.now
        while not true():
            if self.world.now - begun > seconds:
                pytest.fail(
                    f"it did not happen within {seconds} s:\n" + "\n".join(list(self.world.trace.lines())[-60:])
                )
            self.pass_time(step)
        return self.world.now - begun

    def ask(self, request: Request, address: str = "", timeout: float = 10.0) -> Reply:
        """Of one gate, the first that leads where none is named."""
        host = self._client.host
        assert host is not None
        answers: list[Reply | Exception] = []

        async def go() -> None:
            try:
                answers.append(await SimCaller(host).ask(address or self.leader().address, request, timeout))
            except NodeUnavailableError as error:
                answers.append(error)

        host.loop.create_task(go())
        self.until(lambda: answers, timeout + 5, step=0.005)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def hang_up(self, request: Request, engine: str) -> None:
        """Ask, and close the connection while the answer waits for an engine that is away for a moment."""
        backend = self.world.backend_of(engine)
        backend.outages += 1
        try:
            with pytest.raises(NodeUnavailableError):
                self.ask(request, timeout=0.3)
            self.pass_time(0.1)
        finally:
            backend.end_outage()

    def leader(self) -> Gate:
        return next(gate for gate in self.living() if gate.leads)

    def living(self) -> list[Gate]:
        return [self.gates[address] for address in self.plan.gates if self.world.nodes[address].running]

    def submit(self, job_id: str, *, steps: int = 3, ends: str = "well", **options: Any) -> Done | Problem:
        spec = WorkflowSpec(name="w", arguments={"steps": steps, "ends": ends}, retry=Retry(max_attempts=1, jitter=0.0))
        submission = JobSubmission(job_id=job_id, workflows=(spec,), **{"timeout_seconds": 60.0, **options})
        reply = self.ask(Submit(submission=submission))
        assert isinstance(reply, (Done, Problem))
        return reply

    def job(self, job_id: str) -> JobView:
        reply = self.ask(GetJob(job_id=job_id))
        assert isinstance(reply, JobView), reply
        return reply

    def cancel(self, job_id: str) -> Done:
        reply = self.ask(Cancel(job_id=job_id, reason="enough", by="test"))
        assert isinstance(reply, Done), reply
        return reply

    def why(self, job_id: str) -> str:
        reply = self.ask(AskWhy(job_id=job_id))
        assert isinstance(reply, WhyReply), reply
        return reply.text

    def cut(self, datacenter: str) -> Callable[[], None]:
        """Cut a whole datacenter off; what comes back mends it."""
        rest = [name for name in (*self.world.nodes, self.plan.gate_engine) if name not in self.plan.group(datacenter)]
        cuts = self.world.network.partition(self.plan.group(datacenter), rest)
        return lambda: [self.world.network.mend(cut) for cut in cuts] and None

    def close(self) -> None:
        self.world.close()

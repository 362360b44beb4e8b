"""Work that waits in two datacenters while its gate dies: the next gate passes its signal on, and each datacenter takes it once."""

from __future__ import annotations

import pytest
from tests.nodes.gate.harness import GateWorld

from tenure.control.messages.jobs import Done, GetJob, JobView, SignalJob
from tenure.control.messages.wire import Problem, Reply
from tenure.errors import NodeUnavailableError


def send(nodes: GateWorld) -> Reply | None:
    if not any(gate.leads for gate in nodes.living()):
        return None
    try:
        return nodes.ask(SignalJob(job_id="j", name="go", signal_id="1", payload="on"), timeout=3.0)
    except NodeUnavailableError:  # the gate died meanwhile
        return None


@pytest.mark.parametrize("before", [True, False], ids=["the gate dies before the signal", "the gate dies after it"])
def test_a_signal_reaches_sleeping_work_once_over_a_change_of_gates(before: bool) -> None:
    nodes = GateWorld(seed=2)
    try:
        nodes.submit("j", target_datacenters=("a", "b"), ends="wait")
        nodes.until(lambda: [one.signal for one in nodes.job("j").workflows] == ["go", "go"])
        dead = nodes.leader()
        if not before:
            assert isinstance(send(nodes), Done)
        nodes.world.nodes[dead.address].crash()
        nodes.until(lambda: isinstance(send(nodes), Done if before else Reply))  # the same signal, however often
        nodes.until(lambda: nodes.job("j").ended)
        for place in ("a", "b"):
            view = nodes.ask(GetJob(job_id="j", datacenter=place, signals_after=0))
            assert isinstance(view, JobView)
            assert [one.id for one in view.signals] == ["1"]
            assert [(one.state, one.attempt, one.result) for one in view.workflows] == [("completed", 1, ["on"])]
        assert nodes.leader() is not dead
        late = send(nodes)
        assert isinstance(late, Problem)
        assert "it has ended: completed" in late.fact
    finally:
        nodes.close()


def test_a_signal_right_after_the_submission_is_tried_again_until_the_datacenter_has_the_job() -> None:
    nodes = GateWorld(seed=3)
    try:
        mend = nodes.cut("a")
        nodes.submit("j", target_datacenters=("a",), ends="wait")
        early = send(nodes)
        assert isinstance(early, Problem)
        assert early.retryable, early
        mend()
        nodes.until(lambda: isinstance(send(nodes), Done), 60)
        nodes.until(lambda: nodes.job("j").ended, 60)
        assert [one.result for one in nodes.job("j").workflows] == [["on"]]
    finally:
        nodes.close()

"""A job that begins again from a step, through a gate: it runs where the steps are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import pytest
from tests.nodes.gate.harness import GateWorld

from tenure.control.messages.jobs import Done, RetryJob
from tenure.work.step_log import StepRecord, encode_record


@pytest.fixture
def nodes() -> Iterator[GateWorld]:
    made = GateWorld()
    yield made
    made.close()


def test_a_gate_sends_a_fork_to_the_datacenter_that_has_the_steps_also_where_it_would_place_it_elsewhere(
    nodes: GateWorld,
) -> None:
    nodes.submit("j", ends="fail")
    nodes.until(lambda: nodes.job("j").ended)
    [place] = [one.name for one in nodes.job("j").datacenters]
    steps = [encode_record(StepRecord("step", name, "", True, b"1")) for name in ("fetch", "count")]
    nodes.world.backend_of(place).engine.store("suspended").put("j/w", msgspec.msgpack.encode(steps))
    for number in range(20):
        nodes.submit(f"busy-{number}", target_datacenters=(place,), steps=1_000)
    others = itertools.count()

    def is_placed_elsewhere() -> bool:
        nodes.submit(job_id := f"other-{next(others)}", steps=1)
        return [one.name for one in nodes.job(job_id).datacenters] != [place]

    nodes.until(is_placed_elsewhere, 60, step=2.0)
    done = nodes.ask(RetryJob(job_id="j", from_step="count"))
    assert isinstance(done, Done)
    assert [one.name for one in nodes.job(done.job_id).datacenters] == [place]
    nodes.until(lambda: "it begins again from step 'count' of job j" in nodes.why(done.job_id))

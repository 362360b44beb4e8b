"""Document 001, "SWIM Piggyback for Health State": the fields, on SWIM's messages, from node to node."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest

from tenure.gossip import GossipNode, GossipSettings, HealthPiggyback
from tenure.gossip.members import decode_health_field, encode_health_field
from tenure.gossip.messages import Ack, Ping
from tenure.gossip.wire import decode, encode

DOCUMENT_FIELDS = [
    "node_id",
    "node_type",
    "accepting_work",
    "capacity",
    "throughput",
    "expected_throughput",
    "overload_state",
]


def test_the_documents_fields_are_the_first_and_are_importable_from_gossip() -> None:
    fields = [field.name for field in dataclasses.fields(HealthPiggyback)]
    assert fields[: len(DOCUMENT_FIELDS)] == DOCUMENT_FIELDS


@pytest.mark.parametrize("node_type", ["worker", "manager", "gate"])
@pytest.mark.parametrize("overload", ["healthy", "busy", "stressed", "overloaded"])
def test_each_kind_of_node_and_load_rides_on_pings_and_acks(node_type: str, overload: str) -> None:
    health = HealthPiggyback("node-1", node_type, False, 12, 7, 9, overload)
    ride = encode_health_field(5, health)
    for message in (Ping(1, "b", None, "a", ride), Ack(1, b"", ride, 1)):
        assert decode_health_field(decode(encode(message)).health) == (5, health)


@pytest.mark.asyncio
async def test_listeners_get_the_node_and_its_piggyback() -> None:
    settings = GossipSettings.local(probe_interval_s=0.2, probe_timeout_s=0.1, gossip_interval_s=0.02)
    heard: list[tuple[str, HealthPiggyback]] = []
    async with (
        GossipNode("manager-1", settings=settings) as manager,
        GossipNode("worker-1", settings=settings) as worker,
    ):
        manager.on_health(lambda node, piggyback: heard.append((node, piggyback)))
        worker.set_health(HealthPiggyback("worker-1", "worker", True, 4, 2, 3, "busy"))
        await worker.join([manager.address])
        end = time.monotonic() + 10
        while not heard and time.monotonic() < end:
            await asyncio.sleep(0.01)
    node, piggyback = heard[0]
    assert node == "worker-1"
    assert (piggyback.capacity, piggyback.throughput, piggyback.overload_state) == (4, 2, "busy")

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest
from tests.gossip.one_node import health

from tenure.cli.gossip import gossip as command
from tenure.cli.root import tenure
from tenure.gossip import GossipNode, GossipSettings, format_address
from tenure.gossip.net.pool_views import GossipCollector


@pytest.fixture
def member() -> Iterator[GossipNode]:
    """A node on a loop of its own, for the command has another."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    node = GossipNode("first", settings=GossipSettings.lan(), tags={"role": "web"})

    async def start() -> None:
        await node.start()
        node.set_health(health(node_id="first", capacity=6))

    asyncio.run_coroutine_threadsafe(start(), loop).result(10)

    async def tagged() -> None:
        while "health" not in node.members[0].tags:
            await asyncio.sleep(0.01)

    asyncio.run_coroutine_threadsafe(tagged(), loop).result(10)
    yield node
    asyncio.run_coroutine_threadsafe(node.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize(("bits", "size"), [("128", 16), ("192", 24), ("256", 32)])
def test_keygen_prints_a_new_key_each_time(bits: str, size: int) -> None:
    keys = [CliRunner().invoke(command, ["keygen", "--bits", bits]).output.strip() for _ in range(2)]
    assert [len(base64.b64decode(key)) for key in keys] == [size, size]
    assert keys[0] != keys[1]


def test_members_lists_whom_a_member_knows_without_joining(member: GossipNode) -> None:
    result = CliRunner().invoke(tenure, ["gossip", "members", format_address(member.address), "--json"])
    assert result.exit_code == 0, result.output
    (line,) = map(json.loads, result.output.splitlines())
    assert (line["name"], line["state"], line["tags"]["role"]) == ("first", "alive", "web")
    assert line["health"]["capacity"] == 6
    assert len(member.members) == 1
    shown = CliRunner().invoke(command, ["members", format_address(member.address)], env={"COLUMNS": "200"})
    assert "role=web" in shown.output
    assert "healthy, 6 free" in shown.output


def test_members_of_nobody_says_why_in_one_line(member: GossipNode, tmp_path: Path) -> None:
    wrong_label = CliRunner().invoke(command, ["members", format_address(member.address), "--label", "other"])
    assert wrong_label.exit_code == 1
    assert "Check the address, the label" in wrong_label.output
    keys = tmp_path / "keys"
    keys.write_text("nonsense\n")
    wrong_key = CliRunner().invoke(command, ["members", "127.0.0.1:1", "--key-file", str(keys)])
    assert "tenure gossip keygen" in wrong_key.output
    no_tag = CliRunner().invoke(command, ["monitor", "--name", "x", "--tag", "oops"])
    assert "Write --tag name=value" in no_tag.output


def test_a_node_shows_its_numbers_to_prometheus(member: GossipNode) -> None:
    registry = CollectorRegistry()
    registry.register(GossipCollector(member))
    text = generate_latest(registry).decode()
    assert 'tenure_gossip_members{state="alive"} 1.0' in text
    for name in ("probes", "suspicions", "refutations", "false_alarms", "bytes_sent"):
        assert f"\ntenure_gossip_{name}_total " in text

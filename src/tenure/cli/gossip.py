"""`tenure gossip`: shows the members of a pool and its events, and makes keys for it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import click

from tenure.cli.node_options import friendly
from tenure.cli.options import say
from tenure.clock import SystemClock
from tenure.errors import ConfigurationError
from tenure.gossip import (
    Event,
    GossipNode,
    GossipSettings,
    HealthEvent,
    MemberEvent,
    PoolWarning,
    Preset,
    format_address,
    format_key,
    parse_address,
)
from tenure.gossip.members import HEALTH, decode_tags, health_from_tag
from tenure.gossip.messages import NodeState
from tenure.gossip.net.pool_views import query_members
from tenure.nodes.gossip_pool import file_keyring
from tenure.randomness import secret_bytes


@click.group()
def gossip() -> None:
    """Show the members of a pool and what happens in it, and make keys for it."""


def _pool_options(function: Any) -> Any:
    """Adds to a command the options that say how a pool speaks."""
    for option in (
        click.option(
            "--preset", type=click.Choice([preset.value for preset in Preset]), default="lan", show_default=True
        ),
        click.option("--label", default="tenure", show_default=True, help="The pool's label; '' for Serf."),
        click.option("--compression/--no-compression", default=True),
        click.option(
            "--key-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            envvar="TENURE_GOSSIP_KEY_FILE",
            help="Keys in base64, one a line; the first encrypts.",
        ),
    ):
        function = option(function)
    return function


@gossip.command()
@click.option("--bits", type=click.Choice(["128", "192", "256"]), default="256", show_default=True)
def keygen(bits: str) -> None:
    """Print a new key, in base64, as Serf wants it too."""
    say(format_key(secret_bytes(int(bits) // 8)))


@gossip.command()
@click.argument("address")
@_pool_options
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each member.")
def members(address: str, preset: str, label: str, compression: bool, key_file: Path | None, as_json: bool) -> None:
    """List whom the member at ADDRESS (host:port) knows, without joining it."""
    with friendly():
        settings = GossipSettings.preset(preset, label=label, compression=compression)
        keyring = file_keyring(key_file) if key_file else None
        state = asyncio.run(query_members(parse_address(address), settings=settings, keyring=keyring))
    lines = sorted((_described(node) for node in state.nodes), key=lambda line: str(line["name"]))
    if as_json:
        for line in lines:
            say(json.dumps(line))
    else:
        _print_table(lines)


def _described(node: NodeState) -> dict[str, Any]:
    tags = decode_tags(node.meta)
    line: dict[str, Any] = {
        "name": node.name,
        "address": format_address(node.address),
        "state": node.state.name.lower(),
        "incarnation": node.incarnation,
        "tags": {key: value for key, value in tags.items() if key != HEALTH},
    }
    health = health_from_tag(tags.get(HEALTH, ""))
    if health is not None:
        line["health"] = _health(health)
    return line


def _health(health: Any) -> dict[str, Any]:
    return {
        "node_id": health.node_id,
        "node_type": health.node_type,
        "accepting_work": health.accepting_work,
        "capacity": health.capacity,
        "throughput": health.throughput,
        "expected_throughput": health.expected_throughput,
        "overload_state": health.overload_state,
    }


def _print_table(lines: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("member", "address", "state", "tags", "health")
    for line in lines:
        health = line.get("health")
        said = (
            ""
            if not health
            else f"{health['overload_state']}, {health['capacity']} free"
            + ("" if health["accepting_work"] else ", takes no work")
        )
        tags = ", ".join(f"{key}={value}" for key, value in line["tags"].items())
        table.add_row(line["name"], line["address"], line["state"], tags, said)
    Console().print(table)


@gossip.command()
@click.option("--name", required=True, help="Our name in the pool.")
@click.option("--bind", default="127.0.0.1:0", show_default=True)
@click.option("--advertise", default=None, help="The address that others should use, where it is not --bind.")
@click.option("--join", "seeds", multiple=True, help="A member's host:port; may be repeated.")
@click.option("--tag", "tags", multiple=True, help="name=value; may be repeated.")
@click.option("--no-key", is_flag=True, help="Listen beyond loopback without a key.")
@_pool_options
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each event.")
def monitor(
    name: str,
    bind: str,
    advertise: str | None,
    seeds: tuple[str, ...],
    tags: tuple[str, ...],
    no_key: bool,
    preset: str,
    label: str,
    compression: bool,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """Join a pool under NAME and print what happens in it, until interrupted; then leave."""
    with friendly():
        node = GossipNode(
            name,
            bind=parse_address(bind, port=0),
            advertise=parse_address(advertise, port=0) if advertise else None,
            settings=GossipSettings.preset(preset, label=label, compression=compression, no_key=no_key),
            tags=dict(_tag(tag) for tag in tags),
            keyring=file_keyring(key_file) if key_file else None,
        )
        asyncio.run(_monitor(node, seeds, _Printer(as_json)))


def _tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(f"the tag {text!r} has no value", remedy="Write --tag name=value")
    return key, value


async def _monitor(node: GossipNode, seeds: tuple[str, ...], printer: _Printer) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    node.on_event(printer.event)
    async with node:
        printer.line("listening", node.name, address=format_address(node.address), start=node.start_id)
        if seeds:
            await node.join(seeds)
        await stopped.wait()
        await node.leave()


class _Printer:
    """Prints events as lines, with the time at which this command saw them."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._clock = SystemClock()

    def event(self, event: Event) -> None:
        match event:
            case MemberEvent():
                self.line(event.change, event.node, address=format_address(event.address), why=event.why)
            case HealthEvent():
                self.line("health", event.node, **_health(event.health))
            case PoolWarning():
                self.line(event.complaint, event.node, why=event.why)

    def line(self, what: str, node: str, **more: Any) -> None:
        at = self._clock.wall()
        if self._as_json:
            text = json.dumps({"at": round(at, 4), "event": what, "node": node, **more})
        else:
            said = "  ".join(str(value) for value in more.values() if value != "")
            text = f"{at:.3f}  {what:<10} {node}  {said}"
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

"""One member of a pool, as a product's node would run it: the LAN preset, health set, events printed as JSON.

    python -m bench.gossip_member NAME HOST:PORT [SEED]

The label is empty and compression on, as in the Serf agents that it is measured beside.
"""

from __future__ import annotations

import asyncio
import json
import sys

from tenure.errors import JoinError
from tenure.gossip import Event, GossipNode, GossipSettings, HealthPiggyback, MemberEvent, parse_address


def show(event: Event) -> None:
    if isinstance(event, MemberEvent):
        print(json.dumps({"event": event.change, "node": event.node, "why": event.why}), flush=True)


async def main(name: str, bind: str, seeds: list[str]) -> None:
    node = GossipNode(
        name, bind=parse_address(bind), settings=GossipSettings.lan(label="", no_key=True), tags={"role": "bench"}
    )
    node.on_event(show)
    async with node:
        node.set_health(HealthPiggyback(name, "worker", True, 8, 3, 4, "healthy"))
        while seeds:
            try:
                await node.join(seeds)
                break
            except JoinError:
                await asyncio.sleep(1.0)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

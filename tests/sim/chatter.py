"""Nodes that use much of asyncio and of the network, and need nothing but the standard library.

So it runs on a bare interpreter of any version: what it records must be the same on all of them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tenure.sim import FaultKind, FaultProfile, Host, NetworkLink, Scenario, World

NAMES = ("ant", "bee", "cow", "dog")
KINDS = tuple(kind for kind in FaultKind if not kind.startswith("engine"))


class Chatter(Scenario):
    duration_s = 20.0
    link = NetworkLink(loss=0.05, duplicate=0.05, reorder=0.1, break_before=0.02, break_after=0.02)
    faults = FaultProfile(kinds=KINDS, most=8, until_s=12.0, duration_s=(0.2, 5.0))

    def setup(self, world: World) -> None:
        for name in NAMES:
            world.node(name, chat).start()


async def chat(host: Host) -> None:
    heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue(maxsize=5)
    known: set[str] = set()
    lock, ready = asyncio.Lock(), asyncio.Event()
    peers = [name for name in NAMES if name != host.name]

    async def answer(sender: str, message: Any) -> Any:
        async with lock:
            await asyncio.sleep(0.01 * host.random.random())
        return {"known": sorted(known), "for": message["n"]}

    async def listen() -> None:
        while True:
            sender, data = await host.transport.receive()
            known.add(sender)
            ready.set()
            try:
                await asyncio.wait_for(heard.put((sender, len(data))), 0.05)
            except TimeoutError:
                host.record(f"dropped one of {sender}")

    async def digest() -> None:
        while True:
            try:
                async with asyncio.timeout(0.7):
                    sender, size = await heard.get()
                    host.record(f"{size} from {sender}")
                    await asyncio.sleep(0.03)
            except TimeoutError:
                host.record("silence")

    async def talk(number: int) -> None:
        await ready.wait() if number > 3 else await asyncio.sleep(0)
        for peer in host.random.sample(peers, 2):
            host.transport.send(peer, bytes(number % 7))

    async def ask(peer: str, number: int) -> str:
        try:
            reply = await host.transport.request(peer, {"n": number}, timeout=0.2)
        except (TimeoutError, ConnectionError) as error:
            return f"{peer} {type(error).__name__}"
        return f"{peer} {reply['known']}"

    host.transport.serve(answer)
    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        group.create_task(digest())
        number = 0
        while True:
            number += 1
            await asyncio.gather(talk(number), asyncio.sleep(0.05))
            tasks = [asyncio.create_task(ask(peer, number)) for peer in peers]
            done, pending = await asyncio.wait(tasks, timeout=0.3, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            host.record(f"{number}: {[task.result() for task in done]}, {len(pending)} cancelled")
            await asyncio.gather(*pending, return_exceptions=True)
            await asyncio.shield(host.clock.async_sleep(0.2 + 0.2 * host.random.random()))

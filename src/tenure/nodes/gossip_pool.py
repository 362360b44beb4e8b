"""Joins a node to its datacenter's gossip pool, tells the pool its health, and answers what the pool knows of workers.

Gossip is optional everywhere. A node that cannot join logs it once and tries again; no work waits for it (DESIGN.md, the gossip plane).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tenure.clock import Clock
from tenure.errors import GossipError
from tenure.gossip import GossipNode, GossipSettings, Keyring, format_address, parse_address, parse_key
from tenure.gossip.messages import MemberState
from tenure.gossip.net.transport import GossipTransport
from tenure.health.overload import OverloadState
from tenure.health.piggyback import HealthPiggyback, NodeType
from tenure.health.window import INTERVAL_S, EventWindow
from tenure.ids import IdSource, new_id, secret_bytes
from tenure.nodes.loop_keeper import LoopKeeper, ProductFailures
from tenure.nodes.slot_runner import SlotsView
from tenure.randomness import Random, fresh_random

JOIN_AGAIN_S = 5.0
TELL_EVERY_S = 5.0
LEAVE_S = 1.0


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The address, the seeds and the keys with which a node gossips. With an empty `bind` it does not gossip."""

    bind: str = ""
    """host:port; port 0 for a free one."""
    join: tuple[str, ...] = ()
    """Addresses of any members. The node dials them again while they are missing."""
    advertise: str = ""
    key_file: str = ""
    """Keys in base64, one a line; the first encrypts."""
    label: str = "tenure"

    def keyring(self) -> Keyring | None:
        if not self.key_file:
            return None
        lines = Path(self.key_file).read_text().splitlines()
        return Keyring([parse_key(line.strip()) for line in lines if line.strip()], entropy=secret_bytes)


class Pool:
    """One node in its pool. A leader reads it as a `PoolView`; a worker tells it its health."""

    def __init__(self, node: GossipNode, name: str, kind: NodeType, *, clock: Clock) -> None:
        self.node, self._name, self._kind, self._clock = node, name, kind, clock
        self._completions = EventWindow(INTERVAL_S, history=0)
        self._completed = 0
        self._said: HealthPiggyback | None = None
        self._incarnation = ""

    # Called by a leader

    def alive(self, name: str) -> bool | None:
        """Returns True for a living worker and False for a dead one; None for an unknown one, and for a suspect, which may still refute it."""
        member = self.node.member(gossip_name(NodeType.WORKER, name))
        if member is None or member.state is MemberState.SUSPECT:
            return None
        return member.state is MemberState.ALIVE

    def health(self, name: str) -> HealthPiggyback | None:
        return self.node.health(gossip_name(NodeType.WORKER, name))

    # The health of this node

    def tell_slots(self, view: SlotsView, overload: OverloadState, incarnation: str) -> None:
        """Tells the pool the health of a worker, from a view of its slots."""
        now = self._clock.monotonic()
        if incarnation != self._incarnation:
            self._incarnation, self._completed = incarnation, 0
            self.node.set_tags(tags_of(self._kind, self._name, incarnation))
        if view.completed > self._completed:
            self._completions.record(now, view.completed - self._completed)
            self._completed = view.completed
        advancing = sum(one.silent_s < max(INTERVAL_S, one.stall_s) for one in view.attempts)
        self.tell(
            HealthPiggyback(
                self._name[:100],
                self._kind,
                view.accepting,
                view.free,
                int(self._completions.last_interval(now)),
                0,
                overload,
                waiting=len(view.attempts),
                advancing=advancing,
            )
        )

    def tell_fleet(self, *, reads: bool, free: int, running: int, workers: int) -> None:
        """Tells the pool the health of a manager: if it can answer, and, where it leads, the free slots of its workers."""
        self.tell(
            HealthPiggyback(
                self._name[:100],
                self._kind,
                reads,
                free,
                0,
                0,
                OverloadState.HEALTHY,
                waiting=running,
                advancing=workers,
            )
        )

    def tell(self, health: HealthPiggyback) -> None:
        """Tells the pool this health, unless nothing changed: each change costs a rumour."""
        if self._said is not None and replace(health, sequence=self._said.sequence) == self._said:
            return
        sequence = self._said.sequence + 1 if self._said else 1
        self._said = replace(health, sequence=sequence)
        self.node.set_health(self._said)


def gossip_name(kind: NodeType, name: str) -> str:
    """Returns the name of a node in its pool. It begins with the kind, because a manager and a worker of one name are two members."""
    return f"{kind.value}-{name}"


def tags_of(kind: NodeType, name: str, incarnation: str) -> dict[str, str]:
    return {"role": kind.value, "name": name[:128], "incarnation": incarnation[:64]}


@contextlib.asynccontextmanager
async def pooled(
    settings: PoolSettings,
    name: str,
    kind: NodeType,
    *,
    clock: Clock,
    say: Callable[[str], None],
    random: Random | None = None,
    ids: IdSource = new_id,
    transport: GossipTransport | None = None,
) -> AsyncIterator[Pool | None]:
    """Keeps the node in the pool for as long as the block lasts. Yields None where the settings have no `bind`."""
    if not settings.bind:
        yield None
        return
    node = GossipNode(
        gossip_name(kind, name),
        bind=parse_address(settings.bind),
        advertise=parse_address(settings.advertise) if settings.advertise else None,
        settings=GossipSettings.lan(label=settings.label),
        tags=tags_of(kind, name, ""),
        keyring=settings.keyring(),
        clock=clock,
        random=random or fresh_random(),
        ids=ids,
        transport=transport,
    )
    async with node:
        say(f"gossips on {format_address(node.address)}")
        keeper = LoopKeeper(clock, random or fresh_random(), ProductFailures(clock, say), say=say)
        joining = asyncio.create_task(
            keeper.keep("joining the gossip", partial(_join, node, settings.join, clock, say))
        )
        try:
            yield Pool(node, name, kind, clock=clock)
        finally:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            await node.leave(timeout_s=LEAVE_S)


async def _join(node: GossipNode, seeds: tuple[str, ...], clock: Clock, say: Callable[[str], None]) -> None:
    """Tries the seeds until one lets this node in. After that the gossip node itself dials the seeds that are missing."""
    told = False
    while seeds:
        try:
            await node.join(seeds)
            say(f"joined the gossip of {', '.join(seeds)}")
            return
        except (GossipError, OSError) as error:
            if not told:
                say(f"gossip: {error}; goes on without it, and tries again")
                told = True
            await clock.async_sleep(JOIN_AGAIN_S)

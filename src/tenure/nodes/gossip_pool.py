"""Joins a node to its datacenter's gossip pool, tells the pool its health, and answers what the pool knows of workers.

Gossip is optional everywhere. A node that cannot join logs it once and tries again; no work waits for it (DESIGN.md, the gossip plane).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import ConfigurationError, GossipError, TenureError
from tenure.gossip import GossipNode, GossipSettings, Keyring, format_address, format_key, parse_address, parse_key
from tenure.gossip.messages import Address, MemberState
from tenure.gossip.net.transport import GossipTransport
from tenure.health.node_states import HealthPiggyback, NodeType, PoolWord
from tenure.health.overload import OverloadState
from tenure.health.window import INTERVAL_S, CompletionRate, EventWindow
from tenure.logs import NodeLog
from tenure.nodes.loop_keeper import LoopKeeper, ProductFailures
from tenure.nodes.pool_settings import PoolSettings
from tenure.nodes.slot_runner import SlotsView
from tenure.randomness import IdSource, Random, fresh_random, new_id, secret_bytes

JOIN_AGAIN_S = 5.0
LOOK_AGAIN_S = 30.0
"""The seconds after which a manager looks again for managers that are not in its pool."""
NODES = "nodes"
"""The store of the engine in which managers write their entries, under keys that begin with `MANAGERS`."""
MANAGERS = "manager/"
TELL_EVERY_S = 5.0
LEAVE_S = 1.0


def keyring_of(settings: PoolSettings) -> Keyring | None:
    """Returns the keys of a pool; None where it has none. Raises `ConfigurationError`."""
    return file_keyring(Path(settings.key_file)) if settings.key_file else None


def file_keyring(path: Path) -> Keyring:
    """Returns the keys of a file, in base64, one a line. Changes of the keyring are written to it, so that a rotated key survives a restart.

    Raises `ConfigurationError`.
    """
    keys = [parse_key(line.strip()) for line in path.read_text().splitlines() if line.strip()]
    return Keyring(keys, entropy=secret_bytes, on_change=partial(_write_keys, path))


def _write_keys(path: Path, keys: tuple[bytes, ...]) -> None:
    """Replaces the file in one step: a reader sees the old keys or the new ones. Raises `ConfigurationError`."""
    draft = path.with_name(f".{path.name}.{new_id()[:8]}")
    try:
        draft.touch(0o600, exist_ok=False)
        with draft.open("w") as file:
            file.write("".join(f"{format_key(key)}\n" for key in keys))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigurationError(
            f"the gossip keys changed and {path} could not be written: {error.strerror or error}",
            remedy="Write the new keys to the file before the node starts again, or let it write there",
        ) from error


def address_towards(engine_url: str) -> str:
    """Returns the address from which this machine reaches the server of an engine, with port 0. Raises `OSError`.

    All nodes of a datacenter reach that server, so they reach each other on the same network. No packet is sent.
    """
    parts = urlsplit(engine_url.partition(",")[0])  # several servers of one cluster stand with commas between them
    if not parts.hostname:
        return "127.0.0.1:0"  # a file, or a socket of this machine
    family, kind, _, _, address = socket.getaddrinfo(parts.hostname, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return format_address((probe.getsockname()[0], 0))


async def with_default(settings: PoolSettings, engine_url: str, log: NodeLog) -> PoolSettings:
    """Returns the settings with an address, where a key is set: a key says that there is a pool (0482)."""
    if settings.bind or not settings.key_file or not engine_url:
        return settings
    try:
        return replace(settings, bind=await asyncio.to_thread(address_towards, engine_url))
    except (OSError, ConfigurationError) as error:
        log.warning(
            f"this node does not gossip: its address towards the engine cannot be found ({error}); say --gossip HOST:PORT"
        )
        return settings


class _WhereItGossips(msgspec.Struct, frozen=True):
    """The part of a manager's entry that a node reads to find its pool."""

    gossip: str = ""


class EngineSeeds:
    """Reads from the engine where managers gossip, so that nodes of a datacenter find each other without `--join`.

    The pool's key decides who gets in. Whoever can write to the engine can make nodes dial an address, and nothing more.
    """

    def __init__(self, engine: Engine, calls: Calls, url: str = "") -> None:
        """`url` is the engine's."""
        self._engine, self._calls, self.url = engine, calls, url

    async def read(self) -> list[Address]:
        """Returns the addresses in the entries of the managers. Raises `TenureError` while the engine is out of reach."""
        store, found = self._engine.store(NODES), []
        for key in await self._calls.run(store.list, MANAGERS):
            data = await self._calls.run(store.get, key)
            try:
                said = msgspec.json.decode(data or b"{}", type=_WhereItGossips)
                found += [parse_address(said.gossip)] if said.gossip else []
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConfigurationError):
                continue  # another program's value, or a damaged one: the other managers are found all the same
        return found


class Pool:
    """One node in its pool. A leader reads it as a `PoolView`; a worker tells it its health."""

    def __init__(self, node: GossipNode, name: str, kind: NodeType, *, clock: Clock) -> None:
        self.node, self._name, self._kind, self._clock = node, name, kind, clock
        self._completions = EventWindow(INTERVAL_S, history=0)
        self._completed = 0
        # The pool is told what this worker completed in the intervals before. Only a leader compares it with its peers (decision 0061).
        self._rate, self._assigned, self._looked_at = CompletionRate(INTERVAL_S), 0, clock.monotonic()
        self._said: HealthPiggyback | None = None
        self._incarnation = ""

    # Called by a leader

    def word(self, name: str) -> PoolWord | None:
        """Returns the belief about a worker; None for an unknown one, and for a suspect, which may still refute it."""
        member = self.node.member(gossip_name(NodeType.WORKER, name))
        if member is None or member.state is MemberState.SUSPECT:
            return None
        alive = member.state is MemberState.ALIVE
        return PoolWord(member.tags.get("incarnation", ""), alive, self.node.health(member.name) if alive else None)

    # The health of this node

    def tell_slots(self, view: SlotsView, overload: OverloadState, incarnation: str) -> None:
        """Tells the pool the health of a worker, from a view of its slots."""
        now = self._clock.monotonic()
        if incarnation != self._incarnation:
            self._incarnation, self._completed = incarnation, 0
            self.node.set_tags(tags_of(self._kind, self._name, incarnation))
        completed, self._completed = max(0, view.completed - self._completed), max(self._completed, view.completed)
        if completed:
            self._completions.record(now, completed)
        self._rate.observe(now, assigned=self._assigned, over_s=now - self._looked_at, completions=completed)
        self._assigned, self._looked_at = len(view.attempts), now
        # Allowed silence is no progress, and a declared one is told as no silence at all.
        advancing = sum(
            one.silent_s < INTERVAL_S and one.allowed_silence_s <= max(one.stall_s, 0.0) for one in view.attempts
        )
        self.tell(
            HealthPiggyback(
                self._name[:100],
                self._kind,
                view.accepting,
                view.free,
                int(self._completions.last_interval(now)),
                round(self._rate.expected(now) * len(view.attempts)),
                overload,
                waiting=len(view.attempts),
                advancing=advancing,
            )
        )

    def tell_fleet(
        self,
        *,
        accepting: bool,
        free: int,
        dispatched: int,
        expected: float,
        running: int,
        workers: int,
        overload: OverloadState,
    ) -> None:
        """Tells the pool the health of a manager: if it accepts jobs, its load, and, where it leads, the free slots of its workers and the attempts
        that it dispatched in the last interval, beside those that it could have."""
        self.tell(
            HealthPiggyback(
                self._name[:100],
                self._kind,
                accepting,
                free,
                dispatched,
                round(expected),
                overload,
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
    log: NodeLog,
    random: Random | None = None,
    found: EngineSeeds | None = None,
    ids: IdSource = new_id,
    transport: GossipTransport | None = None,
) -> AsyncIterator[Pool | None]:
    """Keeps the node in the pool while the block lasts, also in that of the managers `found`. Yields None where it does not gossip."""
    settings = await with_default(settings, found.url if found is not None else "", log)
    if not settings.bind:
        yield None
        return
    node = GossipNode(
        gossip_name(kind, name),
        bind=parse_address(settings.bind),
        advertise=parse_address(settings.advertise) if settings.advertise else None,
        settings=GossipSettings.lan(label=settings.label, no_key=settings.no_key),
        tags=tags_of(kind, name, ""),
        keyring=keyring_of(settings),
        clock=clock,
        random=random or fresh_random(),
        ids=ids,
        transport=transport,
    )
    async with node:
        log.info(f"gossips on {format_address(node.address)}")
        keeper = LoopKeeper(clock, random or fresh_random(), ProductFailures(clock, log))
        joining = asyncio.create_task(
            keeper.keep("joining the gossip", partial(_Joining(node, kind, found, clock, log).run, settings.join))
        )
        try:
            yield Pool(node, name, kind, clock=clock)
        finally:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            await node.leave(timeout_s=LEAVE_S)


class _Joining:
    """Brings one node into its pool, and keeps the managers of a datacenter in one pool."""

    def __init__(self, node: GossipNode, kind: NodeType, found: EngineSeeds | None, clock: Clock, log: NodeLog) -> None:
        self._node, self._kind, self._found, self._clock, self._log = node, kind, found, clock, log
        self._complained = False

    async def run(self, seeds: tuple[str, ...]) -> None:
        """Tries the seeds until one lets this node in: after that the gossip node itself dials those that are missing. Then looks for managers
        in the engine, for as long as the node gossips."""
        while seeds and not await self._join(seeds):
            await self._clock.async_sleep(JOIN_AGAIN_S)
        while self._found is not None:
            await self._look(self._found)
            await self._clock.async_sleep(JOIN_AGAIN_S if self._is_alone else LOOK_AGAIN_S)

    @property
    def _is_alone(self) -> bool:
        return not any(member.is_here for member in self._node.members if member.address != self._node.address)

    async def _look(self, found: EngineSeeds) -> None:
        """Joins managers that are not in the pool. A worker that has company leaves that to the managers: two reads of the engine less."""
        if self._kind is NodeType.WORKER and not self._is_alone:
            return
        try:
            addresses = await found.read()
        except TenureError as error:
            self._complain(error)
            return
        here = {member.address for member in self._node.members if member.is_here}
        missing = [address for address in addresses if address not in here]
        if missing:
            await self._join(tuple(format_address(address) for address in missing))

    async def _join(self, seeds: tuple[str, ...]) -> bool:
        try:
            await self._node.join(seeds)
        except (GossipError, OSError) as error:
            self._complain(error)
            return False
        self._log.info(f"joined the gossip of {', '.join(seeds)}")
        self._complained = False
        return True

    def _complain(self, error: Exception) -> None:
        """Says once, until a seed has let us in, that we go on alone."""
        if not self._complained:
            self._log.warning(f"gossip: {error}; goes on without it, and tries again")
            self._complained = True

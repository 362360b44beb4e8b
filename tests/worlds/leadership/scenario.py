"""Candidates that lead in turn, clients that append and read, and an observer who sees everything.

Checks election and journal as a whole: what clients were told is true, whatever fails. The observer looks at the engine
itself after each event; clients report what they were answered.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from tenure.engines.contracts import Entry
from tenure.sim.faults import FaultKind, FaultProfile
from tenure.sim.scenario import Scenario
from tenure.sim.world import Host, World
from tests.worlds.leadership.candidate import ELECTED, Candidate, decode

CANDIDATES = ("c1", "c2", "c3")
CLIENTS = ("x", "y")
KINDS = (
    *(FaultKind.CRASH, FaultKind.REBOOT, FaultKind.STALL, FaultKind.SUSPEND, FaultKind.SKEW, FaultKind.DRIFT),
    *(FaultKind.PARTITION, FaultKind.SPLIT, FaultKind.ONE_WAY, FaultKind.DELAY, FaultKind.BREAK),
    *(FaultKind.ENGINE_OUTAGE, FaultKind.ENGINE_REFUSES, FaultKind.ENGINE_FORGETS),
    *(FaultKind.ENGINE_LATE, FaultKind.ENGINE_SLOW),
)
"""Candidates and clients exchange requests only, and no datagrams."""


class Leadership(Scenario):
    """Three candidates, two clients, fourteen seconds of which the last four are quiet."""

    duration_s = 14.0
    faults = FaultProfile(
        kinds=KINDS,
        most=6,
        until_s=6.5,
        duration_s=(0.2, 3.5),
        amounts={FaultKind.DELAY: (0.1, 4.0)},  # longer than a term, so that what was sent in one arrives in the next
    )
    candidate: ClassVar[type[Candidate]] = Candidate
    quiet_s: ClassVar[float] = 4.0
    """When all faults are over for this long, clients are served again."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        """Operations that a client was told are done, with the sequence it was told."""
        self.last_acknowledged_s = 0.0
        self._lives: dict[str, Candidate] = {}
        self._written: dict[str, int] = {}
        self._append_ids: set[str] = set()
        self._writers: dict[int, str] = {}
        self._last = Entry(0, 0, "", 0.0, ())
        self._epoch_granted = 0
        self._snapshot = (0, 0)

    def setup(self, world: World) -> None:
        self._journal = world.backend.engine.journal("book")
        self._election = world.backend.engine.election("leader")
        for name in CANDIDATES:
            world.node(name, self._lead).start()
        for name in CLIENTS:
            world.node(name, lambda host: self._ask(host, world)).start()

    async def _lead(self, host: Host) -> None:
        self._lives[host.name] = candidate = self.candidate(host)
        await candidate.run()

    # Clients

    async def _ask(self, host: Host, world: World) -> None:
        number, order = 0, list(CANDIDATES)
        while True:
            number += 1
            operation = f"{host.id}/{number}"
            seq = int(await self._until_answered(host, order, f"append {operation}"))
            host.record(f"{operation} acknowledged at {seq}")
            self.acknowledged[operation] = seq
            self.require(self._written.get(operation) == seq, f"{operation} was acknowledged at {seq} and is not there")
            self.last_acknowledged_s = world.now
            known = len(self.acknowledged)
            count = int(await self._until_answered(host, order, "read"))
            self.require(count >= known, f"a read shows {count} operations, after {known} had been acknowledged")
            await asyncio.sleep(1.0)

    async def _until_answered(self, host: Host, order: list[str], message: str) -> str:
        """Ask one candidate after the other, the last known leader first, until one says that it did it."""
        while True:
            try:
                reply: str = await host.transport.request(order[0], message, timeout=1.0)
            except (TimeoutError, ConnectionError):
                reply = "no"
            if reply != "no":
                return reply
            order.append(order.pop(0))
            await asyncio.sleep(0.1 + 0.2 * host.random.random())

    # What must hold

    def check(self, world: World) -> None:
        if self._journal.head().seq != self._last.seq:
            for entry in self._journal.read(self._last.seq):
                self._check_entry(entry)
        self._check_leaders()
        self._check_election()
        self._check_snapshot()

    def _check_entry(self, entry: Entry) -> None:
        writer, operation, base = decode(entry.events[0])
        last, self._last = self._last, entry
        self.require(entry.seq == last.seq + 1, f"entry {entry.seq} follows {last.seq}")
        self.require(entry.epoch >= last.epoch, f"entry {entry.seq} of epoch {entry.epoch} follows epoch {last.epoch}")
        first = self._writers.setdefault(entry.epoch, writer)
        self.require(first == writer, f"epoch {entry.epoch} was written by {first} and by {writer}")
        self.require(
            entry.epoch == last.epoch or operation == ELECTED,
            f"epoch {entry.epoch} begins with {operation}, not with its election",
        )
        self.require(entry.append_id not in self._append_ids, f"append {entry.append_id} was written twice")
        self._append_ids.add(entry.append_id)
        self.require(
            base == len(self._written),
            f"{writer} decided entry {entry.seq} on {base} operations when there were {len(self._written)}",
        )
        if operation != ELECTED:
            self.require(operation not in self._written, f"{operation} was written twice")
            self._written[operation] = entry.seq

    def _check_leaders(self) -> None:
        acting = [
            life.host.id for life in self._lives.values() if life.leading and not life.host.loop.dead and life.may_act()
        ]
        self.require(len(acting) <= 1, f"{' and '.join(acting)} take themselves for the leader at the same time")

    def _check_election(self) -> None:
        leader = self._election.current()
        if leader is not None:
            self.require(
                leader.epoch >= self._epoch_granted,
                f"epoch {leader.epoch} was granted after epoch {self._epoch_granted}",
            )
            self._epoch_granted = leader.epoch

    def _check_snapshot(self) -> None:
        found = self._journal.latest_snapshot()
        if found is None or (found.seq, found.epoch) == self._snapshot:
            return
        seq, epoch = self._snapshot
        self.require(found.seq >= seq, f"a snapshot at {found.seq} replaced one at {seq}")
        self.require(found.epoch >= epoch, f"a snapshot of epoch {found.epoch} replaced one of epoch {epoch}")
        expected = ",".join(f"{name}={at}" for name, at in self._written.items() if at <= found.seq)
        self.require(found.state.decode() == expected, f"the snapshot at {found.seq} is not the fold up to there")
        self._snapshot = (found.seq, found.epoch)

    def finish(self, world: World) -> None:
        self.require(
            self.last_acknowledged_s > world.now - self.quiet_s,
            f"nothing was acknowledged since {self.last_acknowledged_s:.3f} s, though all faults are over",
        )

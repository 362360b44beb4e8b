"""The engine of a simulated world: a real `MemoryEngine` on a clock of its own, and what is wrong with it.

Scenarios and invariants may look at `engine` itself; one that writes to it calls `touch` afterwards, as nothing else tells
the long polls of nodes. Nodes reach it through a `Connection`, which can fail before an
effect, after it, or before an effect that still comes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from tenure.engines.memory import MemoryEngine
from tenure.ids import seeded_ids
from tenure.sim.clock import SimClock

if TYPE_CHECKING:
    from tenure.sim.calls import Call, Connection
    from tenure.sim.engine import SimEngine
    from tenure.sim.node import Host
    from tenure.sim.world import World

CALL_TIMEOUT_S = 2.0
"""After this long a client gives up on an engine that does not answer."""


class PollTopic(NamedTuple):
    """The name of the state that a long poll waits on and that a call changes."""

    part: str
    name: str


class WouldBlock(Exception):
    """The engine would wait here; in a simulation the call is tried again when something changed or the time is up."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout


class EngineClock(SimClock):
    """The engine's own time. It never drifts: it is what all the others drift from."""

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        if timeout is not None and timeout <= 0:
            return False
        raise WouldBlock(timeout)


class Backend:
    """The one engine that all nodes of a datacenter share."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.clock = EngineClock(world.kernel, monotonic=50_000.0)
        self.engine = MemoryEngine(self.clock, ids=seeded_ids(world.random(f"ids/{name}")), url="memory://")
        self.outages = 0
        """While above 0, nothing reaches the engine."""
        self.late: list[float] = []
        """Chances that a call fails first and takes effect afterwards, one for each fault that is on."""
        self.written = 0
        """How often a journal was written to: whoever watches journals need not ask each of them."""
        self._parked: dict[PollTopic, dict[Call, None]] = {}

    def connect(self, host: Host) -> SimEngine:
        """The engine as this life of a process sees it."""
        from tenure.sim.engine import SimEngine

        return SimEngine(self, host)

    def end_outage(self) -> None:
        self.outages -= 1

    def park(self, call: Call, topic: PollTopic) -> None:
        """Keep a long poll until something changes there."""
        self._parked.setdefault(topic, {})[call] = None

    def leave(self, call: Call, topic: PollTopic) -> None:
        self._parked.get(topic, {}).pop(call, None)

    def end_polls(self, connection: Connection) -> None:
        """A client closes: its long polls look again, and find that."""
        mine = [call for waiting in self._parked.values() for call in waiting if call.connection is connection]
        for call in mine:
            call.look_again()

    def touch_first(self, topic: PollTopic) -> None:
        """The next thing to happen there may happen earlier than before: the first in line looks, and waits anew."""
        for call in self._parked.get(topic, ()):
            call.look_again()
            return

    def touch(self, topic: PollTopic) -> None:
        """Something changed: whoever waits for it looks again, in the order in which they came."""
        if topic.part == "journal":
            self.written += 1
        waiting = self._parked.pop(topic, None)
        for call in waiting or ():
            call.look_again()

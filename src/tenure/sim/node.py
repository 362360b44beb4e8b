"""A simulated machine and the process on it, which can crash, restart, be stopped and go on.

A crash is sudden: nothing in the process is told, no `finally` runs, and whatever its remains try to send is dropped.
Each start is a new incarnation with a new loop; the clock and the disk are the machine's and stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tenure.errors import SimulationError
from tenure.ids import IdSource, seeded_ids
from tenure.randomness import Random
from tenure.sim.clock import SimClock
from tenure.sim.endpoint import SimTransport, Transport
from tenure.sim.loop import SimLoop, SimTask

if TYPE_CHECKING:
    from tenure.sim.calls import EngineCalls
    from tenure.sim.engine import SimEngine
    from tenure.sim.world import World

Program = Callable[["Host"], Coroutine[Any, Any, object]]
"""The main function of a node. The process ends when it returns; an exception from it ends the run."""


class Host:
    """Everything that one life of a process gets from outside: it can reach nothing else in the simulation."""

    def __init__(self, node: Node, incarnation: int) -> None:
        world = node.world
        self.name = node.name
        self.incarnation = incarnation
        self.id = f"{node.name}#{incarnation}"
        """Names this life: no other start of this or any node has it."""
        self.clock: SimClock = node.clock
        self.loop = SimLoop(world.kernel, self.id, node.clock)
        self.transport: Transport = SimTransport(world.network, node.name, self.loop)
        self.disk: dict[str, Any] = node.disk
        """Survives a crash."""
        self._world = world
        self._engine_name = node.engine
        self._engine: SimEngine | None = None

    @cached_property
    def random(self) -> Random:
        """Chance, of this life alone."""
        return self._world.random(f"host/{self.id}")

    @cached_property
    def ids(self) -> IdSource:
        return seeded_ids(self._world.random(f"ids/{self.id}"))

    @property
    def engine(self) -> SimEngine:
        """The world's engine as this process reaches it: synchronous, inline, with the faults of the day."""
        if self._engine is None:
            self._engine = self._world.backend_of(self._engine_name).connect(self)
        return self._engine

    @property
    def calls(self) -> EngineCalls:
        """Runs engine calls as asyncio nodes do, with the time that they take and the ways in which they fail."""
        return self.engine.calls

    def record(self, what: str) -> None:
        """Put an event into the trace; invariants are checked after it."""
        if not self.loop.dead:
            self._world.record(self.id, what)


class Node:
    """One machine, and the process that may run on it."""

    def __init__(self, world: World, name: str, clock: SimClock, program: Program | None, engine: str) -> None:
        self.world, self.name, self.clock, self.program, self.engine = world, name, clock, program, engine
        self.disk: dict[str, Any] = {}
        self.incarnation = 0
        self.host: Host | None = None
        """The life that runs now."""
        self._main: SimTask[object] | None = None
        self._stalls = 0
        self._asleep_since: int | None = None
        self._drifts: list[float] = []

    @property
    def running(self) -> bool:
        return self.host is not None

    @property
    def stalled(self) -> bool:
        return self._stalls > 0

    def start(self, program: Program | None = None) -> Host:
        """Begin a new life."""
        if self.host is not None:
            raise SimulationError(f"{self.host.id} runs already", remedy="crash() it first, or use restart()")
        self.program = program or self.program
        if self.program is None:
            raise SimulationError(f"node {self.name} has no program", remedy="Give one to start() or world.node()")
        self.incarnation += 1
        self.host = host = Host(self, self.incarnation)
        if self._stalls:
            host.loop.held = []
        self.world.record(self.name, f"starts as {host.id}")
        # Within the new loop, so that a program may make its futures and locks before it first awaits.
        self._main = host.loop.create_task(self._run(host, self.program), name=f"{host.id}-main")
        return host

    async def _run(self, host: Host, program: Program) -> None:
        try:
            await program(host)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            host.loop.call_exception_handler({"message": f"{host.id} failed", "exception": error})
            return
        self.world.record(self.name, f"{host.id} ends")
        self._end(host)

    def crash(self) -> None:
        """The process is gone, at once and without a word."""
        if self.host is not None:
            self.world.record(self.name, f"{self.host.id} crashes")
            self._end(self.host)

    def _end(self, host: Host) -> None:
        self.world.graveyard.append((host.loop, host.loop.kill()))
        host.transport.close()
        self.host = self._main = None

    def restart(self, *, reboot: bool = False) -> Host:
        """Crash if it runs, and start again as a new incarnation; `reboot` also starts boot time anew."""
        self.crash()
        if reboot:
            self.clock.reboot(f"{self.name}-boot-{self.incarnation + 1}")
        return self.start()

    def stop(self) -> None:
        """Ask it to end: its main task is cancelled, as a SIGTERM handler would do, and may clean up."""
        if self._main is not None:
            self._main.cancel()

    def stall(self, *, asleep: bool = False) -> None:
        """Stop the process as SIGSTOP does: nothing of it runs while time passes, and then all that is late runs at once.

        `asleep` suspends the machine: monotonic time stands still meanwhile, boot time does not.
        """
        self._stalls += 1
        if asleep and self._asleep_since is None:
            self._asleep_since = self.world.kernel.now
        if self._stalls == 1:
            self.world.record(self.name, "is suspended" if asleep else "stalls")
            if self.host is not None:
                self.host.loop.held = []

    def resume(self) -> None:
        """Go on. As many resumes as stalls are needed."""
        if self._stalls == 0:
            return
        self._stalls -= 1
        if self._stalls:
            return
        self.world.record(self.name, "goes on")
        if self._asleep_since is not None:
            self.clock.slept(self.world.kernel.now - self._asleep_since)
            self._asleep_since = None
        if self.host is not None and (held := self.host.loop.held) is not None:
            self.host.loop.held = None
            self.world.kernel.ready.extend(held)

    def drift(self, rate: float) -> None:
        """Let its clock run fast or slow; several drifts at once add up."""
        self._drifts.append(rate)
        self._set_rate()

    def end_drift(self, rate: float) -> None:
        self._drifts.remove(rate)
        self._set_rate()

    def _set_rate(self) -> None:
        self.clock.set_rate(1.0 + sum(rate - 1.0 for rate in self._drifts))
        self.world.record(self.name, f"its clock runs at {self.clock.rate:.6f}")

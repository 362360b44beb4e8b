"""Everything that one seed decides: the kernel, the network, the machines with their processes, the engine, and the record of the run.

A process can crash, restart, be stopped and go on. A crash is sudden: nothing in the process is told, no `finally` runs, and whatever its remains try to send is dropped.
Each start is a new incarnation with a new loop; the clock and the disk are the machine's and stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tenure.errors import SimulationError
from tenure.randomness import IdSource, Random, seeded_ids
from tenure.sim.clock import SimClock
from tenure.sim.confinement import confined
from tenure.sim.endpoint import Transport
from tenure.sim.kernel import Kernel, Limits, Trace, to_seconds, to_ticks
from tenure.sim.loop import SimLoop, SimTask, bury
from tenure.sim.network import ENGINE, Network, NetworkLink

if TYPE_CHECKING:
    from tenure.sim.calls import Backend, EngineCalls
    from tenure.sim.engine import SimEngine


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
        self.transport = Transport(world.network, node.name, self.loop)
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
        """Kills the process, at once and without a word."""
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


T = TypeVar("T")


class World:
    """One run. Make it, add nodes, run it, close it."""

    def __init__(
        self,
        seed: int = 0,
        *,
        link: NetworkLink | None = None,
        limits: Limits | None = None,
        keep_trace: int | None = 20_000,
    ) -> None:
        self.seed = seed
        self.kernel = Kernel(limits)
        self.trace = Trace(keep=keep_trace)
        self.loop = SimLoop(self.kernel, "world", SimClock(self.kernel, monotonic=0.0))
        self.network = Network(self.kernel, self.loop, self.trace, self.random, link)
        self.nodes: dict[str, Node] = {}
        self.roles: dict[str, Callable[[], str]] = {}
        """Names that faults may aim at, and who has them at the moment: "leader" may be another node each time."""
        self.graveyard: list[tuple[SimLoop, list[SimTask[Any]]]] = []
        self.losses = 0
        """How often an engine has lost everything."""
        self._backends: dict[str, Backend] = {}
        self._closed = False

    def random(self, purpose: str) -> Random:
        """Numbers for one purpose: what one part draws does not change what another gets."""
        return Random(f"{self.seed}/{purpose}")

    @property
    def now(self) -> float:
        """True time, in seconds since the start: no node knows it."""
        return to_seconds(self.kernel.now)

    def record(self, who: str, what: str) -> None:
        """Put an event into the trace; invariants are checked after it."""
        self.trace.record(self.kernel.now, who, what)

    @property
    def backend(self) -> Backend:
        """The engine itself, out of reach of all faults: for scenarios and invariants."""
        return self.backend_of(ENGINE)

    def backend_of(self, engine: str) -> Backend:
        """Returns one of several engines, by the name of its endpoint: each datacenter has one."""
        found = self._backends.get(engine)
        if found is None:
            from tenure.sim.calls import Backend

            found = self._backends[engine] = Backend(self, engine)
        return found

    def forget_backend(self, engine: str) -> None:
        """Has this engine lose everything: nodes that start from now on find an empty one."""
        self._backends.pop(engine, None)
        self.losses += 1

    @property
    def engines(self) -> tuple[str, ...]:
        """The endpoints of all engines that a node uses."""
        return tuple(dict.fromkeys(node.engine for node in self.nodes.values())) or (ENGINE,)

    def node(self, name: str, program: Program | None = None, *, engine: str = ENGINE) -> Node:
        """Returns the machine of this name, made when first asked for. Its clocks start at moments that the seed decides."""
        found = self.nodes.get(name)
        if found is not None:
            found.program = program or found.program
            return found
        if name in (engine, *self.engines):
            raise SimulationError(f"{name} is an engine, and no node", remedy="Choose another name")
        random = self.random(f"clock/{name}")
        clock = SimClock(
            self.kernel,
            monotonic=random.randrange(100_000),
            boottime=random.randrange(100_000),
            wall=1_700_000_000.0 + random.randrange(-2_000, 2_000) / 1_000,
            boot_id=f"{name}-boot-1",
        )
        found = self.nodes[name] = Node(self, name, clock, program, engine)
        return found

    def resolve(self, targets: Iterable[str]) -> tuple[str, ...]:
        """Returns the nodes that are meant, each once: a role stands for whoever has it now."""
        return tuple(dict.fromkeys(self.roles[name]() if name in self.roles else name for name in targets))

    def at(self, seconds: float, action: Callable[..., object], *args: Any) -> None:
        """Do this at a moment of true time."""
        self.network.after(max(0, to_ticks(seconds) - self.kernel.now), action, *args)

    def run_for(self, seconds: float, *, until: Callable[[], bool] | None = None) -> None:
        """Let this much time pass, or less, if the condition holds before."""
        self.kernel.run(until=until, deadline=self.kernel.now + to_ticks(seconds))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the world itself, in true time, until it returns."""
        result: T = self.loop.run_until_complete(main)
        self.require_no_unread_errors()
        return result

    def require_no_unread_errors(self) -> None:
        """Raise what a task failed with while nobody looked: in production it would be a line in a log."""
        for loop in self.kernel.loops:
            if not loop.dead and (errors := loop.unread_errors()):
                errors[0].add_note(f"a task of {loop.name} failed with this, and nobody awaited it")
                raise errors[0]

    def close(self) -> None:
        """End every process, and let nothing of them linger. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        with confined():
            for loop in self.kernel.loops:
                if not loop.dead:
                    self.graveyard.append((loop, loop.kill()))
            for loop, tasks in self.graveyard:
                bury(loop, tasks)
        self.graveyard.clear()
        self.kernel.ready.clear()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def run(main: Coroutine[Any, Any, T], *, limits: Limits | None = None) -> T:
    """Run one coroutine in virtual time, as `asyncio.run` does in real time."""
    with World(limits=limits) as world:
        return world.run(main)

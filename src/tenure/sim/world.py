"""Everything that one seed decides: the kernel, the network, the machines, the engine, and the record of the run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from tenure.errors import SimulationError
from tenure.randomness import Random
from tenure.sim.clock import SimClock
from tenure.sim.confinement import confined
from tenure.sim.kernel import Kernel, Limits, Trace, to_seconds, to_ticks
from tenure.sim.loop import SimLoop, SimTask, bury
from tenure.sim.network import ENGINE, Network, NetworkLink
from tenure.sim.node import Node, Program

if TYPE_CHECKING:
    from tenure.sim.backend import Backend

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
        """One of several engines, by the name of its endpoint: a datacenter each."""
        found = self._backends.get(engine)
        if found is None:
            from tenure.sim.backend import Backend

            found = self._backends[engine] = Backend(self, engine)
        return found

    def forget_backend(self, engine: str) -> None:
        """This engine loses everything: nodes that start from now on find an empty one."""
        self._backends.pop(engine, None)
        self.losses += 1

    @property
    def engines(self) -> tuple[str, ...]:
        """The endpoints of all engines that a node uses."""
        return tuple(dict.fromkeys(node.engine for node in self.nodes.values())) or (ENGINE,)

    def node(self, name: str, program: Program | None = None, *, engine: str = ENGINE) -> Node:
        """The machine of this name, made when first asked for. Its clocks start at moments that the seed decides."""
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
        """The nodes that are meant, each once: a role stands for whoever has it now."""
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

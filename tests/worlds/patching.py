"""The seam between the worlds and the nodes: the environment of a simulated node, and worlds in which a part of every node is replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from tenure.nodes.process import Environment
from tenure.sim.node import Host
from tenure.sim.scenario import Scenario
from tenure.sim.world import World


def environment_of(host: Host) -> Environment:
    """Returns what a node of production is built on, from a simulated host."""
    return Environment(host.engine, host.calls, host.clock, host.random, host.ids, host.record)


class Patched(Scenario):
    """A world in which names of modules or classes stand for something else during a run. Mix it in before the world itself.

    It breaks rules on purpose, so that tests see that a broken rule is found. The nodes know nothing of it.
    """

    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {}
    """Maps (module or class, name) to the thing that the name stands for."""

    def setup(self, world: World) -> None:
        self._sound = {(owner, name): getattr(owner, name) for owner, name in self.instead}
        for (owner, name), broken in self.instead.items():
            setattr(owner, name, broken)
        super().setup(world)  # type: ignore[safe-super]

    def tally(self, world: World) -> Counter[str]:
        """Also the end of the run: the names stand for what they did."""
        found = Counter(super().tally(world))
        for (owner, name), sound in self._sound.items():
            setattr(owner, name, sound)
        return found

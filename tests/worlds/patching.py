"""The seam between the worlds and the nodes: the environment of a simulated node, and worlds in which a part of every node is replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tenure.logs import log_to
from tenure.nodes.process import Environment
from tenure.sim.scenario import RunOutcome, Scenario, run_one
from tenure.sim.world import Host, World


def environment_of(host: Host) -> Environment:
    """Returns what a node of production is built on, from a simulated host."""
    return Environment(host.engine, host.calls, host.clock, host.random, host.ids, log_to(host.record))


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


def first_failure(scenario: type[Scenario], known: Sequence[int], most: int) -> RunOutcome | None:
    """Returns the first run of a broken scenario that fails, or None.

    `known` has seeds at which it failed before; they are tried first. A seed means another run when anything is drawn anew; then the search
    goes on from seed 0, over `most` seeds.
    """
    return next((outcome for seed in (*known, *range(most)) if not (outcome := run_one(scenario, seed)).ok), None)

"""Which letters can still matter to a node: one that can change nothing from here on need not be told apart.

Each kind of node is explored by itself, with every letter that any node could ever send. That is more than can happen,
so a letter that is dead here is dead in the world too, and forgetting it loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.worlds.jobs.scene import DATACENTERS, HIGHEST_EPOCH, TICKS

if TYPE_CHECKING:
    from tests.worlds.jobs.small_world import Core, SmallWorld

FIRST, SECOND, GATE = 0, 1, 2
Node = tuple[int, int, int]
"""(state, tick, how often the gate was replaced)."""


class Liveness:
    """For each node state, the letters that may still change it, or a state that comes after it."""

    def __init__(self, world: SmallWorld) -> None:
        self.world = world
        self.following: dict[int, dict[Node, set[Node]]] = {FIRST: {}, GATE: {}}
        self.live: dict[int, dict[Node, int]] = {FIRST: {}, GATE: {}}
        self._tried: dict[tuple[int, Node], int] = {}
        self._aimed: dict[int, list[int]] = {FIRST: [], GATE: []}
        self._learned: set[int] = set()
        self._masks: dict[tuple[int, Node], int] = {}
        first, second, gate = world.cast.start()
        self._enter(FIRST, (first, 0, 0))
        self._enter(FIRST, (second, 0, 0))
        self._enter(GATE, (gate, 0, 0))
        self._grow()
        self._spread()

    def mask(self, core: Core) -> int:
        """The letters that can still matter to any of the three."""
        return (
            self._mask(FIRST, (core.first, core.tick, 0))
            | self._mask(SECOND, (core.second, core.tick, 0))
            | self._mask(GATE, (core.gate, core.tick, core.gate_changes))
        )

    def _mask(self, place: int, node: Node) -> int:
        found = self._masks.get((place, node))
        if found is None:
            found = self.live[GATE if place == GATE else FIRST][node]
            if place == SECOND:
                swap = self.world.cast.swap_letter
                found = sum(1 << swap(letter) for letter in range(found.bit_length()) if found >> letter & 1)
            self._masks[(place, node)] = found
        return found

    def _enter(self, place: int, node: Node) -> None:
        if node in self.following[place]:
            return
        if place == GATE and self.world.cast.gate_views[node[0]].epoch > HIGHEST_EPOCH:
            return  # only here, where letters of different histories meet, could epochs chase each other
        self.following[place][node] = set()
        self.live[place][node] = 0
        for letter in self.world.sayings(place, node[0], node[1]):
            self._learn(letter)
        for after in self._by_itself(place, node):
            self.following[place][node].add(after)
            self._enter(place, after)

    def _learn(self, letter: int) -> None:
        cast = self.world.cast
        for known in (letter, cast.swap_letter(letter)):
            if known not in self._learned:
                self._learned.add(known)
                if cast.letters[known].to_gate:
                    self._aimed[GATE].append(known)
                elif cast.letters[known].datacenter == DATACENTERS[FIRST]:
                    self._aimed[FIRST].append(known)

    def _by_itself(self, place: int, node: Node) -> Iterator[Node]:
        """What can come of it without a letter."""
        state, tick, changes = node
        cast = self.world.cast
        if tick + 1 < len(TICKS):
            later = cast.age_gate(state, tick + 1) if place == GATE else cast.age_book(state, tick + 1)
            yield later, tick + 1, changes
        if place == GATE:
            yield cast.swap_gate(state), tick, changes  # not a step, but what is live is so in the mirror too
            for _, step, replaced in self.world.gate_acts(state, tick, changes):
                yield step.state, tick, replaced
        else:
            for _, step in self.world.datacenter_acts(state, tick, FIRST):
                yield step.state, tick, changes

    def _grow(self) -> None:
        """Try every letter on every node, until there is neither a new node nor a new letter."""
        cast = self.world.cast
        while any(
            self._tried.get((place, node), 0) < len(self._aimed[place])
            for place in (FIRST, GATE)
            for node in self.following[place]
        ):
            for place in (FIRST, GATE):
                deliver = cast.deliver_to_gate if place == GATE else cast.deliver_to_datacenter
                for node in list(self.following[place]):
                    state, tick, changes = node
                    tried = self._tried.get((place, node), 0)
                    self._tried[(place, node)] = len(self._aimed[place])
                    for letter in self._aimed[place][tried:]:
                        step = deliver(state, letter, tick)
                        for answer in step.letters:
                            self._learn(answer)
                        if step.state != state or step.broken or (step.letters and not self.world.unasked):
                            self.live[place][node] |= 1 << letter
                            after = (step.state, tick, changes)
                            self.following[place][node].add(after)
                            self._enter(place, after)

    def _spread(self) -> None:
        """What is live in a state is live in all that lead to it."""
        for place in (FIRST, GATE):
            live, changed = self.live[place], True
            while changed:
                changed = False
                for node, after in self.following[place].items():
                    found = live[node]
                    for other in after:
                        found |= live.get(other, 0)
                    if found != live[node]:
                        live[node], changed = found, True

"""Breadth first through the small world: every state, every promise asked of each, and a story when one breaks.

Of two states that differ only in their networks, one of which holds all letters of the other, only the larger is
searched: it can do whatever the other can.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.jobs.decisions import Rules
from tests.worlds.jobs.cast import Cast
from tests.worlds.jobs.liveness import Liveness
from tests.worlds.jobs.settling import Settling
from tests.worlds.jobs.small_world import Act, Core, SmallWorld, World

MOST_STEPS = 1_000
"""More than any state is away from the start: a search with so many has seen them all."""


@dataclass
class Found:
    """What a search has seen. `story` is empty when every promise held."""

    states: int = 0
    transitions: int = 0
    cores: int = 0
    datacenter_states: int = 0
    gate_states: int = 0
    messages: int = 0
    most_sent: int = 0
    depth: int = 0
    broken: str = ""
    story: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        seen = (
            f"{self.states:,} states ({self.cores:,} without the network) and {self.transitions:,} transitions, "
            f"of {self.datacenter_states} states of a datacenter, {self.gate_states} of a gate, and {self.messages} "
            f"messages, up to {self.most_sent} of them on their way at once; depth {self.depth}"
        )
        if not self.broken:
            return f"every promise holds in {seen}"
        lines = "".join(f"\n  {number:>2}. {line}" for number, line in enumerate(self.story, 1))
        return f"{self.broken}{lines}\n      ({seen})"


def search(*, leaders: int = 2, cancel: bool = False, steps: int = MOST_STEPS) -> Found:
    """All states that so many steps lead to, under the rulings as they hold. Should a promise break, it is told as `counterexample` tells it."""
    cast = Cast(Rules())
    world = SmallWorld(cast, leaders=leaders, cancel=cancel)
    world.live = Liveness(world)
    found = Search(world, symmetry=True).run(steps)
    if found.broken:
        found = Search(SmallWorld(cast, leaders=leaders, cancel=cancel, unasked=False), symmetry=False).run()
    return counted(found, cast)


def counterexample(rules: Rules | None = None, *, correction_withdraws: bool = False) -> Found:
    """Up to the first broken promise. No symmetry, so that names stay, and no message that nobody asked for."""
    cast = Cast(rules or Rules(), correction_withdraws=correction_withdraws)
    return counted(Search(SmallWorld(cast, cancel=False, unasked=False), symmetry=False).run(), cast)


def counted(found: Found, cast: Cast) -> Found:
    found.datacenter_states, found.gate_states = len(cast.views), len(cast.gate_views)
    found.messages = len(cast.letters)
    return found


class Search:
    """One walk through the world."""

    def __init__(self, world: SmallWorld, *, symmetry: bool) -> None:
        self.world = world
        self.symmetry = symmetry
        self.settling = Settling(world.cast)
        self.found = Found()
        self.largest: dict[Core, list[int]] = {}
        """For each core the networks that were seen with it, without those that another contains."""
        # Ways back are only kept where a story can come of them.
        self.came: dict[World, tuple[World, Act]] = {}

    def run(self, steps: int = MOST_STEPS) -> Found:
        start = self.world.start()
        layer = [start]
        self.new(start)
        while layer and self.found.depth < steps:
            self.found.depth += 1
            following: list[World] = []
            for state in layer:
                # Unless a larger one has overtaken it since.
                if state.network in self.largest[state.core] and not self.expand(state, following):
                    following.clear()
                    break
            layer = following
        self.found.cores = len(self.largest)
        return self.found

    def expand(self, state: World, following: list[World]) -> bool:
        """What can come of a state; False when a promise broke."""
        core, found = state.core, self.found
        broken = self.settling.broken(core.first, core.second, core.gate, core.tick)
        if broken:
            self.tell(state, None, broken)
            return False
        for act, reached, broke in self.world.moves(state):
            found.transitions += 1
            if broke:
                self.tell(state, act, broke)
                return False
            after = self.world.canonical(reached) if self.symmetry else reached
            if self.new(after):
                following.append(after)
                if not self.symmetry:
                    self.came[after] = (state, act)
        return True

    def new(self, state: World) -> bool:
        networks = self.largest.setdefault(state.core, [])
        network = state.network
        for known in networks:
            if known & network == network:
                return False
        self.found.states += 1
        self.found.most_sent = max(self.found.most_sent, network.bit_count())
        networks[:] = [known for known in networks if known & network != known]
        networks.append(network)
        return True

    def tell(self, state: World, last: Act | None, broken: str) -> None:
        self.found.broken = broken
        steps: list[tuple[World, Act]] = [(state, last)] if last else []
        while state in self.came:
            before, act = self.came[state]
            steps.append((before, act))
            state = before
        self.found.story = [self.world.words(before, act) for before, act in reversed(steps)]

"""The small world: every state of two datacenters, their leaders and gates, and every step out of it.

The network keeps every message that was ever sent, and may deliver any of them at any time, any number of times, in any
order, or never. That is more than losing, doubling and reordering a few: whatever holds here holds for any number of
messages. Each node may be replaced, the gate also with the loss of its journal; time moves in abstract ticks, whenever
it likes. A state is a tuple of small numbers; see `cast` for what they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.worlds.jobs.cast import Cast, Step
from tests.worlds.jobs.liveness import Liveness
from tests.worlds.jobs.scene import DATACENTERS, TICKS, letter_words

GATE = 2


class Core(NamedTuple):
    """The nodes and the time: a state without its network."""

    first: int
    second: int
    gate: int
    tick: int
    gate_changes: int


class World(NamedTuple):
    """One state. Bit n of `network` is set when letter n was ever sent."""

    core: Core
    network: int


class Act(NamedTuple):
    """What happened between two states; its words are found only for a story."""

    kind: str
    who: int = -1
    letter: int = -1


Move = tuple[Act, World, str | None]


class SmallWorld:
    """What can happen next, and the mirror image of it."""

    def __init__(self, cast: Cast, *, leaders: int = 2, cancel: bool = True, unasked: bool = True) -> None:
        self.cast = cast
        self.unasked = unasked
        """Answers are given unasked too: that is more than can happen, and makes fewer states."""
        self.live: Liveness | None = None
        self.leaders = leaders
        self.cancel = cancel
        self._about: dict[Core, tuple[int, int]] = {}
        self._local: dict[Core, list[tuple[Act, Core, tuple[int, ...], str | None]]] = {}
        self._images: dict[Core, Core] = {}
        self._felt: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._aimed = [0, 0, 0]
        self._known_letters = 0
        self._mirrors: dict[int, int] = {}

    def start(self) -> World:
        core = Core(*self.cast.start(), 0, 0)
        return self._with(core, 0, ())

    def moves(self, world: World) -> Iterator[Move]:
        core, network = world
        local = self._local.get(core)
        if local is None:
            local = self._local[core] = list(self._local_moves(core))
        for act, after, answers, broken in local:
            yield act, self._with(after, network, answers), broken
        for place in (0, 1, GATE):
            for letter in self._effective(core, place, network):
                step = self._deliver(core, place, letter)
                reached = self._with(placed(core, place, step.state), network, step.letters)
                yield Act("deliver", place, letter), reached, step.broken

    def _local_moves(self, core: Core) -> Iterator[tuple[Act, Core, tuple[int, ...], str | None]]:
        """What can happen without a letter: the same whatever is on its way."""
        if core.tick + 1 < len(TICKS):
            yield Act("tick"), self._later(core, core.tick + 1), (), None
        for who in (0, 1):
            for act, step in self.datacenter_acts(core[who], core.tick, who):
                yield act, placed(core, who, step.state), step.letters, step.broken
        for act, step, changes in self.gate_acts(core.gate, core.tick, core.gate_changes):
            yield act, Core(core.first, core.second, step.state, core.tick, changes), step.letters, step.broken

    def datacenter_acts(self, book: int, tick: int, who: int) -> Iterator[tuple[Act, Step]]:
        cast, name = self.cast, DATACENTERS[who]
        view = cast.views[book]
        if view.state is None or view.state.terminal:
            return
        for kind, step in (
            ("complete", cast.complete(book, name, tick)),
            ("check", cast.check(book, name, tick)),
        ):
            if step.state != book or step.broken:
                yield Act(kind, who), step
        if view.leaders < self.leaders:
            yield Act("take over", who), cast.take_over(book, name, tick)

    def gate_acts(self, gate: int, tick: int, changes: int) -> Iterator[tuple[Act, Step, int]]:
        cast = self.cast
        step = cast.gate_check(gate, tick)
        if step.state != gate or step.broken:
            yield Act("gate check"), step, changes
        if self.cancel:
            step = cast.gate_cancel(gate, tick)
            if step.state != gate:
                yield Act("gate cancel"), step, changes
        if not changes:
            yield Act("gate succeed"), cast.gate_succeed(gate, tick), 1
            yield Act("gate forgets"), cast.gate_forgets(tick), 1

    def _deliver(self, core: Core, place: int, letter: int) -> Step:
        if place == GATE:
            return self.cast.deliver_to_gate(core.gate, letter, core.tick)
        return self.cast.deliver_to_datacenter(core[place], letter, core.tick)

    def _effective(self, core: Core, place: int, network: int) -> Iterator[int]:
        """The letters that would change something at this node; each is tried on each of its states once."""
        node, tick = core[place], core.tick
        self._learn_aims()
        felt, tried = self._felt.get((place, node, tick), (0, 0))
        untried = network & self._aimed[place] & ~tried
        if untried:
            for letter in bits(untried):
                step = self._deliver(core, place, letter)
                answers = 0
                for answer in step.letters:
                    answers |= 1 << answer
                if step.state != node or step.broken or answers:
                    felt |= 1 << letter
            self._felt[(place, node, tick)] = (felt, tried | untried)
        for letter in bits(felt & network):
            step = self._deliver(core, place, letter)
            # An answer that is on its way already changes nothing either.
            if (
                step.state != node
                or step.broken
                or (not self.unasked and any(not network >> answer & 1 for answer in step.letters))
            ):
                yield letter

    def _learn_aims(self) -> None:
        letters = self.cast.letters
        while self._known_letters < len(letters):
            letter = letters[self._known_letters]
            place = GATE if letter.to_gate else DATACENTERS.index(letter.datacenter)
            self._aimed[place] |= 1 << self._known_letters
            self._known_letters += 1

    def _later(self, core: Core, tick: int) -> Core:
        cast = self.cast
        return Core(
            cast.age_book(core.first, tick),
            cast.age_book(core.second, tick),
            cast.age_gate(core.gate, tick),
            tick,
            core.gate_changes,
        )

    def _with(self, core: Core, network: int, answers: tuple[int, ...]) -> World:
        """Whatever a node would say in its new state is said: not hearing it is the network's business."""
        about = self._about.get(core)
        if about is None:
            about = self._about[core] = (self._said_in(core), self.live.mask(core) if self.live is not None else -1)
        if not self.unasked:
            for answer in answers:
                network |= 1 << answer
        said, live = about
        return World(core, (network | said) & live)

    def _said_in(self, core: Core) -> int:
        said = 0
        for place in (0, 1, GATE):
            for letter in self.sayings(place, core[place], core.tick):
                said |= 1 << letter
        return said

    def sayings(self, place: int, node: int, tick: int) -> Iterator[int]:
        cast = self.cast
        if place == GATE:
            yield from cast.gate_owes(node)
            if self.unasked:
                yield from cast.would_acknowledge(node)
            return
        report = cast.report(node, DATACENTERS[place], tick)
        if report is not None:
            yield report
        if self.unasked and (answer := cast.would_answer(node, DATACENTERS[place])) is not None:
            yield answer

    def canonical(self, world: World) -> World:
        """The world or its mirror image, whichever comes first: the other need not be searched."""
        core = world.core
        image = self._images.get(core)
        if image is None:
            gate = self.cast.swap_gate(core.gate)
            image = self._images[core] = Core(core.second, core.first, gate, core.tick, core.gate_changes)
        if core < image:
            return world
        return self.mirrored(world) if image < core else min(world, self.mirrored(world))

    def mirrored(self, world: World) -> World:
        """The same world with the datacenters' names exchanged."""
        core, network = world
        mirror = self._mirrors.get(network)
        if mirror is None:
            mirror = 0
            for letter in bits(network):
                mirror |= 1 << self.cast.swap_letter(letter)
            self._mirrors[network] = mirror
        gate = self.cast.swap_gate(core.gate)
        return World(Core(core.second, core.first, gate, core.tick, core.gate_changes), mirror)

    def words(self, before: World, act: Act) -> str:
        """One line of a story."""
        cast, core = self.cast, before.core
        tick = core.tick
        if act.kind == "deliver":
            letter = cast.letters[act.letter]
            step = self._deliver(core, act.who, act.letter)
            hearer, sender = ("gate", letter.datacenter) if letter.to_gate else (letter.datacenter, "gate")
            return f"{hearer} hears from {sender}: {letter_words(letter)} -> {step.words}"
        name = DATACENTERS[act.who] if act.who >= 0 else "gate"
        told: dict[str, Callable[[], str]] = {
            "tick": lambda: f"time passes: {TICKS[tick + 1]:g} s",
            "complete": lambda: f"{name}: the work is done -> {cast.complete(core[act.who], name, tick).words}",
            "check": lambda: f"{name} checks its clock -> {cast.check(core[act.who], name, tick).words}",
            "take over": lambda: f"{name}: the leader dies, another takes over",
            "gate check": lambda: f"gate checks -> {cast.gate_check(core.gate, tick).words}",
            "gate cancel": lambda: "a user cancels the job at the gate",
            "gate succeed": lambda: "the gate dies, its successor reads the journal",
            "gate forgets": lambda: "the gate dies with its journal; a successor starts with nothing",
        }
        return told[act.kind]()


def placed(core: Core, place: int, node: int) -> Core:
    if place == 0:
        return Core(node, core.second, core.gate, core.tick, core.gate_changes)
    if place == 1:
        return Core(core.first, node, core.gate, core.tick, core.gate_changes)
    return Core(core.first, core.second, node, core.tick, core.gate_changes)


def bits(mask: int) -> Iterator[int]:
    """The positions of the set bits."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low

"""The faults of a run, as a list that can be printed, repeated and made shorter.

Each fault begins at a moment, lasts, and ends by itself: a crash ends in a restart, a partition heals. So any part of a
schedule is a schedule, which is what makes it possible to search for the shortest one that still breaks something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from tenure.errors import ConfigurationError
from tenure.randomness import Random
from tenure.sim.network import Disturbance, NetworkCut, NetworkLink

if TYPE_CHECKING:
    from tenure.sim.world import Node, World


class FaultKind(StrEnum):
    CRASH = "crash"  # the process is gone, and starts again at the end
    REBOOT = "reboot"  # so is the machine: boot time starts anew
    STALL = "stall"  # the process is stopped, as by SIGSTOP or a long collection
    SUSPEND = "suspend"  # the machine sleeps: monotonic time stands still
    PARTITION = "partition"  # the targets and the rest (the engine too) do not reach each other
    SPLIT = "split"  # the targets and the other nodes do not reach each other; all of them reach the engine
    ONE_WAY = "one-way"  # what the targets send arrives nowhere; they still hear
    LOSS = "loss"  # datagrams from and to the targets vanish, requests are slow
    DELAY = "delay"  # everything from and to the targets takes longer, by up to `amount` seconds
    DUPLICATE = "duplicate"  # datagrams and requests arrive twice; only the first answer counts
    REORDER = "reorder"
    BREAK = "break"  # requests from and to the targets fail, before or after they were handled
    SKEW = "skew"  # the wall clock jumps by `amount` seconds, and back at the end
    DRIFT = "drift"  # the clock runs `amount` times too fast
    ENGINE_OUTAGE = "engine-outage"  # nothing reaches the engine
    ENGINE_REFUSES = "engine-refuses"  # calls fail before they had an effect
    ENGINE_FORGETS = "engine-forgets"  # calls fail although they were committed
    ENGINE_LATE = "engine-late"  # calls fail, and take effect afterwards
    ENGINE_SLOW = "engine-slow"  # calls take up to `amount` seconds
    ENGINE_LOST = "engine-lost"  # the engine loses everything; those who use it are down, and start again at the end


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong for a while."""

    at_s: float
    kind: FaultKind
    targets: tuple[str, ...] = ()
    duration_s: float = 1.0
    amount: float = 1.0

    def __str__(self) -> str:
        whom = ",".join(self.targets) or "all"
        return f"{self.at_s:>9.3f} s  {self.kind:<15} {whom:<20} for {self.duration_s:>7.3f} s  amount {self.amount:g}"


def table(faults: Iterable[Fault], *, numbers: Sequence[int] | None = None) -> str:
    """Returns a schedule as people read it."""
    found = list(faults)
    labels = numbers if numbers is not None else range(len(found))
    return "\n".join(f"  {number:>3}  {fault}" for number, fault in zip(labels, found, strict=True)) or "  (no faults)"


Ending = Callable[[], object]


def schedule(world: World, faults: Iterable[Fault]) -> None:
    """Let these faults happen at their times."""
    for fault in faults:
        world.at(fault.at_s, _begin, world, fault)


def _begin(world: World, fault: Fault) -> None:
    fault = replace(fault, targets=world.resolve(fault.targets))
    world.record("fault", f"{fault.kind} {','.join(fault.targets)} begins")
    endings = BEGINNINGS[fault.kind](world, fault)
    if endings:
        world.at(world.now + fault.duration_s, _end, world, fault, endings)


def _end(world: World, fault: Fault, endings: list[Ending]) -> None:
    world.record("fault", f"{fault.kind} {','.join(fault.targets)} ends")
    for ending in endings:
        ending()


def _crash(world: World, fault: Fault) -> list[Ending]:
    endings: list[Ending] = []
    for name in fault.targets:
        node = world.nodes[name]
        if not node.running:
            continue  # another crash, or its own end, took it already
        node.crash()
        endings.append(partial(_restart, node, reboot=fault.kind is FaultKind.REBOOT))
    return endings


def _restart(node: Node, *, reboot: bool) -> None:
    if not node.running:
        node.restart(reboot=reboot)


def _stall(world: World, fault: Fault) -> list[Ending]:
    endings: list[Ending] = []
    for name in fault.targets:
        world.nodes[name].stall(asleep=fault.kind is FaultKind.SUSPEND)
        endings.append(world.nodes[name].resume)
    return endings


def _partition(world: World, fault: Fault) -> list[Ending]:
    engines = () if fault.kind is FaultKind.SPLIT else world.engines
    rest = tuple(name for name in (*world.nodes, *engines) if name not in fault.targets)
    cuts = [NetworkCut(fault.targets, rest)]
    if fault.kind is not FaultKind.ONE_WAY:
        cuts.append(NetworkCut(rest, fault.targets))
    for cut in cuts:
        world.network.cut(cut)
    return [partial(world.network.mend, cut) for cut in cuts]


def _disturb(effect: Callable[[float], NetworkLink]) -> Callable[[World, Fault], list[Ending]]:
    def begin(world: World, fault: Fault) -> list[Ending]:
        targets = fault.targets
        if fault.kind in _ENGINE_WIDE:
            targets = targets or world.engines
        disturbance = Disturbance(targets, effect(fault.amount))
        world.network.disturb(disturbance)
        return [partial(world.network.calm, disturbance)]

    return begin


def _skew(world: World, fault: Fault) -> list[Ending]:
    clocks = [world.nodes[name].clock for name in fault.targets]
    for clock in clocks:
        clock.step_wall(fault.amount)
    return [partial(clock.step_wall, -fault.amount) for clock in clocks]


def _drift(world: World, fault: Fault) -> list[Ending]:
    for name in fault.targets:
        world.nodes[name].drift(fault.amount)
    return [partial(world.nodes[name].end_drift, fault.amount) for name in fault.targets]


def _outage(world: World, fault: Fault) -> list[Ending]:
    backends = [world.backend_of(name) for name in fault.targets or world.engines]
    for backend in backends:
        backend.outages += 1
    return [backend.end_outage for backend in backends]


def _lose(world: World, fault: Fault) -> list[Ending]:
    endings: list[Ending] = []
    for engine in fault.targets or world.engines:
        users = tuple(name for name, node in world.nodes.items() if node.engine == engine)
        endings += _crash(world, replace(fault, targets=users))
        world.forget_backend(engine)
    return endings


def _late(world: World, fault: Fault) -> list[Ending]:
    backends = [world.backend_of(name) for name in fault.targets or world.engines]
    for backend in backends:
        backend.late.append(fault.amount)
    return [partial(backend.late.remove, fault.amount) for backend in backends]


_ENGINE_WIDE = {kind for kind in FaultKind if kind.startswith("engine")}
_STILL = (0.0, 0.0)
BEGINNINGS: Mapping[FaultKind, Callable[[World, Fault], list[Ending]]] = {
    FaultKind.CRASH: _crash,
    FaultKind.REBOOT: _crash,
    FaultKind.STALL: _stall,
    FaultKind.SUSPEND: _stall,
    FaultKind.PARTITION: _partition,
    FaultKind.SPLIT: _partition,
    FaultKind.ONE_WAY: _partition,
    FaultKind.LOSS: _disturb(lambda amount: NetworkLink(_STILL, loss=amount)),
    FaultKind.DELAY: _disturb(lambda amount: NetworkLink((0.0, amount))),
    FaultKind.DUPLICATE: _disturb(lambda amount: NetworkLink(_STILL, duplicate=amount)),
    FaultKind.REORDER: _disturb(lambda amount: NetworkLink(_STILL, reorder=amount)),
    FaultKind.BREAK: _disturb(lambda amount: NetworkLink(_STILL, break_before=amount / 2, break_after=amount / 2)),
    FaultKind.SKEW: _skew,
    FaultKind.DRIFT: _drift,
    FaultKind.ENGINE_OUTAGE: _outage,
    FaultKind.ENGINE_REFUSES: _disturb(lambda amount: NetworkLink(_STILL, break_before=amount)),
    FaultKind.ENGINE_FORGETS: _disturb(lambda amount: NetworkLink(_STILL, break_after=amount)),
    FaultKind.ENGINE_LATE: _late,
    FaultKind.ENGINE_SLOW: _disturb(lambda amount: NetworkLink((0.0, amount))),
    FaultKind.ENGINE_LOST: _lose,
}
SURVIVABLE = tuple(kind for kind in FaultKind if kind is not FaultKind.ENGINE_LOST)
"""The faults that a node survives without loss when it keeps everything in one engine."""

_AMOUNTS: Mapping[FaultKind, tuple[float, float]] = {
    FaultKind.LOSS: (0.05, 0.6),
    FaultKind.DELAY: (0.05, 2.0),
    FaultKind.DUPLICATE: (0.05, 0.5),
    FaultKind.REORDER: (0.05, 0.5),
    FaultKind.BREAK: (0.1, 0.8),
    FaultKind.SKEW: (-7_200.0, 7_200.0),
    FaultKind.DRIFT: (0.98, 1.02),
    FaultKind.ENGINE_REFUSES: (0.1, 0.9),
    FaultKind.ENGINE_FORGETS: (0.1, 0.9),
    FaultKind.ENGINE_LATE: (0.1, 0.9),
    FaultKind.ENGINE_SLOW: (0.05, 2.0),
}


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """Which faults a scenario wants, how many, when and for how long."""

    kinds: Sequence[FaultKind] = SURVIVABLE
    most: int = 8
    """A run has between 0 and this many."""
    until_s: float = 20.0
    """The last one begins before this."""
    duration_s: tuple[float, float] = (0.2, 6.0)
    amounts: Mapping[FaultKind, tuple[float, float]] = field(default_factory=dict)
    """Other ranges than the usual ones."""

    def generate(self, random: Random, nodes: Sequence[str], engines: Sequence[str] = ()) -> tuple[Fault, ...]:
        """Returns a schedule that these random numbers decide, in the order of time. With several engines, each fails alone."""
        if not nodes:
            raise ConfigurationError("a fault schedule needs at least one node to aim at")
        faults = [self._one(random, nodes, engines) for _ in range(random.randrange(self.most + 1))]
        return tuple(sorted(faults, key=lambda fault: fault.at_s))

    def _one(self, random: Random, nodes: Sequence[str], engines: Sequence[str]) -> Fault:
        kind = self.kinds[random.randrange(len(self.kinds))]
        low, high = self.amounts.get(kind) or _AMOUNTS.get(kind, (1.0, 1.0))
        shortest, longest = self.duration_s
        return Fault(
            at_s=_round(random.random() * self.until_s),
            kind=kind,
            targets=self._targets(random, nodes, engines, kind),
            duration_s=_round(shortest + (longest - shortest) * random.random()),
            amount=_round(low + (high - low) * random.random()),
        )

    def _targets(
        self, random: Random, nodes: Sequence[str], engines: Sequence[str], kind: FaultKind
    ) -> tuple[str, ...]:
        if kind in _ENGINE_WIDE:
            return (engines[random.randrange(len(engines))],) if len(engines) > 1 else ()
        first = nodes[random.randrange(len(nodes))]
        if kind not in (FaultKind.PARTITION, FaultKind.SPLIT) or len(nodes) < 3:
            return (first,)
        return tuple(name for name in nodes if name == first or random.random() < 0.3)


def _round(value: float) -> float:
    return round(value, 3)

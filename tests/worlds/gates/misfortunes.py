"""What goes wrong in a world of gates and datacenters: in each run one misfortune that its seed's turn brings, and others that chance adds.

By turns, so that any few dozen seeds in a row have had every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from tenure.randomness import Random
from tenure.sim.faults import Fault, FaultKind
from tests.worlds.gates.cast import Plan

GATE_LEADER = "leading gate"
"""Whoever leads the gates when the fault begins."""


def leader_of(datacenter: str) -> str:
    """The role of whoever leads there when the fault begins."""
    return f"leader of {datacenter}"


UNTIL_S = 5.0
"""The last fault begins before this."""
_NODE = (FaultKind.CRASH, FaultKind.CRASH, FaultKind.REBOOT, FaultKind.STALL, FaultKind.SKEW, FaultKind.DRIFT)
_LINK = (FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.LOSS, FaultKind.DELAY, FaultKind.BREAK, FaultKind.DUPLICATE)
_ENGINE = (FaultKind.ENGINE_OUTAGE, FaultKind.ENGINE_FORGETS, FaultKind.ENGINE_LATE, FaultKind.ENGINE_SLOW)
_AMOUNTS: Mapping[FaultKind, tuple[float, float]] = {
    FaultKind.LOSS: (0.05, 0.6),
    FaultKind.DELAY: (0.05, 1.0),
    FaultKind.BREAK: (0.1, 0.8),
    FaultKind.DUPLICATE: (0.1, 0.5),
    FaultKind.SKEW: (-7_200.0, 7_200.0),
    FaultKind.DRIFT: (0.98, 1.02),
    FaultKind.ENGINE_FORGETS: (0.1, 0.9),
    FaultKind.ENGINE_LATE: (0.1, 0.9),
    FaultKind.ENGINE_SLOW: (0.05, 1.0),
}


class Misfortune(StrEnum):
    """Each has its turn."""

    NONE = "nothing"
    GATE = "a gate dies"
    GATE_LEADER = "the leading gate dies"
    GATE_LEADER_STALLS = "the leading gate is stopped for longer than its term"
    GATES_AWAY = "all gates are away past the fallback"
    GATE_ENGINE = "the gates' engine does not answer"
    GATES_LOST = "the gates lose their journal"
    MANAGER_LEADER = "a datacenter's leader dies"
    CUT_OFF = "a datacenter is cut off past the fallback"
    ONE_WAY = "what a datacenter says arrives nowhere"
    LOSSY = "a datacenter is far away over a lossy line"
    SLOW = "everything from and to a datacenter is late"
    SKEW = "the clocks of a leading gate and a leader jump"
    DATACENTER_LOST = "a datacenter loses its journal"
    WORKER = "a worker dies"


def misfortunes(plan: Plan, turn: Misfortune, random: Random, most: int) -> tuple[Fault, ...]:
    """The one whose turn it is, and up to `most` others; in the order of time."""
    datacenter = random.choice(list(plan.managers))
    faults = _LEADING[turn](plan, datacenter, random)
    faults += [_other(plan, random) for _ in range(random.randrange(most + 1))]
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _fault(
    random: Random,
    kind: FaultKind,
    targets: tuple[str, ...],
    at: tuple[float, float] = (1.0, 3.5),
    lasts: tuple[float, float] = (0.5, 5.0),
) -> Fault:
    low, high = _AMOUNTS.get(kind, (1.0, 1.0))
    begins, seconds, amount = random.uniform(*at), random.uniform(*lasts), random.uniform(low, high)
    return Fault(round(begins, 3), kind, targets, round(seconds, 3), round(amount, 3))


def _other(plan: Plan, random: Random) -> Fault:
    chance = random.random()
    if chance < 0.25:
        return _fault(random, random.choice(_ENGINE), (random.choice(plan.places),), (0.0, UNTIL_S), (0.3, 3.0))
    nodes = [
        *plan.gates,
        *(name for group in (plan.managers, plan.workers) for names in group.values() for name in names),
    ]
    if chance < 0.6:
        kind, targets = random.choice(_LINK), plan.group(random.choice(list(plan.managers)))
    elif chance < 0.75:
        kind, targets = random.choice(_LINK), (random.choice(nodes),)
    else:
        roles = [GATE_LEADER, *map(leader_of, plan.managers)]
        kind, targets = random.choice(_NODE), (random.choice(nodes + roles),)
    return _fault(random, kind, targets, (0.0, UNTIL_S), (0.3, 4.0))


Leading = Callable[[Plan, str, Random], list[Fault]]

_LEADING: Mapping[Misfortune, Leading] = {
    Misfortune.NONE: lambda plan, datacenter, random: [],
    Misfortune.GATE: lambda plan, datacenter, random: [_fault(random, FaultKind.CRASH, (random.choice(plan.gates),))],
    Misfortune.GATE_LEADER: lambda plan, datacenter, random: [_fault(random, FaultKind.CRASH, (GATE_LEADER,))],
    Misfortune.GATE_LEADER_STALLS: lambda plan, datacenter, random: [
        _fault(random, FaultKind.STALL, (GATE_LEADER,), lasts=(1.1 * plan.pace.term_s, 2.5 * plan.pace.term_s))
    ],
    Misfortune.GATES_AWAY: lambda plan, datacenter, random: [
        _fault(random, FaultKind.CRASH, tuple(plan.gates), at=(1.0, 2.5), lasts=(7.0, 9.0))
    ],
    Misfortune.GATE_ENGINE: lambda plan, datacenter, random: [
        _fault(random, FaultKind.ENGINE_OUTAGE, (plan.gate_engine,), lasts=(1.0, 5.0))
    ],
    Misfortune.GATES_LOST: lambda plan, datacenter, random: [
        _fault(random, FaultKind.ENGINE_LOST, (plan.gate_engine,), lasts=(0.1, 3.0))
    ],
    Misfortune.MANAGER_LEADER: lambda plan, datacenter, random: [
        _fault(random, FaultKind.CRASH, (leader_of(datacenter),))
    ],
    Misfortune.CUT_OFF: lambda plan, datacenter, random: [
        _fault(random, FaultKind.PARTITION, plan.group(datacenter), at=(1.0, 2.5), lasts=(7.5, 9.5))
    ],
    Misfortune.ONE_WAY: lambda plan, datacenter, random: [
        _fault(random, FaultKind.ONE_WAY, plan.group(datacenter), lasts=(2.0, 7.0))
    ],
    Misfortune.LOSSY: lambda plan, datacenter, random: [
        Fault(0.0, FaultKind.LOSS, plan.group(datacenter), 9.0, 0.05),
        Fault(0.0, FaultKind.DELAY, plan.group(datacenter), 9.0, 0.3),
    ],
    Misfortune.SLOW: lambda plan, datacenter, random: [
        _fault(random, FaultKind.DELAY, plan.group(datacenter), lasts=(2.0, 6.0))
    ],
    Misfortune.SKEW: lambda plan, datacenter, random: [
        _fault(random, FaultKind.SKEW, (GATE_LEADER, leader_of(datacenter)), lasts=(2.0, 6.0))
    ],
    Misfortune.DATACENTER_LOST: lambda plan, datacenter, random: [
        _fault(random, FaultKind.ENGINE_LOST, (datacenter,), lasts=(0.1, 3.0))
    ],
    Misfortune.WORKER: lambda plan, datacenter, random: [
        _fault(random, FaultKind.CRASH, (plan.workers[datacenter][0],))
    ],
}
TURNS = tuple(Misfortune)


class Calm:
    """Which places a schedule of faults leaves alone, and when."""

    def __init__(self, plan: Plan, faults: tuple[Fault, ...] | list[Fault]) -> None:
        self._touched = [(fault, frozenset(_places(plan, fault))) for fault in faults]
        self._inside = [(fault, places) for fault, places in self._touched if not _only_cut_off(plan, fault)]
        self.over_at = max((fault.at_s + fault.duration_s for fault in faults), default=0.0)

    def at(self, places: set[str], begin: float, end: float) -> bool:
        """Nothing that these places do, or say to each other, was disturbed."""
        return not any(_overlaps(fault, begin, end) and places & touched for fault, touched in self._touched)

    def inside(self, place: str, begin: float, end: float) -> bool:
        """Nothing was disturbed within this place, though the world may not have reached it."""
        return not any(_overlaps(fault, begin, end) and place in touched for fault, touched in self._inside)


def _overlaps(fault: Fault, begin: float, end: float) -> bool:
    return fault.at_s < end and begin < fault.at_s + fault.duration_s


def _places(plan: Plan, fault: Fault) -> set[str]:
    """The journals whose nodes, engine or links a fault concerns."""
    targets = set(fault.targets)
    found = {name for name in plan.managers if targets & {*plan.group(name), leader_of(name)}}
    if not targets or targets & {*plan.gate_group, GATE_LEADER}:
        found.add(plan.gate_engine)
    return found if targets else set(plan.places)


def _only_cut_off(plan: Plan, fault: Fault) -> bool:
    """A whole datacenter is out of reach, and goes on within."""
    return fault.kind in (FaultKind.PARTITION, FaultKind.ONE_WAY) and any(
        set(fault.targets) == set(plan.group(name)) for name in plan.managers
    )

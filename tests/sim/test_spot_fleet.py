"""A fleet on machines that are reclaimed with two minutes' notice: how much work is lost, by the rule of least loss and by chance (issue 26)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from random import Random

import pytest

from tenure.health import least_loss
from tenure.health.least_loss import MarkWatch

NOTICE_S, SLOTS = 120.0, 8
MACHINES, GO = 20, 5
"""The machines of a fleet, and how many of them go."""
FLEETS = range(40 if os.environ.get("TENURE_SOAK") else 4)


class Attempt:
    """Work that saves again and again, in times of its own, around a pace of its own."""

    def __init__(self, random: Random, saves: bool) -> None:
        self._random, self._saves = random, saves
        self._pace = math.exp(random.gauss(math.log(45.0), 0.5))
        self.marks, self.saved_at = 0, 0.0
        self._next = self._pause()

    def _pause(self) -> float:
        return self._pace * math.exp(self._random.gauss(0, 0.2)) if self._saves else math.inf

    def step(self, now: float) -> None:
        while self._next <= now:
            self.saved_at, self.marks = self._next, self.marks + 1
            self._next += self._pause()


Machine = dict[int, Attempt]


class Fleet:
    """Machines that run until some have to go. A look comes once a second, as reports do."""

    def __init__(self, seed: int, never_saves: float) -> None:
        random = Random(seed)
        self.chance = Random(seed + 1)
        self.machines: list[Machine] = [
            {number: Attempt(random, random.random() >= never_saves) for number in range(at, at + SLOTS)}
            for at in range(0, MACHINES * SLOTS, SLOTS)
        ]
        self.marks: MarkWatch[int] = MarkWatch()
        self.now = 0.0
        for _ in range(random.randrange(300, 900)):
            self.step()

    def step(self) -> None:
        self.now += 1.0
        for machine in self.machines:
            for number, one in machine.items():
                one.step(self.now)
                self.marks.look(number, one.marks, self.now, 0.0)

    def loss_s(self, machine: Machine) -> float:
        return sum(self.marks.loss_s(number, self.now) for number in machine)

    def empty(self, going: list[Machine], leaving: Callable[[Fleet, list[int], float], list[int]]) -> float:
        """Lets everything leave these machines within the notice. Returns the seconds of work that are lost."""
        until, total = self.now + NOTICE_S, 0.0
        while any(going):
            for machine in going:
                for number in leaving(self, list(machine), until):
                    total += self.now - machine.pop(number).saved_at
            self.step()
        assert self.now <= until + 1.0, "all have left in time"
        return total


def by_rule(fleet: Fleet, left: list[int], until: float) -> list[int]:
    return fleet.marks.leaving(left, fleet.now, until)


def by_chance(fleet: Fleet, left: list[int], until: float) -> list[int]:
    """Takes victims as they come, evenly over the notice."""
    share = 1 / max(1.0, until - fleet.now)
    return [number for number in left if fleet.now >= until or fleet.chance.random() < share]


def reclaimed(seed: int) -> tuple[float, float]:
    """Machines that the provider takes away, whichever he likes. Returns what is lost by the rule, and by chance."""
    found = []
    for way in (by_rule, by_chance):
        fleet = Fleet(seed, never_saves=0.0)
        found.append(fleet.empty(fleet.machines[:GO], way))
    return found[0], found[1]


def scaled_in(seed: int) -> tuple[float, float]:
    """Machines that nobody needs any more: those go that have the least to lose, or any. One attempt in ten never saves."""
    fleet = Fleet(seed, never_saves=0.1)
    least = fleet.empty(sorted(fleet.machines, key=fleet.loss_s)[:GO], by_rule)
    fleet = Fleet(seed, never_saves=0.1)
    return least, fleet.empty(fleet.chance.sample(fleet.machines, GO), by_chance)


def ratio(story: Callable[[int], tuple[float, float]]) -> float:
    found = [story(seed) for seed in FLEETS]
    return sum(rule for rule, _ in found) / sum(chance for _, chance in found)


@pytest.mark.parametrize("story", [reclaimed, scaled_in])
def test_they_lose_at_most_a_quarter_of_what_random_victims_lose(story: Callable[[int], tuple[float, float]]) -> None:
    assert ratio(story) <= 0.25


def test_without_the_rule_they_lose_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_loss, "_leaves", lambda saved, now, until: now >= until)
    assert ratio(reclaimed) > 0.25

"""Every interleaving of a supervisor, its slots and another worker, one step at a time: claim, hand-over, start, outcome, settlement.

A process that is stopped takes no step; one that is killed takes none any more. The rules of RULINGS.md, 7 to 9, are invariants here, and for
each there is a mutant that breaks it and that this machine must catch.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.soak import sized

from tenure.engines.contracts import Ticket
from tenure.work.slots.claim_page import ClaimPage, NamedClaim
from tenure.work.slots.claim_queue import ClaimedWork, ClaimQueue, LearnedDurations

KIND = ("w", "1")
LEASE_S, TICK_S, MESSAGES, SEATS = 10.0, 0.1, 6, (0, 1)


@dataclass
class Message:
    """A message of the engine. The number of a delivery is given out again when it was released, and when a provisional claim expired."""

    id: int
    number: int = 0
    """The deliveries that counted."""
    expiries: int = 0
    holder: object = None
    lease_until: float = 0.0
    suspect: bool = False
    done: bool = False


@dataclass
class Held:
    message: Message
    fence: int
    expiries: int
    entry: int = -1


@dataclass
class Frame:
    """A hand-over as the slot reads it, however late: what becomes of the claim meanwhile does not change it."""

    claim: ClaimedWork
    number: int
    entry: int
    lease_until: float


@dataclass
class SlotModel:
    inbox: list[Frame] = field(default_factory=list)
    sent: list[tuple[str, Frame]] = field(default_factory=list)
    at: str = "idle"
    frame: Frame | None = None
    read_at: float = 0.0


class Workers(RuleBasedStateMachine):
    """One supervisor with two slots, and another worker that takes what the engine has."""

    mutant: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.folder = tempfile.TemporaryDirectory()
        self.page = ClaimPage.create(Path(self.folder.name), "x", 64)
        durations = LearnedDurations()
        durations.learn(KIND, 0.001)
        keeps = self.mutant == "hands over again under the old number"
        self.queue = ClaimQueue(durations, tick_s=TICK_S, renumber=None if keeps else self.renumber)
        self.unanswered: dict[tuple[int, int], int] = {}
        self.slots = {seat: SlotModel() for seat in SEATS}
        for seat in SEATS:
            self.queue.add_seat(seat, 1)
        self.messages = [Message(n) for n in range(MESSAGES)]
        self.numbers = 0
        self.started: list[tuple[int, int, int]] = []
        """Each start of user code, as message, fence and the expiries before it."""
        self.shown: set[tuple[int, int, int]] = set()
        """Each fence that left a process, as message, fence and the expiries before its claim."""

    def teardown(self) -> None:
        self.page.close()
        self.folder.cleanup()

    # The engine.

    def ready(self) -> list[Message]:
        for one in self.messages:
            if one.holder is not None and one.lease_until <= self.now:
                one.holder, one.suspect, one.expiries = None, True, one.expiries + 1
        return [one for one in self.messages if one.holder is None and not one.done]

    def claim(self, message: Message, holder: object) -> Held:
        message.holder, message.lease_until = holder, self.now + LEASE_S
        fence = message.number + 1
        if message.suspect:  # it counts from the claim on, before a slot gets it
            message.number, message.suspect = fence, False
        return Held(message, fence, message.expiries)

    def holds(self, held: Held, holder: object) -> bool:
        self.ready()
        message = held.message
        return message.holder is holder and message.expiries == held.expiries

    def count(self, held: Held) -> None:
        held.message.number, held.message.lease_until = held.fence, self.now + LEASE_S

    def start(self, held: Held) -> None:
        self.started.append((held.message.id, held.fence, held.expiries))

    # The steps.

    @rule(seconds=st.sampled_from([0.01, 0.06, TICK_S, 0.3, LEASE_S + 0.1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(most=st.integers(1, 4))
    def supervisor_claims(self, most: int) -> None:
        found = self.ready()[:most]
        if any(one.suspect for one in found):
            found = found[:1]
        claims = []
        for message in found:
            claims.append(ClaimedWork(0, KIND, self.now, self.now + LEASE_S, self.claim(message, self)))
            self.name(claims[-1])
        self.release(self.queue.add(claims))

    def name(self, claim: ClaimedWork) -> None:
        self.numbers += 1
        claim.number, fence = self.numbers, claim.held.fence
        ticket = Ticket(id="m", receipt_handle="r", delivery_count=fence, enqueued_at=0.0, lease_until=0.0)
        claim.held.entry = self.page.name(claim.number, NamedClaim("q", "w", ticket))

    def renumber(self, claim: ClaimedWork, answered: bool) -> None:
        """What the desk does with its page."""
        number, entry = claim.number, claim.held.entry
        if self.mutant == "uses an entry again that a slot has not answered":
            answered = True
        self.name(claim)
        if answered or claim.seat is None:
            self.page.free(entry)
        else:
            self.page.clear(entry)
            self.unanswered[claim.seat, number] = entry

    def release(self, claims: list[ClaimedWork]) -> None:
        for claim in claims:
            if self.holds(claim.held, self):
                claim.held.message.holder = None
            self.page.free(claim.held.entry)

    @rule()
    def supervisor_hands_over(self) -> None:
        clock = 0.0 if self.mutant == "hands over without a look at the lease" else self.now
        handed, _ = self.queue.hand_over(self.now, clock)
        for claim in handed:
            assert self.now < claim.lease_until, "handed over after its lease"
            assert claim.seat is not None
            frame = Frame(claim, claim.number, claim.held.entry, claim.lease_until)
            assert not self.is_withdrawn(frame), "the slot would decline it, and get it again at once"
            self.slots[claim.seat].inbox.append(frame)

    @rule()
    def supervisor_looks(self) -> None:
        for claim in self.queue.handed:
            if self.runs(claim) and self.holds(claim.held, self):  # it beats: extend
                self.count(claim.held)
                claim.lease_until = self.now + LEASE_S

        def has_started(claim: ClaimedWork) -> bool:
            return self.mutant != "takes back what has started" and self.page.has_started(
                claim.held.entry, claim.number
            )

        marks, _ = self.queue.review(self.now, has_started)
        for claim in marks:
            if self.mutant == "takes back without a mark":
                continue
            self.page.withdraw(claim.held.entry, claim.number)
        self.supervisor_hands_over()
        self.release(self.queue.to_release(self.now))

    def runs(self, claim: ClaimedWork) -> bool:
        return any(self.of(slot) is claim and slot.at == "runs" for slot in self.slots.values())

    def of(self, slot: SlotModel) -> ClaimedWork | None:
        return slot.frame.claim if slot.frame is not None else None

    @rule(seat=st.sampled_from(SEATS))
    def slot_takes_a_step(self, seat: int) -> None:
        slot = self.slots[seat]
        if slot.at == "idle" and slot.inbox:
            frame = slot.frame = slot.inbox.pop(0)
            if self.now >= frame.lease_until and self.mutant != "starts after the lease":
                slot.sent.append(("declined", frame))
                return
            slot.read_at = self.now
            swapped = self.mutant == "reads the mark before it says that it started"
            slot.at = "not withdrawn" if swapped and not self.is_withdrawn(frame) else "said so"
            if not swapped:
                self.page.mark_started(frame.entry, frame.number)
        elif slot.at == "said so" and slot.frame is not None:
            if self.is_withdrawn(slot.frame):
                slot.at = "idle"
                slot.sent.append(("declined", slot.frame))
            else:
                self.run(slot)
        elif slot.at == "not withdrawn" and slot.frame is not None:
            self.page.mark_started(slot.frame.entry, slot.frame.number)
            self.run(slot)
        elif slot.at == "runs" and slot.frame is not None:
            slot.at = "idle"
            slot.sent.append(("finished", slot.frame))

    def is_withdrawn(self, frame: Frame) -> bool:
        return self.page.is_withdrawn(frame.entry, frame.number)

    def run(self, slot: SlotModel) -> None:
        assert slot.frame is not None
        assert slot.read_at < slot.frame.lease_until, "the engine may have given it to others"
        slot.at = "runs"
        self.start(slot.frame.claim.held)

    @rule(seat=st.sampled_from(SEATS))
    def workflow_shows_its_fence(self, seat: int) -> None:
        """It confirms its start through the channel first."""
        slot = self.slots[seat]
        claim = self.of(slot)
        if slot.at != "runs" or claim is None:
            return
        held = claim.held
        if self.mutant != "shows a fence that the engine does not count":
            if not self.holds(held, self):
                return
            self.count(held)
            claim.lease_until = held.message.lease_until
        self.shown.add((held.message.id, held.fence, held.expiries))

    @rule(seat=st.sampled_from(SEATS))
    def supervisor_hears(self, seat: int) -> None:
        slot = self.slots[seat]
        if not slot.sent:
            return
        what, frame = slot.sent.pop(0)
        claim = frame.claim
        self.page.free(self.unanswered.pop((seat, frame.number), -1))
        if what == "declined":
            self.queue.declined(frame.number, seat)
        elif self.queue.finished(frame.number, seat, 0.001, self.now) is not None:
            if self.holds(claim.held, self):
                claim.held.message.done = True
            self.page.free(claim.held.entry)

    @rule(seat=st.sampled_from(SEATS))
    def slot_is_killed(self, seat: int) -> None:
        slot = self.slots[seat]
        while slot.sent:
            self.supervisor_hears(seat)
        had, claim = self.queue.remove_seat(seat), self.of(slot)
        for place in [place for place in self.unanswered if place[0] == seat]:
            self.page.free(self.unanswered.pop(place))
        if slot.at == "runs" and claim in had:  # the board says so: it failed with its slot
            had.remove(claim)
            if self.holds(claim.held, self):
                self.count(claim.held)
                claim.held.message.holder = None
            self.page.free(claim.held.entry)
        self.queue.put_back(had)
        self.slots[seat] = SlotModel()
        self.queue.add_seat(seat, 1)

    @rule(shut=st.sampled_from(SEATS), both=st.booleans())
    def leader_closes_a_seat(self, shut: int, both: bool) -> None:
        self.queue.open_seats(lambda seat: not both and seat != shut)

    @rule()
    def leader_opens_all(self) -> None:
        self.queue.open_seats(lambda seat: True)

    @rule()
    def another_worker_takes_one(self) -> None:
        for message in self.ready()[:1]:
            held = self.claim(message, "another")
            self.count(held)
            self.start(held)
            self.shown.add((message.id, held.fence, held.expiries))
            message.done = True

    # What must hold after each step.

    @invariant()
    def no_claim_is_started_twice(self) -> None:
        """Unless its lease ran out in between, which the number of expiries shows."""
        assert len(set(self.started)) == len(self.started), self.started

    @invariant()
    def no_two_executions_show_the_same_fence(self) -> None:
        fences = [(message, fence) for message, fence, _ in self.shown]
        assert len(set(fences)) == len(fences), self.shown

    @invariant()
    def each_claim_is_in_one_place(self) -> None:
        handed = [claim.number for claim in self.queue.handed]
        queued = [claim.number for claim in self.queue.queued]
        assert len(set(handed + queued)) == len(handed + queued)
        places = [claim.place for claim in self.queue.queued]
        assert places == sorted(places), "the queue keeps the order of the claims"


STEPS = (
    (Workers.supervisor_claims, 2, lambda dice: {"most": dice.randint(1, 4)}),
    (Workers.supervisor_hands_over, 2, lambda dice: {}),
    (Workers.supervisor_looks, 4, lambda dice: {}),
    (Workers.slot_takes_a_step, 6, lambda dice: {"seat": dice.choice(SEATS)}),
    (Workers.supervisor_hears, 2, lambda dice: {"seat": dice.choice(SEATS)}),
    (Workers.workflow_shows_its_fence, 1, lambda dice: {"seat": dice.choice(SEATS)}),
    (Workers.slot_is_killed, 1, lambda dice: {"seat": dice.choice(SEATS)}),
    (Workers.leader_closes_a_seat, 1, lambda dice: {"shut": dice.choice(SEATS), "both": dice.random() < 0.3}),
    (Workers.leader_opens_all, 1, lambda dice: {}),
    (Workers.another_worker_takes_one, 2, lambda dice: {}),
    (Workers.time_passes, 4, lambda dice: {"seconds": dice.choice([0.01, TICK_S, TICK_S, 0.3, LEASE_S + 0.1])}),
)
"""The rules with their weights: walks by chance are a hundred times faster than Hypothesis, and a mutant needs many."""


def walk(mutant: str, seed: int, steps: int = 60) -> None:
    dice = Random(seed)
    machine: Any = type("Walk", (Workers,), {"mutant": mutant})()
    choices, weights = [step for step, _, _ in STEPS], [weight for _, weight, _ in STEPS]
    given = {step: give for step, _, give in STEPS}
    try:
        for step in dice.choices(choices, weights, k=steps):
            step(machine, **given[step](dice))
            machine.no_claim_is_started_twice()
            machine.no_two_executions_show_the_same_fence()
            machine.each_claim_is_in_one_place()
    finally:
        machine.teardown()


def walk_many(mutant: str, seeds: int) -> None:
    for seed in range(seeds):
        walk(mutant, seed)


def test_no_interleaving_that_hypothesis_finds_starts_an_item_twice_or_shows_a_fence_twice() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Workers,
        settings=settings(max_examples=20, stateful_step_count=40, deadline=None, derandomize=True, database=None),
    )


@pytest.mark.parametrize("first", range(0, sized("walks over interleavings of claims", short=400, long=40_000), 400))
def test_no_walk_by_chance_does_either(first: int) -> None:
    for seed in range(first, first + 400):
        walk("", seed)


@pytest.mark.parametrize(
    "mutant",
    [
        "reads the mark before it says that it started",
        "takes back what has started",
        "takes back without a mark",
        "starts after the lease",
        "hands over without a look at the lease",
        "shows a fence that the engine does not count",
        "hands over again under the old number",
        "uses an entry again that a slot has not answered",
    ],
)
def test_each_broken_rule_is_caught(mutant: str) -> None:
    with pytest.raises(AssertionError):
        walk_many(mutant, 4_000)

"""Decides how many items a supervisor claims, which slot gets which, and which go back. Pure: told the time, and what the claim page shows.

An item that was claimed is in one place: in the queue here, or with one slot (RULINGS 8). While jobs are long, or their duration is not known
yet, only as many are claimed as can start at once. While they are short, more are claimed, but never more than about 50 ms of work: starts
of one mailbox differ by that much at most, and nothing waits longer than that behind work that turns out to run long.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

AHEAD_S = 0.05
"""The most work that is claimed ahead, for each seat."""
WINDOW_S = 0.01
"""The most of it that a slot has at hand beside the item that it runs. The rest waits here, where it can be given to any slot."""
OVERDUE_S = 2 * AHEAD_S
"""A slot that has ended nothing for this long runs an item long, and nothing shall wait behind that."""
MOST_WAIT_S = 1.0
"""No item waits longer, however well the work before it goes on: a machine that stands still lets nothing start."""
MOST_AHEAD = 128
"""The most items ahead for each seat, however short they are."""
MOST_AT_HAND = 64
"""With 16, a slot whose items take 0.07 ms had nothing left while its supervisor napped for 2 ms, and stood still for a third of the time."""
SHORTEST_S = 0.0001
"""No item counts for less. To start one costs a slot 0.04 ms, and its supervisor and the engine about as much."""
_FORGET = 1 / 8
_REMEMBERED = 4_096

WorkKind = tuple[str, str]
"""A workflow and its version."""
Renumber = Callable[["ClaimedWork", bool], None]
"""Gives a claim that came back from its seat another number. True: the slot has answered the hand-over, or is gone; False: the slot may still
read it."""


class LearnedDurations:
    """Estimates how long the items of each workflow take, as a moving average: the sum of what is ahead counts, not the longest of it."""

    def __init__(self) -> None:
        self._seconds: dict[WorkKind, float] = {}

    def learn(self, kind: WorkKind, seconds: float) -> None:
        known = self._seconds.get(kind)
        if known is None and len(self._seconds) >= _REMEMBERED:
            del self._seconds[next(iter(self._seconds))]
        if known is not None:
            seconds = known + (seconds - known) * _FORGET
        self._seconds[kind] = max(SHORTEST_S, seconds)

    def expected(self, kind: WorkKind) -> float:
        """Returns the seconds that an item is expected to take; infinity for a workflow of which none has ended yet."""
        return self._seconds.get(kind, math.inf)


@dataclass(eq=False, slots=True)
class ClaimedWork:
    """One claimed item. The caller keeps what it needs to act on it in `held`."""

    number: int
    """Names one hand-over. A claim that comes back gets another: marks on the claim page and answers of slots that name the old one are void."""
    kind: WorkKind
    claimed_at: float
    lease_until: float
    """Boot time at which the lease is lost."""
    held: Any = None
    withdrawable: bool = True
    """False where the claim page does not name it: it cannot be taken back from a slot, so a slot gets it only when it can start it."""
    expected_s: float = math.inf
    seat: int | None = None
    """The slot that has it; None while it is in the queue."""
    started: bool = False
    withdrawn_at: float | None = None
    verdict: str = ""
    """Why it shall not start any more: it was cancelled."""
    place: int = 0
    """Its place among the claims: the number that it had first."""


@dataclass(eq=False, slots=True)
class SlotSeat:
    """A slot as the queue sees it."""

    room: int
    """The items that it can run at once."""
    open: bool = True
    slow: bool = False
    """True while it runs an item long: nothing is claimed ahead for it, or it would be claimed and given back again and again."""
    moved_at: float = -math.inf
    """When it last ended an item, or got one while it had none."""
    handed: dict[int, ClaimedWork] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return max(0, self.room - len(self.handed)) if self.open else 0

    @property
    def work_s(self) -> float:
        return sum(claim.expected_s for claim in self.handed.values())


class ClaimQueue:
    """The claims of one supervisor, from the moment they were made until they were settled or given back."""

    def __init__(
        self, durations: LearnedDurations | None = None, *, tick_s: float = 0.1, renumber: Renumber | None = None
    ) -> None:
        self.durations = durations or LearnedDurations()
        self._tick_s = tick_s
        self._renumber = renumber
        self._seats: dict[int, SlotSeat] = {}
        self._queue: list[ClaimedWork] = []
        """In the order of their claims."""
        self._typical_s = math.inf
        """The longest expected duration in the last claim: the next one is likely to bring the same."""
        self.closed = False
        """True when nothing more may be claimed or handed over."""

    # Seats.

    def add_seat(self, seat: int, room: int, *, is_open: bool = True) -> None:
        self._seats[seat] = SlotSeat(room, is_open)

    def remove_seat(self, seat: int) -> list[ClaimedWork]:
        """Removes the seat of a slot that is gone. Returns what it had."""
        gone = self._seats.pop(seat, None)
        return list(gone.handed.values()) if gone is not None else []

    def open_seats(self, is_open: Callable[[int], bool]) -> None:
        """Sets which seats may get new items. What a closed one has and has not started is withdrawn at the next `review`."""
        for number, seat in self._seats.items():
            seat.open = is_open(number)

    # How many to claim.

    @property
    def _open(self) -> list[tuple[int, SlotSeat]]:
        return [] if self.closed else [(number, seat) for number, seat in self._seats.items() if seat.open]

    @property
    def idle_places(self) -> int:
        """Returns how many items could start at once, beside those in the queue."""
        return max(0, sum(seat.free for _, seat in self._open) - len(self._queue))

    @property
    def waiting(self) -> int:
        """Returns how many items were claimed and cannot start at once."""
        beyond = sum(max(0, len(seat.handed) - seat.room) for seat in self._seats.values())
        return len(self._queue) + beyond

    @property
    def is_empty(self) -> bool:
        """Returns True when no item waits and no slot has one."""
        return not self._queue and not any(seat.handed for seat in self._seats.values())

    @property
    def wanted_ahead(self) -> int:
        """Returns how many more to claim beside `idle_places`, so that slots with short work do not run out of it."""
        return max(0, self._most_ahead - self.waiting)

    @property
    def runs_low(self) -> bool:
        """Returns True when less than half of the work that may be ahead is there."""
        return self._most_ahead > 0 and self.waiting * 2 < self._most_ahead

    @property
    def _most_ahead(self) -> int:
        seats = sum(not seat.slow for _, seat in self._open)
        return min(int(AHEAD_S * seats / self._typical_s), MOST_AHEAD * seats)

    def add(self, claims: Sequence[ClaimedWork]) -> list[ClaimedWork]:
        """Takes in what was claimed together. Returns the tail of it that is too much work ahead, to be released."""
        if not claims:
            return []
        for claim in claims:
            claim.expected_s, claim.place = self.durations.expected(claim.kind), claim.number
        self._typical_s = max(claim.expected_s for claim in claims)
        free, budget = self.idle_places, AHEAD_S * len(self._open)
        budget -= sum(claim.expected_s for claim in self._queue if math.isfinite(claim.expected_s))
        for place, claim in enumerate(claims):
            if place >= free:
                budget -= claim.expected_s
            if budget < 0 or self.closed:
                self._queue.extend(claims[:place])
                return list(claims[place:])
        self._queue.extend(claims)
        return []

    # Handing over.

    def hand_over(self, now: float, boottime: float) -> tuple[list[ClaimedWork], list[ClaimedWork]]:
        """Returns the claims to hand over, each with its seat, and those whose lease is over, which nobody may start (RULINGS 9)."""
        handed, lost = [], []
        seats = self._open
        work_s = {number: seat.work_s for number, seat in seats}
        while self._queue and not self.closed:
            claim = self._queue[0]
            if boottime >= claim.lease_until:
                lost.append(self._queue.pop(0))
                continue
            found = self._seat_for(claim, seats, work_s)
            if found is None:
                break
            del self._queue[0]
            claim.seat, seat = found, self._seats[found]
            if not seat.handed:
                seat.moved_at = now
            seat.handed[claim.number] = claim
            work_s[found] += claim.expected_s
            handed.append(claim)
        return handed, lost

    def _seat_for(self, claim: ClaimedWork, seats: list[tuple[int, SlotSeat]], work_s: dict[int, float]) -> int | None:
        """Returns the seat that starts it first: one that is free, else one that has little and short work at hand (`work_s`)."""
        free = [(len(seat.handed) / seat.room, number) for number, seat in seats if len(seat.handed) < seat.room]
        if free:
            return min(free)[1]
        if not claim.withdrawable or claim.expected_s > WINDOW_S:
            return None
        near = [
            (at_hand_s, number)
            for number, seat in seats
            if not seat.slow
            and len(seat.handed) < seat.room + MOST_AT_HAND
            and (at_hand_s := work_s[number] / seat.room) <= WINDOW_S
        ]
        return min(near)[1] if near else None

    def finished(self, number: int, seat: int, seconds: float, now: float) -> ClaimedWork | None:
        """Notes that a slot ended an item, and learns from how long it took. Returns None for one that this slot does not have."""
        claim = self._take(number, seat)
        if claim is not None:
            self.durations.learn(claim.kind, seconds)
            self._seats[seat].slow, self._seats[seat].moved_at = False, now
        return claim

    def declined(self, number: int, seat: int) -> ClaimedWork | None:
        """Takes an item back that a slot did not start. Returns it if it shall not start elsewhere; else it has its old place in the queue."""
        claim = self._take(number, seat)
        return self._back(claim, answered=True) if claim is not None else None

    def _take(self, number: int, seat: int) -> ClaimedWork | None:
        found = self._seats.get(seat)
        return found.handed.pop(number, None) if found is not None else None

    def _back(self, claim: ClaimedWork, *, answered: bool) -> ClaimedWork | None:
        if self._renumber is not None:
            self._renumber(claim, answered)
        claim.seat = claim.withdrawn_at = None
        claim.started = False
        if claim.verdict:
            return claim
        insort(self._queue, claim, key=lambda one: one.place)
        return None

    def put_back(self, claims: Iterable[ClaimedWork]) -> list[ClaimedWork]:
        """Takes back what a dead slot had not started. Returns those that shall not start elsewhere."""
        return [back for claim in claims if (back := self._back(claim, answered=True)) is not None]

    # Taking back.

    def review(
        self, now: float, has_started: Callable[[ClaimedWork], bool]
    ) -> tuple[list[ClaimedWork], list[ClaimedWork]]:
        """Looks at what slots have and have not started. Returns the claims to mark as withdrawn now, and those that were cancelled and are back.

        An item that was marked a tick ago and has not started is taken back. One that has started stays with its slot: either it runs, or the
        slot declines it because it saw the mark.
        """
        marks, cancelled = [], []
        for seat in self._seats.values():
            seat.slow = any(_is_late(claim, seat.moved_at, now) for claim in seat.handed.values())
            for claim in list(seat.handed.values()):
                if claim.started or not claim.withdrawable:
                    continue
                if claim.withdrawn_at is not None:
                    if now - claim.withdrawn_at < self._tick_s:
                        continue
                    claim.started = has_started(claim)
                    if not claim.started:
                        del seat.handed[claim.number]
                        if self._back(claim, answered=False) is not None:
                            cancelled.append(claim)
                elif claim.verdict or self.closed or not seat.open or _is_late(claim, seat.moved_at, now):
                    claim.started = has_started(claim) and not claim.verdict
                    if not claim.started:
                        claim.withdrawn_at = now
                        marks.append(claim)
        return marks, cancelled

    def to_release(self, now: float) -> list[ClaimedWork]:
        """Removes and returns what waits in the queue behind work that runs long, or when nothing may start any more."""
        if self.closed or not self._open:
            released, self._queue = self._queue, []
            return released
        moved_at = max(seat.moved_at for _, seat in self._open)
        late = next((place for place, claim in enumerate(self._queue) if _is_late(claim, moved_at, now)), None)
        if late is None:
            return []
        # Those behind it would start before it: they go back with it, so that the engine gives all of them out in order.
        released, self._queue = self._queue[late:], self._queue[:late]
        return released

    def cancel(self, concerns: Callable[[ClaimedWork], bool], verdict: str) -> tuple[list[ClaimedWork], bool]:
        """Ends claims that have not started. Returns those that were in the queue, and whether a slot has others, which are withdrawn."""
        found = [claim for claim in self._queue if concerns(claim)]
        self._queue = [claim for claim in self._queue if not concerns(claim)]
        handed = [claim for seat in self._seats.values() for claim in seat.handed.values() if concerns(claim)]
        for claim in (*found, *handed):
            claim.verdict = verdict
        return found, bool(handed)

    def find(self, number: int, seat: int) -> ClaimedWork | None:
        """Returns an item that this slot has."""
        found = self._seats.get(seat)
        return found.handed.get(number) if found is not None else None

    @property
    def nap_s(self) -> float:
        """Returns the seconds for which no slot runs out of work, whatever it sends meanwhile: a third of what the least busy one has at hand. 0 for none.

        A third, because an item counts for `SHORTEST_S` at least, and may take two fifths of that.
        """
        seats = [seat for _, seat in self._open]
        if not seats or any(len(seat.handed) <= seat.room + 1 for seat in seats):
            return 0.0
        return min(seat.work_s / seat.room for seat in seats) / 3

    def overdue_leases(self, boottime: float) -> list[ClaimedWork]:
        """Returns what slots have, under leases that were never extended and are over."""
        return [c for seat in self._seats.values() for c in seat.handed.values() if boottime >= c.lease_until]

    @property
    def queued(self) -> list[ClaimedWork]:
        return list(self._queue)

    @property
    def handed(self) -> list[ClaimedWork]:
        return [claim for seat in self._seats.values() for claim in seat.handed.values()]


def _is_late(claim: ClaimedWork, moved_at: float, now: float) -> bool:
    """Returns True when the work before a claim runs long, or the claim has waited too long in any case."""
    return now - max(claim.claimed_at, moved_at) >= OVERDUE_S or now - claim.claimed_at >= MOST_WAIT_S

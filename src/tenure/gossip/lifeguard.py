"""The arithmetic of the protocol: how long a suspicion lasts, how patient a node is, and how the numbers grow with the pool.

Each formula is memberlist's or the Lifeguard paper's, and stands alone. Nothing here knows messages or members.
"""

from __future__ import annotations

import math


def suspicion_min_s(mult: int, nodes: int, interval_s: float) -> float:
    """Returns how long a suspicion lasts at least: so long once enough others have confirmed it."""
    return mult * max(1.0, math.log10(max(1, nodes))) * interval_s


def confirmations_wanted(mult: int, nodes: int) -> int:
    """Returns how many others must confirm a suspicion to make it as short as it can be; 0 when the pool is too small for that."""
    wanted = mult - 2
    return 0 if wanted < 1 or nodes - 2 < wanted else wanted


def suspicion_timeout_s(confirmed: int, wanted: int, min_s: float, max_s: float) -> float:
    """Returns the length of a suspicion. It falls from `max_s` to `min_s` with the logarithm of the confirmations (Lifeguard, section IV-B)."""
    if wanted < 1:
        return min_s
    share = math.log(confirmed + 1) / math.log(wanted + 1)
    return max(min_s, max_s - (max_s - min_s) * share)


def retransmit_limit(mult: int, nodes: int) -> int:
    """Returns how often one node passes a rumour on."""
    return mult * math.ceil(math.log10(nodes + 1))


def push_pull_scale(nodes: int) -> int:
    """Returns by which factor push/pulls become rarer. Above 32 nodes it grows, so that the work of all nodes together stays bounded."""
    return 1 if nodes <= 32 else math.ceil(math.log2(nodes) - 5) + 1


class Awareness:
    """A node's trust in itself (Lifeguard's local health). 0 means that it is well; each point makes it one interval more patient."""

    __slots__ = ("_enabled", "score", "worst")

    def __init__(self, maximum: int, *, enabled: bool = True) -> None:
        self.worst = maximum - 1
        self.score = 0  # 0 <= score <= worst
        self._enabled = enabled

    def add(self, points: int) -> None:
        """Adds points for signs that this node is the slow one. A probe that went well takes one away."""
        if self._enabled:
            self.score = min(self.worst, max(0, self.score + points))

    def scaled(self, seconds: float) -> float:
        """Returns `seconds`, made longer by the present score."""
        return seconds * (self.score + 1)


class Suspicion:
    """One suspicion, from the accusation until it is refuted or its deadline passes. Each new confirmation may only bring the deadline nearer."""

    __slots__ = ("_confirmed_by", "_max_s", "_min_s", "_wanted", "accuser", "begun", "deadline", "incarnation")

    def __init__(self, *, now: float, accuser: str, incarnation: int, wanted: int, min_s: float, max_s: float) -> None:
        self.begun = now
        self.accuser = accuser
        self.incarnation = incarnation  # the incarnation of the suspect that was accused
        self._wanted, self._min_s, self._max_s = wanted, min_s, max_s
        # The accuser is in the set so that its own repetition does not count as a confirmation.
        self._confirmed_by = {accuser}
        self.deadline = now + suspicion_timeout_s(0, wanted, min_s, max_s)

    @property
    def confirmations(self) -> int:
        """The number of nodes beside the accuser that suspect the same incarnation."""
        return len(self._confirmed_by) - 1

    def confirm(self, by: str) -> bool:
        """Counts a confirmation. Returns True when it was news, and so worth passing on."""
        if self.confirmations >= self._wanted or by in self._confirmed_by:
            return False
        self._confirmed_by.add(by)
        timeout = suspicion_timeout_s(self.confirmations, self._wanted, self._min_s, self._max_s)
        self.deadline = min(self.deadline, self.begun + timeout)
        return True

    def delay(self, seconds: float) -> None:
        """Moves the suspicion by the time in which this node did not listen: a refutation may wait unread."""
        self.begun += seconds
        self.deadline += seconds

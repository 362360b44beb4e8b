"""One suspicion: from the accusation to its end, sooner as independent others confirm it."""

from __future__ import annotations

from tenure.gossip.scaling import suspicion_timeout_s


class Suspicion:
    """`deadline` is when the suspect is declared dead; each new confirmation may bring it nearer, never further."""

    __slots__ = ("_confirmed_by", "_max_s", "_min_s", "_wanted", "accuser", "begun", "deadline", "incarnation")

    def __init__(self, *, now: float, accuser: str, incarnation: int, wanted: int, min_s: float, max_s: float) -> None:
        self.begun = now
        self.accuser = accuser
        self.incarnation = incarnation
        self._wanted, self._min_s, self._max_s = wanted, min_s, max_s
        # The one who began it is no confirmation of itself.
        self._confirmed_by = {accuser}
        self.deadline = now + suspicion_timeout_s(0, wanted, min_s, max_s)

    @property
    def confirmations(self) -> int:
        return len(self._confirmed_by) - 1

    def confirm(self, by: str) -> bool:
        """True when this was news, and worth passing on."""
        if self.confirmations >= self._wanted or by in self._confirmed_by:
            return False
        self._confirmed_by.add(by)
        timeout = suspicion_timeout_s(self.confirmations, self._wanted, self._min_s, self._max_s)
        self.deadline = min(self.deadline, self.begun + timeout)
        return True

    def delay(self, seconds: float) -> None:
        """We were not listening for so long: a refutation may wait unread."""
        self.begun += seconds
        self.deadline += seconds

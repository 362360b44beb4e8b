"""An election among the threads, or the simulated nodes, of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engines.checks import check_key, check_ttl
from tenure.engines.contracts import Election, Leader, Term, term_margin
from tenure.errors import LimitError, TermLostError

if TYPE_CHECKING:
    from tenure.engines.memory.engine import MemoryEngine


class Seat:
    """The holder of the term. The epoch stays when the term has no holder: it only grows."""

    def __init__(self) -> None:
        self.epoch = 0
        self.candidate = ""
        self.expires = 0.0

    def taken(self, now: float) -> bool:
        return self.candidate != "" and now < self.expires


class MemoryElection(Election):
    def __init__(self, engine: MemoryEngine, name: str, seat: Seat) -> None:
        self.name = name
        self._engine, self._seat = engine, seat

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if above < 0:
            raise LimitError("above", above, "0 or more")
        asked = self._engine.clock.boottime()
        with self._engine.lock:
            self._engine.check_open()
            seat, now = self._seat, self._engine.clock.boottime()
            if seat.taken(now) and seat.candidate != candidate:
                return None
            seat.epoch = max(seat.epoch, above) + 1
            seat.candidate, seat.expires = candidate, now + ttl
            return Term(seat.epoch, candidate, ttl, asked + ttl - term_margin(ttl))

    def renew(self, term: Term) -> Term:
        asked = self._engine.clock.boottime()
        with self._engine.lock:
            self._engine.check_open()
            seat, now = self._seat, self._engine.clock.boottime()
            if seat.epoch != term.epoch or not seat.taken(now):
                raise TermLostError(self.name, term.epoch, seat.epoch)
            seat.expires = now + term.ttl
            return term._replace(safe_until=asked + term.ttl - term_margin(term.ttl))

    def resign(self, term: Term) -> None:
        with self._engine.lock:
            self._engine.check_open()
            if self._seat.epoch == term.epoch:
                self._seat.candidate = ""

    def current(self) -> Leader | None:
        with self._engine.lock:
            self._engine.check_open()
            seat, now = self._seat, self._engine.clock.boottime()
            return Leader(seat.candidate, seat.epoch, seat.expires - now) if seat.taken(now) else None

"""An election in the log: who leads is decided by the order of the log, and by its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engines.checks import check_key, check_name, check_ttl
from tenure.engines.contracts import Election, Leader, Term, term_margin
from tenure.engines.nats import commands as c
from tenure.errors import EngineUnavailableError, LimitError

if TYPE_CHECKING:
    from tenure.engines.nats.engine import NatsEngine


class NatsElection(Election):
    def __init__(self, engine: NatsEngine, name: str) -> None:
        self.name = check_name(name)
        self._engine = engine

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if above < 0:
            raise LimitError("above", above, "0 or more")
        asked = self._engine.clock.boottime()
        epoch = self._engine.ask(
            "campaign", c.Campaign, self.name, candidate, float(ttl), above, lost=EngineUnavailableError
        )
        return None if epoch is None else Term(epoch, candidate, ttl, asked + ttl - term_margin(ttl))

    def renew(self, term: Term) -> Term:
        asked = self._engine.clock.boottime()
        self._engine.ask("renew", c.Renew, self.name, term.epoch, float(term.ttl), lost=EngineUnavailableError)
        return term._replace(safe_until=asked + term.ttl - term_margin(term.ttl))

    def resign(self, term: Term) -> None:
        self._engine.ask("resign", c.Resign, self.name, term.epoch, lost=EngineUnavailableError)

    def current(self) -> Leader | None:
        return self._engine.call("current", self._current, lost=EngineUnavailableError)

    async def _current(self) -> Leader | None:
        now = await self._engine.log.catch_up()
        seat = self._engine.log.ledger.seats.get(self.name)
        if seat is None or not seat.taken(now):
            return None
        return Leader(seat.candidate, seat.epoch, seat.expires - now)

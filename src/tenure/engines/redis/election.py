"""An election in Redis: one hash per seat, taken and renewed by scripts, in the server's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engines.checks import check_key, check_name, check_ttl
from tenure.engines.contracts import Election, Leader, Term, term_margin
from tenure.engines.redis.connections import Answer
from tenure.engines.redis.session import Argument
from tenure.errors import LimitError, TermLostError

if TYPE_CHECKING:
    from tenure.engines.redis.engine import RedisEngine


class RedisElection(Election):
    def __init__(self, engine: RedisEngine, name: str) -> None:
        self.name = check_name(name, "election name")
        self._engine = engine

    def _call(self, operation: str, *values: Argument) -> Answer:
        return self._engine.connections.call(operation, (self.name, *values))

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if not 0 <= above < 2**53:
            raise LimitError("above", above, "0 or more, and below 2**53")
        asked = self._engine.clock.boottime()
        epoch = self._call("campaign", candidate, round(ttl * 1e6), above)[1]
        return Term(epoch, candidate, ttl, asked + ttl - term_margin(ttl)) if epoch > 0 else None

    def renew(self, term: Term) -> Term:
        asked = self._engine.clock.boottime()
        _, renewed, *newest = self._call("renew", term.epoch, round(term.ttl * 1e6))
        if not renewed:
            raise TermLostError(self.name, term.epoch, newest[0])
        return term._replace(safe_until=asked + term.ttl - term_margin(term.ttl))

    def resign(self, term: Term) -> None:
        self._call("resign", term.epoch)

    def current(self) -> Leader | None:
        _, *seat = self._call("leader")
        return Leader(seat[0].decode(), seat[1], seat[2] / 1e6) if seat else None

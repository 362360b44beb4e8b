"""An election in PostgreSQL: one row per seat, taken and renewed by compare-and-swap, in the server's time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.engines.checks import check_key, check_name, check_ttl
from tenure.engines.contracts import Election, Leader, Term, term_margin
from tenure.engines.postgres.connections import Rows
from tenure.errors import LimitError, TermLostError

if TYPE_CHECKING:
    from tenure.engines.postgres.engine import PostgresEngine


class PostgresElection(Election):
    def __init__(self, engine: PostgresEngine, name: str) -> None:
        self.name = check_name(name, "election name")
        self._engine = engine

    def _query(self, operation: str, *values: Any) -> Rows:
        statement = getattr(self._engine.statements, operation)
        return self._engine.connections.query(operation, statement, (self.name, *values))

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if above < 0:
            raise LimitError("above", above, "0 or more")
        asked = self._engine.clock.boottime()
        rows = self._query("campaign", candidate, float(ttl), above)
        return Term(rows[0][0], candidate, ttl, asked + ttl - term_margin(ttl)) if rows else None

    def renew(self, term: Term) -> Term:
        asked = self._engine.clock.boottime()
        newest = self._query("renew", term.epoch, float(term.ttl))[0][0]
        if newest is not None:
            raise TermLostError(self.name, term.epoch, newest)
        return term._replace(safe_until=asked + term.ttl - term_margin(term.ttl))

    def resign(self, term: Term) -> None:
        self._query("resign", term.epoch)

    def current(self) -> Leader | None:
        rows = self._query("leader")
        return Leader(*rows[0]) if rows else None

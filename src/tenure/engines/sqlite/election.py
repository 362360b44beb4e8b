"""Elections: one row each, whose epoch only grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engines.checks import check_key, check_name, check_ttl
from tenure.engines.contracts import Election, Leader, Term, term_margin
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.timeline import micros
from tenure.errors import LimitError, TermLostError

if TYPE_CHECKING:
    from tenure.engines.sqlite.engine import SqliteEngine


class SqliteElection(Election):
    """A handle on one election. Safe to share between threads."""

    def __init__(self, engine: SqliteEngine, name: str) -> None:
        self.name = check_name(name, "election")
        self._clock, self._database = engine.clock, engine.database

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if above < 0:
            raise LimitError("above", above, "0 or more")
        asked_at = self._clock.boottime()
        with self._database.writer as tx:
            now = self._database.now()
            row = tx.execute(sql.SELECT_ELECTION, (self.name,)).fetchone()
            last, holder, expires_at = row if row is not None else (0, "", 0)
            if holder != candidate and expires_at > now:
                return None
            epoch = max(last, above) + 1
            tx.execute(sql.SET_LEADER, (self.name, epoch, candidate, now + micros(ttl)))
        return _term(epoch, candidate, ttl, asked_at)

    def renew(self, term: Term) -> Term:
        asked_at = self._clock.boottime()
        with self._database.writer as tx:
            now = self._database.now()
            renewed = (now + micros(term.ttl), self.name, term.epoch, term.candidate, now)
            if tx.execute(sql.RENEW_TERM, renewed).rowcount != 1:
                row = tx.execute(sql.SELECT_ELECTION, (self.name,)).fetchone()
                raise TermLostError(self.name, term.epoch, row[0] if row is not None else 0)
        return _term(term.epoch, term.candidate, term.ttl, asked_at)

    def resign(self, term: Term) -> None:
        with self._database.writer as tx:
            tx.execute(sql.END_TERM, (self._database.now(), self.name, term.epoch, term.candidate))

    def current(self) -> Leader | None:
        rows = self._database.reader.read(sql.SELECT_ELECTION, (self.name,))
        if not rows:
            return None
        epoch, candidate, expires_at = rows[0]
        expires_in = (expires_at - self._database.now()) / 1e6
        return Leader(candidate, epoch, expires_in) if expires_in > 0 else None


def _term(epoch: int, candidate: str, ttl: float, asked_at: float) -> Term:
    return Term(epoch, candidate, ttl, asked_at + ttl - term_margin(ttl))

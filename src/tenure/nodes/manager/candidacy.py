"""Stands for the election of a datacenter's manager, and makes the ledger and the leader of each term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tenure.control.messages.jobs import MANAGER_ELECTION
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import DeposedError, TenureError
from tenure.jobs import Decision, JobSettings
from tenure.jobs.decisions import Command
from tenure.nodes.fleet.member import PoolView
from tenure.nodes.fleet.settings import FleetSettings
from tenure.nodes.leadership import Candidate
from tenure.nodes.manager.leader import Leader, LeaderPart
from tenure.nodes.manager.ledger import Ledger

JOURNAL = "jobs"


class Candidacy(Candidate[Ledger, Leader]):
    """Stands for election, leads the datacenter while elected, and follows its journal otherwise."""

    journal_name: ClassVar[str] = JOURNAL
    election_name: ClassVar[str] = MANAGER_ELECTION
    ledger_class: ClassVar[type[Ledger]] = Ledger
    leader_class: ClassVar[type[Leader]] = Leader

    def __init__(
        self,
        name: str,
        engine: Engine,
        calls: Calls,
        *,
        settings: JobSettings | None = None,
        fleet: FleetSettings | None = None,
        pool: PoolView | None = None,
        **given: Any,
    ) -> None:
        self._settings, self._fleet, self._pool = settings, fleet, pool
        self.parts: list[Callable[[Leader], LeaderPart]] = []
        """Functions that make the parts of each leader that this node becomes."""
        super().__init__(name, engine, calls, **given)

    def _new_ledger(self) -> Ledger:
        return self.ledger_class(settings=self._settings, **self._ledger_parts())

    def _new_leader(self) -> Leader:
        leader = self.leader_class(
            self.ledger,
            self._engine,
            self._calls,
            clock=self._clock,
            engine_now=self.time.now,
            say=self._say,
            results_lease_s=self.ttl_s,
            fleet=self._fleet,
            pool=self._pool,
            keeper=self.keeper.of_term(),
        )
        leader.parts += [make(leader) for make in self.parts]
        return leader

    async def submit(self, command: Command) -> Decision:
        """Commits a command. Raises `DeposedError` when this node does not lead."""
        if self.leader is None:
            raise DeposedError("this node does not lead")
        return await self.leader.submit(command)

    async def submit_all(self, commands: Sequence[Command]) -> list[Decision | TenureError]:
        """Commits many commands. Returns for each its decision, or the error that refused it. Raises `DeposedError` when this node does not lead."""
        if self.leader is None:
            raise DeposedError("this node does not lead")
        return await self.leader.submit_all(commands)

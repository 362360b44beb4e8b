"""Stands for the lead of a gate cluster. A gate that is not fit to lead stands back while a peer is fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tenure.control.messages.jobs import GATE_ELECTION
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import DeposedError, TenureError
from tenure.jobs.decisions import Command, Event, GateDecision
from tenure.jobs.settings import GateSettings
from tenure.nodes.gate.flow import Forwarding
from tenure.nodes.gate.leader import GateLeader
from tenure.nodes.gate.ledger import GateLedger
from tenure.nodes.gate.lines import Lines
from tenure.nodes.leadership import Candidate

JOURNAL = "gate"


class GateCandidacy(Candidate[GateLedger, GateLeader]):
    """Stands for election, leads the gate cluster, follows."""

    journal_name: ClassVar[str] = JOURNAL
    election_name: ClassVar[str] = GATE_ELECTION
    ledger_class: ClassVar[type[GateLedger]] = GateLedger
    leader_class: ClassVar[type[GateLeader]] = GateLeader

    def __init__(
        self,
        name: str,
        engine: Engine,
        calls: Calls,
        lines: Lines,
        *,
        settings: GateSettings | None = None,
        fit: Callable[[], bool] = lambda: True,
        link_suspect: Callable[[], bool] = lambda: False,
        flow: Forwarding,
        heed: Callable[[Sequence[Event]], None] = lambda events: None,
        elected: Callable[[], None] = lambda: None,
        **given: Any,
    ) -> None:
        self._lines, self._settings, self._fit, self._link_suspect = lines, settings, fit, link_suspect
        self._flow, self._heed, self._elected = flow, heed, elected
        super().__init__(name, engine, calls, **given)

    def may_campaign(self) -> bool:
        return self._fit()

    def _new_ledger(self) -> GateLedger:
        return self.ledger_class(settings=self._settings, **self._ledger_parts())

    def _new_leader(self) -> GateLeader:
        self._elected()
        return self.leader_class(
            self.ledger,
            self._engine,
            self._calls,
            self._lines,
            clock=self._clock,
            engine_now=self.time.now,
            link_suspect=self._link_suspect,
            flow=self._flow,
            say=self._say,
            heed=self._heed,
            keeper=self.keeper.of_term(),
        )

    async def submit(self, command: Command) -> GateDecision:
        """Commits a command, and returns its decision. Raises `DeposedError` where this gate does not lead."""
        if self.leader is None:
            raise DeposedError("this gate does not lead")
        return await self.leader.submit(command)

    async def submit_all(self, commands: Sequence[Command]) -> list[GateDecision | TenureError]:
        """Commits many commands. Returns for each its decision or its error. Raises `DeposedError` where this gate does not lead."""
        if self.leader is None:
            raise DeposedError("this gate does not lead")
        return await self.leader.submit_all(commands)

    def ended_term(self, leader: GateLeader) -> None:
        # A datacenter that has seen a newer gate epoch does not follow this gate, so the next campaign asks for an epoch above that one.
        self.above = max(self.above, leader.overtaken)

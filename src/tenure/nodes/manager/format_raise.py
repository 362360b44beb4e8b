"""Raises the format in which a datacenter's state is saved: at once for a new one, else when an operator says so (RULINGS.md, 13)."""

from __future__ import annotations

from tenure.jobs.formats import RaiseFormat
from tenure.nodes.manager.leader import DatacenterLeader
from tenure.nodes.manager.leader_parts import LeaderPart


class FormatRaise(LeaderPart):
    """Part of a leader. An earlier release cannot read the journal afterwards."""

    def __init__(self, always: bool, leader: DatacenterLeader) -> None:
        """With `always`, it raises the format of any datacenter; otherwise only of one that never had another leader."""
        self._always, self._leader = always, leader

    async def run(self) -> None:
        book = self._leader.book
        if book.pages is None and (self._always or book.epoch == 1):
            await self._leader.commit(RaiseFormat(by="leader"))

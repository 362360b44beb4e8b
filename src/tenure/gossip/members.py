"""Who is known: one record for each name, and the shuffled ring in which they are probed.

Knows the states, not the rules that change them (`rumours`). Picking a few costs no more in a large pool than in a small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tenure.gossip.messages import VERSIONS, Address, NodeState, State
from tenure.gossip.suspicion import Suspicion
from tenure.randomness import Random

NACK_VERSION = 4
STREAM_PING_VERSION = 3
CHECKSUM_VERSION = 5


class Member:
    """What we believe of one node. Only `rumours` changes it."""

    __slots__ = (
        "address",
        "changed_at",
        "incarnation",
        "meta",
        "name",
        "start_id",
        "state",
        "suspicion",
        "tags",
        "udp_silent",
        "versions",
    )

    def __init__(self, name: str, address: Address, now: float) -> None:
        self.name = name
        self.address = address
        self.meta = b""
        self.tags: dict[str, str] = {}
        self.start_id = ""  # which start of the node this is; empty for those that are not ours
        self.incarnation = 0
        self.state = State.DEAD
        self.changed_at = now
        self.versions = VERSIONS
        self.suspicion: Suspicion | None = None
        self.udp_silent = 0  # how many probes in a row only a stream answered

    @property
    def is_here(self) -> bool:
        """Alive, or only suspected not to be."""
        return self.state in (State.ALIVE, State.SUSPECT)

    @property
    def speaks_tenure(self) -> bool:
        return bool(self.start_id)

    @property
    def newest_protocol(self) -> int:
        return self.versions[1] if len(self.versions) > 1 else 0

    def as_state(self) -> NodeState:
        """Its line of a push/pull."""
        return NodeState(self.name, self.address, self.incarnation, self.state, self.meta, self.versions)

    def __repr__(self) -> str:
        return f"<{self.name} {self.state.name.lower()} {self.incarnation} at {self.address[0]}:{self.address[1]}>"


class Roster:
    """All members, ourselves included."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._members: dict[str, Member] = {}
        self._ring: list[Member] = []
        self._at = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def get(self, name: str) -> Member | None:
        return self._members.get(name)

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def add(self, member: Member) -> None:
        """Into a random place of the ring, so that not everybody probes the newcomer in the same round."""
        self._members[member.name] = member
        self._ring.append(member)
        at = self._random.randrange(len(self._ring))
        self._ring[at], self._ring[-1] = self._ring[-1], self._ring[at]

    def here(self) -> list[Member]:
        """Those alive or suspected, ourselves included."""
        return [member for member in self._members.values() if member.is_here]

    def next_in_ring(self, wanted: Callable[[Member], bool], reap: Callable[[], list[Member]]) -> Member | None:
        """Round robin over a list that is shuffled each time around: each is probed once within 2n - 1 periods.

        The dead that are long known to be so are taken out where the round ends.
        """
        for _ in range(len(self._ring) + 1):
            if self._at >= len(self._ring):
                self._remove(reap())
                self._random.shuffle(self._ring)
                self._at = 0
                if not self._ring:
                    return None
            member = self._ring[self._at]
            self._at += 1
            if wanted(member):
                return member
        return None

    def _remove(self, gone: list[Member]) -> None:
        if gone:
            names = {member.name for member in gone}
            self._ring = [member for member in self._ring if member.name not in names]
            for name in names:
                del self._members[name]

    def pick(self, count: int, wanted: Callable[[Member], bool]) -> list[Member]:
        """Some at random; fewer where few are wanted. Gives up rather than look at everybody."""
        chosen: list[Member] = []
        size = len(self._ring)
        if size == 0:
            return chosen
        if size <= 3 * count:
            chosen = [member for member in self._ring if wanted(member)]
            self._random.shuffle(chosen)
            return chosen[:count]
        for _ in range(max(30, 3 * count)):
            member = self._ring[int(self._random.random() * size)]
            if member not in chosen and wanted(member):
                chosen.append(member)
                if len(chosen) == count:
                    break
        return chosen

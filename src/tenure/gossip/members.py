"""The members of a pool as one node knows them: a record for each name, the ring in which they are probed, and addresses to dial again.

The records hold beliefs. `membership_rules` alone changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tenure.gossip.messages import VERSIONS, Address, MemberState, NodeState
from tenure.gossip.settings import Suspicion
from tenure.randomness import Random

# The protocol versions of memberlist that brought each of these. A member tells its newest version in its alive message.
STREAM_PING_VERSION = 3
NACK_VERSION = 4
CHECKSUM_VERSION = 5


class PoolMember:
    """Our belief about one node. Only `membership_rules` changes it, apart from `udp_silent`."""

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
        self.start_id = ""  # names one start of the node; empty for a member that does not run Tenure
        self.incarnation = 0
        self.state = MemberState.DEAD
        self.changed_at = now
        self.versions = VERSIONS
        self.suspicion: Suspicion | None = None
        self.udp_silent = 0  # probes in a row that it answered on a stream only; `probing` counts them

    @property
    def is_here(self) -> bool:
        """True while the member is alive or only suspected."""
        return self.state in (MemberState.ALIVE, MemberState.SUSPECT)

    @property
    def speaks_tenure(self) -> bool:
        """True for nodes of ours, which understand the fields that we added to the wire."""
        return bool(self.start_id)

    @property
    def newest_protocol(self) -> int:
        """The newest version of memberlist's protocol that the member understands."""
        return self.versions[1] if len(self.versions) > 1 else 0

    def as_state(self) -> NodeState:
        """Returns the member as one line of a push/pull."""
        return NodeState(self.name, self.address, self.incarnation, self.state, self.meta, self.versions)

    def __repr__(self) -> str:
        return f"<{self.name} {self.state.name.lower()} {self.incarnation} at {self.address[0]}:{self.address[1]}>"


class MemberList:
    """All members that this node knows, itself included. Picking a few costs no more in a large pool than in a small one."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._members: dict[str, PoolMember] = {}
        # The same members in the order in which they are probed. It is shuffled each time that `_at` has passed all of them.
        self._ring: list[PoolMember] = []
        self._at = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[PoolMember]:
        return iter(self._members.values())

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def get(self, name: str) -> PoolMember | None:
        return self._members.get(name)

    def __getitem__(self, name: str) -> PoolMember:
        return self._members[name]

    def add(self, member: PoolMember) -> None:
        """Adds a member at a random place of the ring. Otherwise all nodes would probe a newcomer in the same round."""
        self._members[member.name] = member
        self._ring.append(member)
        at = self._random.randrange(len(self._ring))
        self._ring[at], self._ring[-1] = self._ring[-1], self._ring[at]

    def here(self) -> list[PoolMember]:
        """Returns the members that are alive or suspected, this node included."""
        return [member for member in self._members.values() if member.is_here]

    def next_in_ring(
        self, wanted: Callable[[PoolMember], bool], reap: Callable[[], list[PoolMember]]
    ) -> PoolMember | None:
        """Returns the next member of the ring that is `wanted`; None when there is none.

        The ring is shuffled at the end of each round, so each member has its turn within 2n - 1 calls. At that point `reap` names the members
        to remove.
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

    def _remove(self, gone: list[PoolMember]) -> None:
        if gone:
            names = {member.name for member in gone}
            self._ring = [member for member in self._ring if member.name not in names]
            for name in names:
                del self._members[name]

    def pick(self, count: int, wanted: Callable[[PoolMember], bool]) -> list[PoolMember]:
        """Returns up to `count` random members that are `wanted`. In a large pool it may give up before it has found as many."""
        chosen: list[PoolMember] = []
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


MAX_REMEMBERED = 256


class Seeds:
    """Addresses that should be members: the seeds, and members that failed and may be on the other side of a partition.

    memberlist purges the dead and never dials them again, so a pool that was cut in two for long stays two pools.
    """

    def __init__(self, random: Random, remember_s: float) -> None:
        self._random = random
        self._remember_s = remember_s
        self._seeds: list[Address] = []
        # When each failed member was given up, oldest first.
        self._failed: dict[Address, float] = {}

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The seeds, without the members that failed."""
        return tuple(self._seeds)

    def add(self, seeds: Iterable[Address]) -> None:
        """Adds addresses that are dialled for as long as this node runs."""
        self._seeds += [seed for seed in seeds if seed not in self._seeds]

    def remember(self, now: float, address: Address) -> None:
        """Remembers the address of a member that failed. The one that was given up first makes room."""
        self._failed.pop(address, None)
        self._failed[address] = now
        if len(self._failed) > MAX_REMEMBERED:
            del self._failed[next(iter(self._failed))]

    def pick_missing(self, now: float, here: set[Address]) -> Address | None:
        """Returns a random address that is not among `here`, the addresses of live members; None when all are."""
        self._failed = {
            address: at for address, at in self._failed.items() if now - at <= self._remember_s and address not in here
        }
        missing = [seed for seed in self._seeds if seed not in here]
        missing += [address for address in self._failed if address not in missing]
        return self._random.choice(missing) if missing else None

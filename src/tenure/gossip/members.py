"""The members of a pool as one node knows them: a record for each name, the ring in which they are probed, their tags and health, and addresses to dial.

The records hold beliefs. `membership_rules` alone changes them.

Health goes two ways. Pings and acks carry it at once, between the two nodes of a probe. Tags carry a slow copy to everybody, inside the metadata
that memberlist gossips. The newest wins, by the node's incarnation and the sequence within it, on whichever way it came. Incarnations grow over
restarts, so the first health of a restarted node is news, and a delayed datagram of its former life is not.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tenure.errors import ConfigurationError, LimitError, PiggybackError, WireError
from tenure.gossip.encodings import pack, unpack
from tenure.gossip.messages import MAX_META_BYTES, VERSIONS, Address, MemberState, NodeState
from tenure.gossip.settings import Suspicion
from tenure.health.node_states import HealthPiggyback
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
        """Adds addresses that are dialled for as long as this node runs. Beyond the bound the oldest ones go."""
        self._seeds += [seed for seed in seeds if seed not in self._seeds]
        del self._seeds[:-MAX_REMEMBERED]

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


# Two tags are ours: `start` names one start of a node, `health` is the slow copy of its health.
START = "start"
HEALTH = "health"
RESERVED = (START, HEALTH)

# Serf keeps tags in the metadata as this byte and a msgpack map. Ours and the user's share its 512 bytes.
_MAGIC = 0xFF


def encode_tags(tags: Mapping[str, str]) -> bytes:
    """Returns the metadata that carries these tags. Raises `LimitError` when they are too long together."""
    meta = bytes((_MAGIC,)) + pack(dict(tags))
    if len(meta) > MAX_META_BYTES:
        raise LimitError("tags", f"{len(meta)} bytes", f"at most {MAX_META_BYTES} bytes together")
    return meta


def decode_tags(meta: bytes) -> dict[str, str]:
    """Returns the tags in a node's metadata. Metadata of another form becomes the tag `role`, as in Serf."""
    if not meta:
        return {}
    if meta[0] != _MAGIC:
        return {"role": meta.decode(errors="replace")}
    try:
        pairs, _ = unpack(meta, 1)
    except WireError:
        return {}
    if not isinstance(pairs, dict):
        return {}
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in pairs.items()
        if isinstance(key, bytes) and isinstance(value, bytes)
    }


def check_user_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the user's tags. Raises `ConfigurationError` where one is no text or has a name of ours."""
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise ConfigurationError(f"tag {name!r} is {value!r}; names and values of tags are text")
        if name in RESERVED:
            raise ConfigurationError(f"the tag {name!r} is Tenure's own", remedy="Give it another name")
    return dict(tags)


def all_tags(user: Mapping[str, str], start_id: str, health: HealthPiggyback | None) -> dict[str, str]:
    """Returns the user's tags with ours."""
    ours = {START: start_id} if health is None else {START: start_id, HEALTH: health_tag(health)}
    return {**user, **ours}


def health_tag(health: HealthPiggyback) -> str:
    """Returns health as text for a tag, so that `serf members` can print it."""
    return base64.b64encode(health.encode()).decode()


def health_from_tag(text: str) -> HealthPiggyback | None:
    """Returns the health in a tag; None where it cannot be read."""
    try:
        return HealthPiggyback.decode(base64.b64decode(text, validate=True))
    except (binascii.Error, PiggybackError, ValueError):
        return None


Rank = tuple[int, int]
"""The incarnation of a node, and the sequence number of its health within it. The higher rank is the newer health."""


def encode_health_field(incarnation: int, health: HealthPiggyback) -> bytes:
    """Returns the bytes of the extra field of a ping or an ack: the incarnation and the health."""
    return incarnation.to_bytes(4, "big") + health.encode()


def decode_health_field(data: bytes) -> tuple[int, HealthPiggyback] | None:
    """Returns the incarnation and the health in such a field; None where it cannot be read."""
    if len(data) < 5:
        return None
    try:
        return int.from_bytes(data[:4], "big"), HealthPiggyback.decode(data[4:])
    except PiggybackError:
        return None


class HealthBook:
    """Holds this node's own health, and the newest health that it knows of each other node."""

    def __init__(self) -> None:
        self.own: HealthPiggyback | None = None
        # The health that our tags carry now. It lags behind `own`, because each change of tags costs a broadcast.
        self.tagged: HealthPiggyback | None = None
        self._sequence = 0
        self._known: dict[str, tuple[Rank, HealthPiggyback]] = {}

    def set_own(self, health: HealthPiggyback) -> None:
        """Replaces our own health and gives it the next sequence number."""
        self._sequence += 1
        self.own = replace(health, sequence=self._sequence)

    @property
    def tag_is_stale(self) -> bool:
        """True when readiness or load differ from what the tags say. A change of a number alone is not worth a broadcast."""
        return self.own is not None and (self.tagged is None or _class(self.own) != _class(self.tagged))

    def offer(self, node: str, incarnation: int, health: HealthPiggyback) -> bool:
        """Keeps health that is newer than what is known. Returns True when it differs in more than its sequence number."""
        rank = (incarnation, health.sequence)
        known = self._known.get(node)
        if known is not None and known[0] >= rank:
            return False
        self._known[node] = (rank, health)
        return known is None or replace(known[1], sequence=0) != replace(health, sequence=0)

    def of(self, node: str) -> HealthPiggyback | None:
        """Returns the newest health of another node; None before the first."""
        known = self._known.get(node)
        return known[1] if known else None

    def forget(self, node: str) -> None:
        self._known.pop(node, None)


def _class(health: HealthPiggyback) -> tuple[object, ...]:
    """Returns the parts of health that a scheduler acts on. Two healths with equal parts are one class."""
    return (health.node_id, health.node_type, health.accepting_work, health.capacity > 0, health.overload_state)

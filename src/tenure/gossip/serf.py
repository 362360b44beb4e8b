"""The part of Serf's own layer that a member of its pool needs: intents to leave or stay, their clock, and Serf's own queries.

Serf shows a node as "left" only when its intent to leave came before memberlist's "dead", with a Lamport time above the last one about that node.
`serf keys -install`, `-use`, `-remove` and `-list` reach our nodes as they reach agents: gossip carries a query to everybody, and each node answers
the asker directly. A sender of such a query holds a key of the pool already. When two nodes claim one name, Serf asks all members whom they
know (`_serf_conflict`), and we vote. Other events and queries belong to Serf's applications: we pass them on, and send the ack that they want.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from tenure.errors import ConfigurationError, WireError
from tenure.gossip.encodings import Value, pack, unpack
from tenure.gossip.members import PoolMember
from tenure.gossip.messages import Address, MemberState, User
from tenure.gossip.sealing import Keyring, format_key
from tenure.gossip.state import SwimState
from tenure.gossip.wire import (
    encode,
    pack_host,
    take_bytes,
    take_name,
    take_text,
    take_uint,
    unpack_fields,
    unpack_host,
)

_LEAVE, _JOIN, _PUSH_PULL = 0, 1, 2
_MOST_TIME = 0xFFFFFFFFFFFFFFFF


class Intent(Struct, frozen=True):
    """A node's announcement that it is about to leave, or that it means to stay."""

    node: str
    time: int
    leaves: bool


def decode_intent(payload: bytes) -> Intent | None:
    """Returns the intent in a user message; None for Serf's other messages."""
    if not payload or payload[0] not in (_LEAVE, _JOIN):
        return None
    fields, _ = unpack_fields(payload, 1)
    return Intent(take_name(fields, b"Node"), take_uint(fields, b"LTime", _MOST_TIME), payload[0] == _LEAVE)


class SerfClock:
    """Serf's Lamport clock, as far as we take part in it."""

    def __init__(self) -> None:
        self.time = 1

    def witness(self, time: int) -> None:
        """Moves the clock above a time that another node has seen. A time that leaves no room above it is a forgery, and ignored."""
        if self.time <= time < _MOST_TIME // 2:
            self.time = time + 1

    def witness_state(self, user_state: bytes, node: str) -> None:
        """Learns the time from the user state of a push/pull. Bytes that are no such state are ignored."""
        if user_state[:1] != bytes((_PUSH_PULL,)):
            return
        try:
            fields, _ = unpack(user_state, 1)
            if not isinstance(fields, dict):
                return
            self.witness(take_uint(fields, b"LTime", _MOST_TIME))
            statuses = fields.get(b"StatusLTimes")
            if isinstance(statuses, dict):
                self.witness(take_uint(statuses, node.encode(), _MOST_TIME))
        except WireError:
            return

    def leave(self, node: str) -> bytes:
        """Returns the message that tells the pool that this node leaves on purpose."""
        self.time += 1
        return bytes((_LEAVE,)) + pack({"LTime": self.time, "Node": node, "Prune": False})

    def stay(self, node: str) -> bytes:
        """Returns the message that tells the pool that this node does not leave."""
        self.time += 1
        return bytes((_JOIN,)) + pack({"LTime": self.time, "Node": node})


_EVENT, _QUERY, _RESPONSE, _CONFLICT_RESPONSE, _KEY_RESPONSE = 3, 4, 5, 6, 8
_PREFIX = "_serf_"
# Flags. A query with the first wants acks, and a response with it is an ack; a query with the second is for its receiver alone.
_ACK, _NO_BROADCAST = 1, 2
_NODES = 0  # a filter that lists the names of the nodes that a query is for
_STATUS = {MemberState.ALIVE: 1, MemberState.SUSPECT: 1, MemberState.LEFT: 3, MemberState.DEAD: 4}
REMEMBERED = 512
MAX_USER_BYTES = 2048
"""The largest of Serf's messages that we pass on. Serf limits events to 512 bytes and queries to 1024."""


class QueryReply(NamedTuple):
    """One answer to a query, and the address of the asker."""

    to: Address
    payload: bytes


class SerfQueries:
    """Answers Serf's own queries. It remembers the messages that it has seen, so that each is passed on and obeyed once."""

    def __init__(
        self, name: str, keyring: Keyring | None, member: Callable[[str], PoolMember | None] = lambda _: None
    ) -> None:
        self._name, self._keyring, self._member = name, keyring, member
        # Digests, because a message may be large and each costs memory for as long as it is remembered.
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def is_news(self, payload: bytes) -> bool:
        """Returns True for one of Serf's events or queries that is seen for the first time."""
        if not payload or payload[0] not in (_EVENT, _QUERY) or len(payload) > MAX_USER_BYTES:
            return False
        digest = hashlib.blake2b(payload, digest_size=16).digest()
        if digest in self._seen:
            return False
        self._seen[digest] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return True

    def answer(self, payload: bytes) -> tuple[list[QueryReply], bool]:
        """Returns the answers to a query: the ack that it wants, and the response where it is one of Serf's own. Also returns True when the
        message should be passed on."""
        if payload[0] != _QUERY:
            return [], True
        fields, _ = unpack_fields(payload, 1)
        flags = take_uint(fields, b"Flags")
        forward = not flags & _NO_BROADCAST
        if not self._is_asked(fields):
            return [], forward
        response = self._response(take_text(fields, b"Name", 512), fields)
        replies = []
        if flags & _ACK:
            replies.append(self._reply(fields, _ACK, b""))
        if response is not None:
            replies.append(self._reply(fields, 0, response))
        return replies, forward

    def _is_asked(self, fields: dict[Value, Value]) -> bool:
        """Returns True when the filters of the query let this node answer. We run no regular expression of another node, so a query that
        filters by tags gets no answer from us."""
        filters = fields.get(b"Filters")
        for one in filters if isinstance(filters, list) else ():
            if not isinstance(one, bytes) or one[:1] != bytes((_NODES,)):
                return False
            names, _ = unpack(one, 1)
            if not isinstance(names, list) or self._name.encode() not in names:
                return False
        return True

    def _reply(self, fields: dict[Value, Value], flags: int, payload: bytes) -> QueryReply:
        address = unpack_host(take_bytes(fields, b"Addr", 16)), take_uint(fields, b"Port", 0xFFFF)
        response = {
            "LTime": take_uint(fields, b"LTime", _MOST_TIME),
            "ID": take_uint(fields, b"ID"),
            "From": self._name,
            "Flags": flags,
            "Payload": payload,
        }
        return QueryReply(address, bytes((_RESPONSE,)) + pack(response))

    def _response(self, query: str, fields: dict[Value, Value]) -> bytes | None:
        """Returns the payload of our answer to one of Serf's own queries; None for a query that is answered with an ack at most."""
        if query.startswith(_PREFIX) and query.endswith(("-key", "-keys")):
            return bytes((_KEY_RESPONSE,)) + pack(self._obey(query.removeprefix(_PREFIX), fields))
        if query == f"{_PREFIX}conflict":
            return self._vote(take_text(fields, b"Payload"))
        return None

    def _vote(self, name: str) -> bytes | None:
        """Returns whom we know under a name that two nodes claim. Serf's agent that is in the minority shuts down. A node does not vote about itself."""
        if name == self._name:
            return None
        member = self._member(name)
        if member is None:
            return bytes((_CONFLICT_RESPONSE,)) + pack(None)
        names = ("ProtocolMin", "ProtocolMax", "ProtocolCur", "DelegateMin", "DelegateMax", "DelegateCur")
        known = {
            "Name": member.name,
            "Addr": pack_host(member.address[0]),
            "Port": member.address[1],
            "Tags": member.tags,
            "Status": _STATUS[member.state],
            **dict(zip(names, member.versions, strict=False)),
        }
        return bytes((_CONFLICT_RESPONSE,)) + pack(known)

    def _obey(self, verb: str, fields: dict[Value, Value]) -> dict[str, object]:
        """Changes the keyring as the query says, and returns the answer's fields."""
        keyring = self._keyring
        if keyring is None:
            return {"Result": False, "Message": "this node has no keyring", "Keys": []}
        try:
            if verb != "list-keys":
                request, _ = unpack_fields(take_bytes(fields, b"Payload", 1024), 1)
                key = take_bytes(request, b"Key", 64)
                {"install-key": keyring.install, "use-key": keyring.use, "remove-key": keyring.remove}[verb](key)
        except (ConfigurationError, WireError, KeyError) as error:
            return {"Result": False, "Message": str(error), "Keys": []}
        keys = [format_key(key) for key in keyring.keys] if verb == "list-keys" else []
        return {"Result": True, "Message": "", "Keys": keys}


class SerfLayer:
    """Handles the messages of Serf's layer for one node: takes part in intents, obeys key queries, passes on the rest."""

    def __init__(self, pool: SwimState, keyring: Keyring | None) -> None:
        self._pool = pool
        self.clock = SerfClock()
        self._queries = SerfQueries(pool.me.name, keyring, pool.roster.get)

    def hear(self, message: User) -> None:
        """Handles one user message."""
        try:
            intent = decode_intent(message.payload)
            if intent is not None:
                self._hear_intent(message, intent)
            elif self._queries.is_news(message.payload):
                self._hear_query(message)
        except WireError:
            self._pool.counters.malformed += 1

    def _hear_intent(self, message: User, intent: Intent) -> None:
        me, fresh = self._pool.me, intent.time >= self.clock.time
        self.clock.witness(intent.time)
        if intent.leaves and intent.node == me.name and not self._pool.leaving:
            # `serf force-leave`, or a former life of ours, says that we leave. We contradict it.
            self._say(self.clock.stay(me.name))
        elif fresh:
            self._say(message.payload)

    def _hear_query(self, message: User) -> None:
        replies, forward = self._queries.answer(message.payload)
        if forward:
            self._say(message.payload)
        for reply in replies:
            self._pool.send_parts(reply.to, [encode(User(reply.payload))])

    def say_leaving(self) -> None:
        """Tells the pool's Serf agents that this node leaves on purpose."""
        self._say(self.clock.leave(self._pool.me.name))

    def _say(self, payload: bytes) -> None:
        self._pool.queue.put_unnamed(encode(User(payload)))

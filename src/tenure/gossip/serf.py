"""The part of Serf's own layer that a member of its pool needs: intents to leave or stay, their clock, and queries about keys.

Serf shows a node as "left" only when its intent to leave came before memberlist's "dead", with a Lamport time above the last one about that node.
`serf keys -install`, `-use`, `-remove` and `-list` reach our nodes as they reach agents: gossip carries a query to everybody, and each node answers
the asker directly. A sender of such a query holds a key of the pool already. Other events and queries belong to Serf's applications: we pass
them on and do not answer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from msgspec import Struct

from tenure.errors import ConfigurationError, WireError
from tenure.gossip.encodings import Value, pack, unpack
from tenure.gossip.messages import Address, User
from tenure.gossip.sealing import Keyring, format_key
from tenure.gossip.state import SwimState
from tenure.gossip.wire import encode, take_bytes, take_name, take_text, take_uint, unpack_fields, unpack_host

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


_EVENT, _QUERY, _RESPONSE, _KEY_RESPONSE = 3, 4, 5, 8
_PREFIX = "_serf_"
_NO_BROADCAST = 2
REMEMBERED = 512


class KeyQueryReply(NamedTuple):
    """The answer to a query about keys, and the address of the asker."""

    to: Address
    payload: bytes


class SerfQueries:
    """Answers queries about keys. It remembers the messages that it has seen, so that each is passed on and obeyed once."""

    def __init__(self, name: str, keyring: Keyring | None) -> None:
        self._name, self._keyring = name, keyring
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def is_news(self, payload: bytes) -> bool:
        """Returns True for one of Serf's events or queries that is seen for the first time."""
        if not payload or payload[0] not in (_EVENT, _QUERY) or payload in self._seen:
            return False
        self._seen[payload] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return True

    def answer(self, payload: bytes) -> tuple[KeyQueryReply | None, bool]:
        """Returns the answer to a key query, if it is one, and whether the message should be passed on."""
        if payload[0] != _QUERY:
            return None, True
        fields, _ = unpack_fields(payload, 1)
        forward = not take_uint(fields, b"Flags") & _NO_BROADCAST
        query = take_text(fields, b"Name", 512)
        if not query.startswith(_PREFIX) or not query.endswith(("-key", "-keys")):
            return None, forward
        address = unpack_host(take_bytes(fields, b"Addr", 16)), take_uint(fields, b"Port", 0xFFFF)
        response = {
            "LTime": take_uint(fields, b"LTime", _MOST_TIME),
            "ID": take_uint(fields, b"ID"),
            "From": self._name,
            "Flags": 0,
            "Payload": bytes((_KEY_RESPONSE,)) + pack(self._obey(query.removeprefix(_PREFIX), fields)),
        }
        return KeyQueryReply(address, bytes((_RESPONSE,)) + pack(response)), forward

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
        self._queries = SerfQueries(pool.me.name, keyring)

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
        reply, forward = self._queries.answer(message.payload)
        if forward:
            self._say(message.payload)
        if reply is not None:
            self._pool.send_parts(reply.to, [encode(User(reply.payload))])

    def say_leaving(self) -> None:
        """Tells the pool's Serf agents that this node leaves on purpose."""
        self._say(self.clock.leave(self._pool.me.name))

    def _say(self, payload: bytes) -> None:
        self._pool.queue.put_unnamed(encode(User(payload)))

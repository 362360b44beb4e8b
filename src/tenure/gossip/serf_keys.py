"""Serf's key queries: `serf keys -install`, `-use`, `-remove` and `-list` reach our nodes as they reach agents.

Serf sends them as queries, which gossip carries to everybody; each node answers the asker directly. Who can send one holds a
key of the pool already. Other queries and events are Serf's applications' business: they are passed on, and not answered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from tenure.errors import ConfigurationError, WireError
from tenure.gossip.keyring import Keyring, format_key
from tenure.gossip.messages import Address
from tenure.gossip.msgpack import Value, pack
from tenure.gossip.wire import take_bytes, take_text, take_uint, unpack_fields, unpack_host

_EVENT, _QUERY, _RESPONSE, _KEY_RESPONSE = 3, 4, 5, 8
_PREFIX = "_serf_"
_NO_BROADCAST = 2
_MOST_TIME = 0xFFFFFFFFFFFFFFFF
REMEMBERED = 512


class Reply(NamedTuple):
    """What to send to whom."""

    to: Address
    payload: bytes


class SerfQueries:
    """Remembers what it has seen, so that each query is passed on and obeyed once."""

    def __init__(self, name: str, keyring: Keyring | None) -> None:
        self._name, self._keyring = name, keyring
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def is_news(self, payload: bytes) -> bool:
        """Whether this is one of Serf's events or queries, seen for the first time, and to be passed on."""
        if not payload or payload[0] not in (_EVENT, _QUERY) or payload in self._seen:
            return False
        self._seen[payload] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return True

    def answer(self, payload: bytes) -> tuple[Reply | None, bool]:
        """The answer to a key query, and whether the message should be passed on."""
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
        return Reply(address, bytes((_RESPONSE,)) + pack(response)), forward

    def _obey(self, verb: str, fields: dict[Value, Value]) -> dict[str, object]:
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

"""The bytes of memberlist's messages: from a message to bytes, and back.

A message is a type byte and a msgpack map with Go's field names. Decoders ignore unknown fields, so health can travel in two extra fields of ping and ack.
`sealing` turns messages into datagrams, `stream` reads streams. Input is never trusted: anything that does not fit is a `WireError`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache

from tenure.errors import WireError
from tenure.gossip.encodings import Value, pack_map_head, pack_raw, pack_uint, unpack
from tenure.gossip.messages import (
    MAX_HEALTH_BYTES,
    MAX_META_BYTES,
    MAX_NAME_BYTES,
    Ack,
    Address,
    Alive,
    Dead,
    IndirectPing,
    Kind,
    MemberState,
    Message,
    NodeState,
    Ping,
    PingNack,
    PushPull,
    StreamRefusal,
    Suspect,
    User,
)


def _key(name: str) -> bytes:
    return pack_raw(name.encode())


_SEQ, _NODE, _FROM, _INCARNATION = _key("SeqNo"), _key("Node"), _key("From"), _key("Incarnation")
_SOURCE_ADDR, _SOURCE_PORT, _SOURCE_NODE = _key("SourceAddr"), _key("SourcePort"), _key("SourceNode")
_TARGET, _PORT, _NACK, _ADDR = _key("Target"), _key("Port"), _key("Nack"), _key("Addr")
_META, _VSN, _PAYLOAD, _NAME, _STATE = _key("Meta"), _key("Vsn"), _key("Payload"), _key("Name"), _key("State")
# These two fields are ours. Their names are short because each probe carries them; Go's decoder skips fields that it does not know.
_HEALTH, _WALL = _key("TnH"), _key("TnT")
# By number: a lookup by a member of `Kind` would hash its name.
_TYPES, _MAPS = tuple(bytes((kind,)) for kind in range(16)), tuple(pack_map_head(size) for size in range(16))
_NIL, _TRUTHS = b"\xc0", (b"\xc2", b"\xc3")


@lru_cache(maxsize=8192)
def pack_host(host: str) -> bytes:
    """Returns the bytes of an address. IPv4 has 4 bytes: memberlist takes the mapped form of 16 bytes for another address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise WireError(f"{host!r} is no IP address; resolve host names before gossip sees them") from error
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed


@lru_cache(maxsize=8192)
def unpack_host(packed: bytes) -> str:
    """Returns the text of an address of 4 or 16 bytes. A mapped IPv4 address becomes that IPv4 address."""
    if len(packed) not in (4, 16):
        raise WireError(f"an address has {len(packed)} bytes, not 4 or 16")
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.compressed
    return address.compressed


@lru_cache(maxsize=8192)
def _raw_text(text: str) -> bytes:
    return pack_raw(text.encode())


def _source(source: Address | None, node: str) -> tuple[bytes, ...]:
    """Returns the fields that name the sender of a ping."""
    if source is None:
        return (_SOURCE_NODE, _raw_text(node)) if node else ()
    host = pack_raw(pack_host(source[0]))
    return (_SOURCE_ADDR, host, _SOURCE_PORT, pack_uint(source[1]), _SOURCE_NODE, _raw_text(node))


def _extras(health: bytes, wall_us: int = 0) -> tuple[bytes, ...]:
    """Returns our own fields."""
    extras = (_HEALTH, pack_raw(health)) if health else ()
    return (*extras, _WALL, pack_uint(wall_us)) if wall_us else extras


def _message(kind: Kind, *fields: bytes) -> bytes:
    """Returns a message whose fields are given as a key and its value in turn."""
    return b"".join((_TYPES[kind], _MAPS[len(fields) // 2], *fields))


def _address(address: Address, host: bytes = _ADDR) -> tuple[bytes, ...]:
    return host, pack_raw(pack_host(address[0])), _PORT, pack_uint(address[1])


def encode(message: Message) -> bytes:
    """Returns the bytes of a message in a datagram."""
    match message:
        case Ping(seq=seq, node=node, source=source, source_node=source_node, health=health):
            head = (_SEQ, pack_uint(seq), _NODE, _raw_text(node))
            return _message(Kind.PING, *head, *_source(source, source_node), *_extras(health))
        case Ack(seq=seq, payload=payload):
            content = pack_raw(payload) if payload else _NIL
            extras = _extras(message.health, message.wall_us)
            return _message(Kind.ACK, _SEQ, pack_uint(seq), _PAYLOAD, content, *extras)
        case Suspect(incarnation=incarnation, node=node, origin=origin):
            return _accusation(Kind.SUSPECT, incarnation, node, origin)
        case Dead(incarnation=incarnation, node=node, origin=origin):
            return _accusation(Kind.DEAD, incarnation, node, origin)
        case Alive(incarnation=incarnation, node=node, address=address, meta=meta, versions=versions):
            head = (_INCARNATION, pack_uint(incarnation), _NODE, _raw_text(node))
            return _message(Kind.ALIVE, *head, *_address(address), _META, pack_raw(meta), _VSN, pack_raw(versions))
        case IndirectPing(seq=seq, target=target, node=node):
            asked = (_SEQ, pack_uint(seq), *_address(target, _TARGET), _NODE, _raw_text(node))
            asker = _source(message.source, message.source_node)
            return _message(Kind.INDIRECT_PING, *asked, _NACK, _TRUTHS[message.nack], *asker)
        case PingNack(seq=seq):
            return _message(Kind.NACK, _SEQ, pack_uint(seq))
        case User(payload=payload):
            return _TYPES[Kind.USER] + payload
        case StreamRefusal(error=error):
            return _message(Kind.ERROR, _key("Error"), pack_raw(error.encode()))


def _accusation(kind: Kind, incarnation: int, node: str, origin: str) -> bytes:
    return _message(kind, _INCARNATION, pack_uint(incarnation), _NODE, _raw_text(node), _FROM, _raw_text(origin))


def encode_push_pull(state: PushPull) -> bytes:
    """Returns the bytes of a push/pull on a stream: a head, one map for each node, and the raw user state."""
    counts = (_key("Nodes"), pack_uint(len(state.nodes)), _key("UserStateLen"), pack_uint(len(state.user_state)))
    parts = [_message(Kind.PUSH_PULL, *counts, _key("Join"), _TRUTHS[state.join])]
    for node in state.nodes:
        parts += (_MAPS[7], _NAME, _raw_text(node.name), *_address(node.address))
        parts += (_META, pack_raw(node.meta), _INCARNATION, pack_uint(node.incarnation))
        parts += (_STATE, pack_uint(node.state), _VSN, pack_raw(node.versions))
    parts.append(state.user_state)
    return b"".join(parts)


def encode_compressed(packed: bytes) -> bytes:
    """Returns the message that carries compressed bytes. Algorithm 0 is LZW, and there is no other."""
    return _message(Kind.COMPRESS, _key("Algo"), pack_uint(0), _key("Buf"), pack_raw(packed))


def unpack_fields(body: bytes, at: int) -> tuple[dict[Value, Value], int]:
    """Returns the map that starts at `at`, and the position after it."""
    fields, end = unpack(body, at)
    if not isinstance(fields, dict):
        raise WireError("a message is not a msgpack map")
    return fields, end


def take_uint(fields: dict[Value, Value], key: bytes, most: int = 0xFFFFFFFF) -> int:
    """Returns a number from 0 to `most`. An absent field is 0, as in Go."""
    value = fields.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise WireError(f"{key.decode()} is {value!r}, not a number from 0 to {most}")
    return value


def take_bytes(fields: dict[Value, Value], key: bytes, most: int) -> bytes:
    """Returns raw bytes, at most `most` of them. An absent field and nil are empty."""
    value = fields.get(key)
    if value is None:
        return b""
    if not isinstance(value, bytes):
        raise WireError(f"{key.decode()} is not raw bytes")
    if len(value) > most:
        raise WireError(f"{key.decode()} has {len(value)} bytes; at most {most} are allowed")
    return value


def take_text(fields: dict[Value, Value], key: bytes, most: int = MAX_NAME_BYTES) -> str:
    """Returns text, which must be UTF-8."""
    try:
        return take_bytes(fields, key, most).decode()
    except UnicodeDecodeError as error:
        raise WireError(f"{key.decode()} is not UTF-8") from error


def take_name(fields: dict[Value, Value], key: bytes) -> str:
    """Returns the name of a node, which is never empty."""
    name = take_text(fields, key)
    if not name:
        raise WireError(f"{key.decode()} is empty, and must name a node")
    return name


def take_bool(fields: dict[Value, Value], key: bytes) -> bool:
    """Returns True where the field is true. An absent field is False."""
    return fields.get(key) is True


def _take_address(fields: dict[Value, Value], host: bytes, port: bytes) -> Address:
    return unpack_host(take_bytes(fields, host, 16)), take_uint(fields, port, 0xFFFF)


def _take_source(fields: dict[Value, Value]) -> Address | None:
    if not take_bytes(fields, b"SourceAddr", 16) or not take_uint(fields, b"SourcePort", 0xFFFF):
        return None
    return _take_address(fields, b"SourceAddr", b"SourcePort")


def _decode_ping(fields: dict[Value, Value]) -> Ping:
    return Ping(
        take_uint(fields, b"SeqNo"),
        take_text(fields, b"Node"),
        _take_source(fields),
        take_text(fields, b"SourceNode"),
        take_bytes(fields, b"TnH", MAX_HEALTH_BYTES),
    )


def _decode_indirect(fields: dict[Value, Value]) -> IndirectPing:
    return IndirectPing(
        take_uint(fields, b"SeqNo"),
        _take_address(fields, b"Target", b"Port"),
        take_text(fields, b"Node"),
        take_bool(fields, b"Nack"),
        _take_source(fields),
        take_text(fields, b"SourceNode"),
    )


def _decode_ack(fields: dict[Value, Value]) -> Ack:
    return Ack(
        take_uint(fields, b"SeqNo"),
        take_bytes(fields, b"Payload", 0xFFFF),
        take_bytes(fields, b"TnH", MAX_HEALTH_BYTES),
        take_uint(fields, b"TnT", 0xFFFFFFFFFFFFFFFF),
    )


def _take_accusation(fields: dict[Value, Value]) -> tuple[int, str, str]:
    return take_uint(fields, b"Incarnation"), take_name(fields, b"Node"), take_text(fields, b"From")


def _take_versions(fields: dict[Value, Value]) -> bytes:
    versions = take_bytes(fields, b"Vsn", 16)
    if versions and len(versions) < 6:
        raise WireError(f"Vsn has {len(versions)} bytes, not 6")
    return versions[:6]


def _decode_alive(fields: dict[Value, Value]) -> Alive:
    return Alive(
        take_uint(fields, b"Incarnation"),
        take_name(fields, b"Node"),
        _take_address(fields, b"Addr", b"Port"),
        take_bytes(fields, b"Meta", MAX_META_BYTES),
        _take_versions(fields),
    )


_DECODERS: dict[int, Callable[[dict[Value, Value]], Message]] = {
    Kind.PING: _decode_ping,
    Kind.INDIRECT_PING: _decode_indirect,
    Kind.ACK: _decode_ack,
    Kind.NACK: lambda fields: PingNack(take_uint(fields, b"SeqNo")),
    Kind.SUSPECT: lambda fields: Suspect(*_take_accusation(fields)),
    Kind.ALIVE: _decode_alive,
    Kind.DEAD: lambda fields: Dead(*_take_accusation(fields)),
    Kind.ERROR: lambda fields: StreamRefusal(take_text(fields, b"Error", 4096)),
}


def decode(body: bytes) -> Message:
    """Returns the message in `body`. Raises a `WireError` that says why there is none."""
    if not body:
        raise WireError("a message is empty")
    if body[0] == Kind.USER:
        return User(body[1:])
    decoder = _DECODERS.get(body[0])
    if decoder is None:
        raise WireError(f"a message has the unknown type {body[0]}")
    fields, _ = unpack_fields(body, 1)
    return decoder(fields)


def decode_node_state(fields: dict[Value, Value]) -> NodeState:
    """Returns one line of a push/pull."""
    return NodeState(
        take_name(fields, b"Name"),
        _take_address(fields, b"Addr", b"Port"),
        take_uint(fields, b"Incarnation"),
        MemberState(take_uint(fields, b"State", 3)),
        take_bytes(fields, b"Meta", MAX_META_BYTES),
        _take_versions(fields),
    )

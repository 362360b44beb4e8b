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


def _source(source: Address | None, node: str) -> tuple[int, bytes]:
    """Returns the number of the fields that name the sender of a ping, and their bytes."""
    name = _SOURCE_NODE + _raw_text(node)
    if source is None:
        return (1, name) if node else (0, b"")
    return 3, b"".join((_SOURCE_ADDR, pack_raw(pack_host(source[0])), _SOURCE_PORT, pack_uint(source[1]), name))


def _extras(health: bytes, wall_us: int) -> tuple[int, bytes]:
    """Returns the number of our own fields, and their bytes."""
    count, body = 0, b""
    if health:
        count, body = 1, _HEALTH + pack_raw(health)
    if wall_us:
        count, body = count + 1, body + _WALL + pack_uint(wall_us)
    return count, body


def encode(message: Message) -> bytes:
    """Returns the bytes of a message in a datagram."""
    match message:
        case Ping():
            return _encode_ping(message)
        case Ack(seq=seq, payload=payload):
            count, extras = _extras(message.health, message.wall_us)
            body = b"\x02" + pack_map_head(2 + count) + _SEQ + pack_uint(seq) + _PAYLOAD
            return body + (pack_raw(payload) if payload else b"\xc0") + extras
        case Suspect(incarnation=incarnation, node=node, origin=origin):
            return _encode_accusation(b"\x03\x83", incarnation, node, origin)
        case Dead(incarnation=incarnation, node=node, origin=origin):
            return _encode_accusation(b"\x05\x83", incarnation, node, origin)
        case Alive():
            return _encode_alive(message)
        case IndirectPing():
            return _encode_indirect(message)
        case PingNack(seq=seq):
            return b"\x0b\x81" + _SEQ + pack_uint(seq)
        case User(payload=payload):
            return b"\x08" + payload
        case StreamRefusal(error=error):
            return b"\x0d\x81" + _key("Error") + pack_raw(error.encode())


def _encode_ping(ping: Ping) -> bytes:
    extra_count, extras = _extras(ping.health, 0)
    source_count, source = _source(ping.source, ping.source_node)
    head = b"\x00" + pack_map_head(2 + source_count + extra_count)
    return b"".join((head, _SEQ, pack_uint(ping.seq), _NODE, _raw_text(ping.node), source, extras))


def _encode_indirect(ping: IndirectPing) -> bytes:
    source_count, source = _source(ping.source, ping.source_node)
    return b"".join(
        (
            b"\x01",
            pack_map_head(5 + source_count),
            _SEQ,
            pack_uint(ping.seq),
            _TARGET,
            pack_raw(pack_host(ping.target[0])),
            _PORT,
            pack_uint(ping.target[1]),
            _NODE,
            _raw_text(ping.node),
            _NACK,
            b"\xc3" if ping.nack else b"\xc2",
            source,
        )
    )


def _encode_accusation(head: bytes, incarnation: int, node: str, origin: str) -> bytes:
    return b"".join(
        (head, _INCARNATION, pack_uint(incarnation), _NODE, _raw_text(node), _FROM, _raw_text(origin)),
    )


def _encode_alive(alive: Alive) -> bytes:
    return b"".join(
        (
            b"\x04\x86",
            _INCARNATION,
            pack_uint(alive.incarnation),
            _NODE,
            _raw_text(alive.node),
            _ADDR,
            pack_raw(pack_host(alive.address[0])),
            _PORT,
            pack_uint(alive.address[1]),
            _META,
            pack_raw(alive.meta),
            _VSN,
            pack_raw(alive.versions),
        )
    )


def encode_push_pull(state: PushPull) -> bytes:
    """Returns the bytes of a push/pull on a stream: a head, one map for each node, and the raw user state."""
    parts = [
        b"\x06\x83",
        _key("Nodes"),
        pack_uint(len(state.nodes)),
        _key("UserStateLen"),
        pack_uint(len(state.user_state)),
        _key("Join"),
        b"\xc3" if state.join else b"\xc2",
    ]
    for node in state.nodes:
        parts += (
            b"\x87",
            _NAME,
            _raw_text(node.name),
            _ADDR,
            pack_raw(pack_host(node.address[0])),
            _PORT,
            pack_uint(node.address[1]),
            _META,
            pack_raw(node.meta),
            _INCARNATION,
            pack_uint(node.incarnation),
            _STATE,
            pack_uint(node.state),
            _VSN,
            pack_raw(node.versions),
        )
    parts.append(state.user_state)
    return b"".join(parts)


def encode_stream_user(payload: bytes) -> bytes:
    """Returns the bytes of a user message on a stream, where it has to say its length."""
    return b"\x08" + pack_map_head(1) + _key("UserMsgLen") + pack_uint(len(payload)) + payload


def encode_compressed(packed: bytes) -> bytes:
    """Returns the message that carries compressed bytes. Algorithm 0 is LZW, and there is no other."""
    return b"\x09\x82" + _key("Algo") + b"\x00" + _key("Buf") + pack_raw(packed)


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


def _decode_nack(fields: dict[Value, Value]) -> PingNack:
    return PingNack(take_uint(fields, b"SeqNo"))


def _decode_suspect(fields: dict[Value, Value]) -> Suspect:
    return Suspect(take_uint(fields, b"Incarnation"), take_name(fields, b"Node"), take_text(fields, b"From"))


def _decode_dead(fields: dict[Value, Value]) -> Dead:
    return Dead(take_uint(fields, b"Incarnation"), take_name(fields, b"Node"), take_text(fields, b"From"))


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


def _decode_refused(fields: dict[Value, Value]) -> StreamRefusal:
    return StreamRefusal(take_text(fields, b"Error", 4096))


_DECODERS: dict[int, Callable[[dict[Value, Value]], Message]] = {
    Kind.PING: _decode_ping,
    Kind.INDIRECT_PING: _decode_indirect,
    Kind.ACK: _decode_ack,
    Kind.NACK: _decode_nack,
    Kind.SUSPECT: _decode_suspect,
    Kind.ALIVE: _decode_alive,
    Kind.DEAD: _decode_dead,
    Kind.ERROR: _decode_refused,
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

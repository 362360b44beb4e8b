"""Messages and streams of gossip, and small damages to them."""

from __future__ import annotations

from random import Random

from tenure.gossip.encodings import pack_map_head, pack_raw, pack_uint
from tenure.gossip.messages import (
    Ack,
    Alive,
    Dead,
    IndirectPing,
    MemberState,
    NodeState,
    Ping,
    PingNack,
    PushPull,
    StreamRefusal,
    Suspect,
    User,
)
from tenure.gossip.wire import encode, encode_push_pull


def encode_stream_user(payload: bytes) -> bytes:
    """Returns the bytes of a user message on a stream, where it has to say its length. Serf sends them; Tenure only reads them."""
    return b"\x08" + pack_map_head(1) + pack_raw(b"UserMsgLen") + pack_uint(len(payload)) + payload


HERE = ("127.0.0.1", 7946)
EXAMPLES = [
    encode(message)
    for message in (
        Ping(7, "web-1", HERE, "web-2", b"health"),
        IndirectPing(8, HERE, "web-1", True, HERE, "web-2"),
        Ack(7, b"\x01coordinate", b"health", 5),
        PingNack(8),
        Suspect(3, "web-1", "web-2"),
        Alive(4, "web-1", HERE, b"\xff\x81\xa4role\xa3web"),
        Dead(4, "web-1", "web-1"),
        User(b"\x00\x83\xa5LTime\x01\xa4Node\xa1a\xa5Prune\xc2"),
        StreamRefusal("no"),
    )
]
STREAMS = [
    encode_push_pull(
        PushPull(tuple(NodeState(f"n{i}", HERE, i, MemberState(i % 4), b"m" * i) for i in range(6)), True, b"u")
    ),
    encode_stream_user(b"hello"),
    *EXAMPLES[:3],
]


def mutate(random: Random, data: bytes) -> bytes:
    """One to four small damages: a flipped bit, a changed byte, a cut, a repeat, an insertion, a splice."""
    out = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(out) + 1)
        match random.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << random.randrange(8)
            case 1 if at < len(out):
                out[at] = random.choice((0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xDB, 0xDF, 0xFF))
            case 2:
                del out[at:]
            case 3:
                out[at:at] = out[max(0, at - random.randrange(20)) : at]
            case 4:
                out[at:at] = random.randbytes(random.randrange(8))
            case _:
                out[at:] = random.choice(EXAMPLES)[random.randrange(10) :]
    return bytes(out)

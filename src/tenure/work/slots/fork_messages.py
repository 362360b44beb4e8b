"""The messages between a supervisor and its fork server, over a socket that keeps them apart.

A request is one byte with a descriptor: the slot's end of its channel. Requests are answered in the order in which they were sent.
"""

from __future__ import annotations

import msgspec

SERVER_NAME, SLOT_NAME = "tenure-forks", "tenure-slot"
"""The names of the processes, as `ps -o comm` shows them."""
MOST_MESSAGE_BYTES = 1 << 17
FORK = b"f"
"""The request."""


class PrepareModules(msgspec.Struct, frozen=True, array_like=True):
    """The first message to the server."""

    modules: list[str]
    supervisor: int
    memory_limit_mb: int | None = None


class ServerReady(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The modules are imported: requests are answered in a moment from now on."""


class SlotForked(msgspec.Struct, frozen=True, array_like=True, tag="forked"):
    """Answers the oldest request: this process is the slot."""

    pid: int


class ForkRefused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """Answers the oldest request: the server itself becomes the slot, and answers no other one."""

    reason: str
    """Why a fork is unsafe; empty where the modules cannot be imported, which the slot tells."""


class ForkFailed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """Answers the oldest request: the machine gives us no process now."""

    reason: str


ServerAnswer = ServerReady | SlotForked | ForkRefused | ForkFailed
_decode: msgspec.msgpack.Decoder[ServerAnswer] = msgspec.msgpack.Decoder(ServerAnswer)


def read_answer(message: bytes) -> ServerAnswer | None:
    """Returns an answer; None for bytes that are none. The user's modules run in the server, and can write anything."""
    try:
        return _decode.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

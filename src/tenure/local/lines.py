"""The messages between a program and the host process of its datacenter: JSON lines over a socket pair.

The socket is also the lifeline: a host whose other end is gone hands over its work and ends, however the program died.
"""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from tenure.work.line_channel import LineChannel, decoder_of

PRIORITIES = (1, 0, -1)
"""The priorities that the built-in worker serves, the highest first. Other priorities need a `tenure worker --priority`."""


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """The first line: what to run. Secrets travel here, not on a command line."""

    engine_url: str
    name: str
    manager: bool = True
    modules: list[str] = []
    """Empty: no worker."""
    queue: str = "default"
    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    term_s: float = 5.0
    datacenter: str = "local"
    """The name that gates use for this manager's datacenter."""
    datacenters: dict[str, list[str]] = {}
    """Managers by datacenter. Not empty: a gate before them, in the place of a manager."""
    settings: dict[str, Any] = {}
    """The settings of the slots."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Hand over what runs, and end."""


class Listening(msgspec.Struct, frozen=True, tag="listening"):
    """The manager answers here."""

    address: str


class Serving(msgspec.Struct, frozen=True, tag="serving"):
    """Every slot of the worker has imported its modules."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The host cannot do what it was told, and ends."""

    reason: str
    trace: str = ""


class HostSaid(msgspec.Struct, frozen=True, tag="said"):
    """A line for a log."""

    text: str


FromHost = Listening | Serving | Failed | HostSaid
ToHost = Begin | Stop
_from_host: msgspec.json.Decoder[FromHost] = decoder_of(FromHost)
_to_host: msgspec.json.Decoder[ToHost] = decoder_of(ToHost)


def channel_to_host(end: socket.socket) -> LineChannel[FromHost]:
    """Returns the program's end of the line. It hears what the host sends."""
    return LineChannel(end, _from_host, unreadable=HostSaid)


def channel_of_host(end: socket.socket) -> LineChannel[ToHost]:
    """Returns the host's end of the line. It hears what the program sends."""
    return LineChannel(end, _to_host)

"""One connection to the server: redis-py connects, logs in and speaks TLS, hiredis packs and parses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
import redis.exceptions as r
from redis.connection import Connection, SSLConnection

from tenure.engines.redis.url import RedisSettings

Argument = str | bytes | int
Command = Sequence[Argument]
_pack: Callable[[Any], bytes] = hiredis.pack_command  # its stub allows a tuple of one only


class Session:
    """Opened by making it. Every method raises redis-py's errors; after one that lost the connection it is of no use."""

    def __init__(self, settings: RedisSettings) -> None:
        kind: Any = SSLConnection if settings.tls else Connection  # redis-py's connections are not typed
        self._connection = kind(**settings.connection)
        self._connection.connect()

    def send(self, *commands: Command) -> None:
        """Several commands in one go: each will be answered."""
        packed = [_pack(tuple(command)) for command in commands]
        self._connection.send_packed_command(packed if len(packed) == 1 else [b"".join(packed)], check_health=False)

    def read(self) -> Any:
        return self._connection.read_response()

    def ask(self, *words: Argument) -> Any:
        """One command and its answer."""
        self.send(words)
        return self.read()

    def pending(self, within_s: float = 0) -> bool:
        """Returns True when bytes can be read, at once or within the given seconds."""
        return bool(self._connection.can_read(within_s))

    @property
    def connected(self) -> bool:
        return bool(self._connection.is_connected)

    @property
    def fresh(self) -> bool:
        """Returns True when the session can be used: an idle one on which bytes wait was closed by the server, or is out of step."""
        try:
            return not self.pending()
        except r.RedisError:
            return False

    def fileno(self) -> int:
        return int(self._connection._sock.fileno())

    def close(self) -> None:
        with contextlib.suppress(r.RedisError, OSError):
            self._connection.disconnect()

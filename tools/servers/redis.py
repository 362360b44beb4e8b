"""A private Valkey or Redis. By default it appends to a file and syncs every write to it, so that it can be killed."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Mapping

from tools.servers import binaries
from tools.servers.process import Server

DURABLE = {"appendonly": "yes", "appendfsync": "always", "save": ""}
VOLATILE = {"appendonly": "no", "save": ""}


class Valkey(Server):
    """Valkey 9. `settings` are redis.conf lines over the durable defaults; `VOLATILE` forgets all when it ends."""

    name = "valkey"
    program = "valkey-server"

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        password: str | None = None,
        replica_of: Valkey | None = None,
    ) -> None:
        super().__init__()
        self.settings = dict(DURABLE if settings is None else settings)
        self.password = password
        self.replica_of = replica_of
        self._databases = itertools.count()

    @property
    def url(self) -> str:
        return self.url_of(0)

    def url_of(self, database: int, *, port: int | None = None) -> str:
        """The URL of one numbered database; through a proxy, when its port is given."""
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}{self.host}:{port or self.port}/{database}"

    def command(self, *words: str) -> str:
        """Send one command on a connection of its own; the first chunk of the answer, as it came over the wire."""
        with socket.create_connection((self.host, self.port), timeout=5) as connection:
            if self.password:
                connection.sendall(f"AUTH {self.password}\r\n".encode())
                connection.recv(1024)
            encoded = "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
            connection.sendall(f"*{len(words)}\r\n{encoded}".encode())
            return connection.recv(65_536).decode(errors="replace")

    def _prepare(self) -> None:
        pass

    def _command(self) -> list[str]:
        command = [str(binaries.find(self.program)), "--port", str(self.port), "--bind", self.host]
        command += ["--dir", str(self.folder), "--daemonize", "no", "--databases", "16", "--protected-mode", "no"]
        command += ["--repl-diskless-sync-delay", "0"]  # a replica need not wait for others that might come
        for name, value in self.settings.items():
            command += [f"--{name}", value]
        if self.password:
            command += ["--requirepass", self.password, "--masterauth", self.password]
        if self.replica_of is not None:
            command += ["--replicaof", self.replica_of.host, str(self.replica_of.port)]
        return command

    def _ready(self) -> bool:
        # A replica is ready when it has caught up once; until then its data are not there.
        if not self.command("PING").startswith("+PONG"):
            return False
        return self.replica_of is None or "master_link_status:up" in self.command("INFO", "replication")


class Redis(Valkey):
    """Redis 6.2, the oldest that the engine supports."""

    name = "redis"
    program = "redis-server"

"""A private Valkey or Redis. By default it appends to a file and syncs every write to it, so that it can be killed."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Mapping
from pathlib import Path

from tools.servers import binaries, packages
from tools.servers.process import Server, free_port
from tools.servers.tls import Certificate

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

    def _binary(self) -> Path:
        return binaries.find(self.program)

    def _command(self) -> list[str]:
        command = [str(self._binary()), "--port", str(self.port), "--bind", self.host]
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


class TlsRedis(Valkey):
    """Redis 7 from Debian, which speaks TLS on `tls_port`: the packages of the `.servers` environment are built without it."""

    name = "redis-tls"

    def __init__(self, tls: Certificate, *, password: str | None = None) -> None:
        super().__init__(password=password)
        self.tls = tls
        self.tls_port = 0

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self.tls_port = free_port()

    def _binary(self) -> Path:
        return packages.debian(*packages.REDIS) / "usr" / "bin" / "redis-server"

    def _command(self) -> list[str]:
        command = [*super()._command(), "--tls-port", str(self.tls_port), "--tls-auth-clients", "no"]
        command += ["--tls-cert-file", str(self.tls.certificate), "--tls-key-file", str(self.tls.key)]
        return [*command, "--tls-ca-cert-file", str(self.tls.certificate)]

    def _environment(self) -> dict[str, str]:
        return packages.with_libraries(packages.debian(*packages.REDIS))

"""PgBouncer from Debian, in transaction mode in front of a private PostgreSQL: each transaction may get another session."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg

from tools.servers import packages
from tools.servers.postgres import Postgres
from tools.servers.process import Server


class PgBouncer(Server):
    """`sessions` to the server for however many clients: with few, consecutive transactions of one client meet different ones."""

    name = "pgbouncer"
    refuses_root = True

    def __init__(self, server: Postgres, *, sessions: int = 3) -> None:
        super().__init__()
        self.server, self.sessions = server, sessions

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://tenure@{self.host}:{self.port}/{database}"

    def _prepare(self) -> None:
        # The package's folder is ours; the program runs as a user who may not get at it.
        copy = Path(shutil.copytree(packages.debian(*packages.PGBOUNCER) / "usr", self.folder / "usr", symlinks=True))
        for path in (copy, *copy.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755)

    def _command(self) -> list[str]:
        lines = [
            "[databases]",
            f"* = host={self.server.host} port={self.server.port} user=tenure",
            "[pgbouncer]",
            f"listen_addr = {self.host}",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = any",
            "pool_mode = transaction",
            f"default_pool_size = {self.sessions}",
            "max_client_conn = 500",
            "server_round_robin = 1",  # so that a client does not get the same session again and again
            "ignore_startup_parameters = extra_float_digits,options",
        ]
        path = self.folder / "pgbouncer.ini"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o644)
        return [str(self.folder / "usr" / "sbin" / "pgbouncer"), str(path)]

    def _environment(self) -> dict[str, str]:
        return packages.with_libraries(self.folder)

    def _ready(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

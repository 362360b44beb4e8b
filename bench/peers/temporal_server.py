"""Temporal's development server: one process on a SQLite file, from the peer's own environment."""

from __future__ import annotations

import socket
from pathlib import Path

from tools.servers.process import Server


class TemporalServer(Server):
    name = "temporal"

    def __init__(self, environment: Path) -> None:
        super().__init__()
        self._program = environment / "bin" / "temporal"

    @property
    def url(self) -> str:
        return f"{self.host}:{self.port}"

    def _prepare(self) -> None:
        pass

    def _command(self) -> list[str]:
        command = [str(self._program), "server", "start-dev", "--ip", self.host, "--port", str(self.port)]
        return [*command, "--headless", "--db-filename", str(self.folder / "dev.db"), "--log-level", "error"]

    def _ready(self) -> bool:
        socket.create_connection((self.host, self.port), timeout=1).close()
        return True

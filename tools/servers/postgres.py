"""A private PostgreSQL: initialised in a folder under /tmp, run by an unprivileged user when we are root."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from tools.servers import binaries, packages
from tools.servers.process import CannotStart, Server, reachable_by_others, unprivileged
from tools.servers.tls import Certificate

# Processes are killed in tests, machines are not: what was written survives without waiting for a disk.
FAST = {"fsync": "off", "full_page_writes": "off"}


class Postgres(Server):
    """`settings` go to the server as they are; without any, it does not wait for the disk (see FAST)."""

    name = "postgres"
    refuses_root = True
    end_signal = signal.SIGINT  # "fast": ends sessions, does not wait for them
    crash_signal = signal.SIGQUIT  # "immediate": no checkpoint, but the children go too
    initial: tuple[str, ...] = ()
    """Further options of `initdb`."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        password: str | None = None,
        version: int | None = None,
        tls: Certificate | None = None,
    ) -> None:
        """`version` is another major one than the package of the `.servers` environment has; only those have TLS."""
        super().__init__()
        self.settings = dict(FAST if settings is None else settings)
        self.password, self.tls = password, tls
        self._version = version
        self._bin = Path()
        self._databases = itertools.count(1)

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, *, port: int | None = None) -> str:
        """The URL of one database; through a proxy, when its port is given."""
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        return f"postgresql://tenure{secret}@{self.host}:{port or self.port}/{database}"

    def new_database(self) -> str:
        """The name of a fresh, empty database: how tests on one server keep apart."""
        name = f"test_{os.getpid()}_{next(self._databases)}"
        self.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def execute(self, statement: sql.Composed | sql.SQL) -> None:
        """Run one administrator's statement, on a connection of its own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def version(self) -> str:
        done = subprocess.run([str(self._bin / "postgres"), "--version"], capture_output=True, text=True, check=True)
        return done.stdout.split()[-1]

    def _prepare(self) -> None:
        program = binaries.find("postgres") if self._version is None else packages.postgres(self._version)
        self._bin = self._reachable(program.parent)
        command = [str(self._bin / "initdb"), "-D", str(self.folder / "data"), "-U", "tenure"]
        command += ["-E", "UTF8", "--no-locale", "--no-sync"]
        if self.password:
            secret = self.folder / "secret"
            secret.write_text(self.password)
            command += ["-A", "scram-sha-256", f"--pwfile={secret}"]
            secret.chmod(0o644)  # the folder above is only the server's user's
        else:
            command += ["-A", "trust"]
        command, identity = self._as_its_user([*command, *self.initial])
        done = subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **identity,
        )
        if done.returncode != 0:
            raise CannotStart(f"postgres: initdb failed: {(done.stdout + done.stderr)[-800:].strip()}")
        if self.tls is not None:
            self._place_certificate(self.tls)

    def _place_certificate(self, tls: Certificate) -> None:
        """In its own folder and its user's own: the server refuses a key that others can read."""
        for setting, source in (("ssl_cert_file", tls.certificate), ("ssl_key_file", tls.key)):
            copy = Path(shutil.copy(source, self.folder / setting))
            copy.chmod(0o600)
            if user := unprivileged():
                os.chown(copy, *user)
            self.settings[setting] = str(copy)
        self.settings["ssl"] = "on"

    def _reachable(self, folder: Path) -> Path:
        """A copy of the programs where the unprivileged user can get at them, if it cannot where they are."""
        if unprivileged() is None or reachable_by_others(folder / "postgres"):
            return folder
        install, package = folder.parent, folder.parent.parent
        for source in (install, package.parent / f"{package.name}.libs"):
            if source.exists():
                shutil.copytree(source, self.folder / "programs" / source.relative_to(package.parent), symlinks=True)
        for path in (self.folder / "programs").rglob("*"):
            path.chmod(0o755)
        (self.folder / "programs").chmod(0o755)
        return self.folder / "programs" / folder.relative_to(package.parent)

    def _command(self) -> list[str]:
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        chosen = {
            "listen_addresses": self.host,
            "unix_socket_directories": "",
            "shared_buffers": "64MB",
            "max_connections": "120",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self.settings,
        }
        for name, value in chosen.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _ready(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _clean(self) -> None:
        # A postmaster that was killed leaves a shared memory segment of some bytes, named in its pid file.
        path = self.folder / "data" / "postmaster.pid"
        try:
            segment = int(path.read_text().splitlines()[6].split()[1])
        except (OSError, IndexError, ValueError):
            return
        ctypes.CDLL(None, use_errno=True).shmctl(segment, 0, None)

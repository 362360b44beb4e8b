"""From a `postgresql://` URL to settings: our own options, and the rest for libpq.

    postgresql://user:password@host:5432/database?schema=tenure&pool=10&notify=on&poll=0.25&timeout=30

Passwords may also come from PGPASSWORD or ~/.pgpass, and TLS from sslmode, sslrootcert and the like, in the URL or the
environment: libpq reads them, and nothing here repeats them.
"""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from tenure.engines.urls import Options, on_off, redact, seconds, whole
from tenure.errors import ConfigurationError

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LIBPQ = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}


class PostgresSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in a URL. `notify=False` is for transaction poolers: no LISTEN, no prepared statements, polling instead."""

    shown: str
    """The URL without secrets."""
    secret: str
    """The password, to be taken out of whatever a server or a library says; empty when there is none."""
    conninfo: dict[str, Any]
    schema: str = "tenure"
    pool: int = 10
    notify: bool = True
    poll_s: float = 0.25
    timeout_s: float = 30.0

    def __repr__(self) -> str:
        return f"PostgresSettings({self.shown})"  # a settings object that is logged must not tell the password


def read_url(url: str) -> PostgresSettings:
    options = Options(url)
    schema = options.take("schema", "tenure", _schema, "a name of small letters, digits and _, at most 63")
    pool = options.take("pool", 10, whole(1, 1_000), "a number of connections from 1 to 1,000")
    notify = options.take("notify", True, on_off, "on or off")
    poll_s = options.take("poll", 0.25, seconds(0.01, 60), "a number of seconds from 0.01 to 60")
    timeout_s = options.take("timeout", 30.0, seconds(0.1, 3_600), "a number of seconds from 0.1 to 3,600")
    rest = options.rest(_LIBPQ.__contains__)
    options.finish()
    parts = urlsplit(url)
    try:
        conninfo = {**conninfo_to_dict(f"postgresql://{parts.netloc}{parts.path}"), **rest}
    except psycopg.ProgrammingError:
        # Its text repeats the URL, with the password.
        raise ConfigurationError(
            f"{redact(url)} is not a URL that PostgreSQL's client understands",
            remedy="Write postgresql://user:password@host:port/database, with special characters percent-encoded",
        ) from None
    conninfo.setdefault("application_name", "tenure")
    # Half of what a call may take: then an attempt to connect ends before the call that waits for it gives up.
    conninfo.setdefault("connect_timeout", str(max(2, int(timeout_s / 2))))
    for name, value in (("keepalives_idle", 10), ("keepalives_interval", 5), ("keepalives_count", 3)):
        conninfo.setdefault(name, str(value))
    conninfo.setdefault("tcp_user_timeout", str(int(timeout_s * 1_000)))
    return PostgresSettings(
        shown=redact(url),
        secret=str(conninfo.get("password") or os.environ.get("PGPASSWORD") or ""),
        conninfo=conninfo,
        schema=schema,
        pool=pool,
        notify=notify,
        poll_s=poll_s,
        timeout_s=timeout_s,
    )


def _schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text) or text.startswith("pg_"):
        raise ValueError(text)
    return text

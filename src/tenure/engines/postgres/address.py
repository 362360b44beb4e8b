"""The server that a URL names: reads the URL into settings, and examines the server behind it for an operator.

    postgresql://user:password@host:5432/database?schema=tenure&pool=10&notify=on&poll=0.25&timeout=30

Our own options are read here, and the rest is for libpq. Passwords may also come from PGPASSWORD or ~/.pgpass, and TLS from sslmode,
sslrootcert and the like, in the URL or the environment: libpq reads them, and nothing here repeats them.

The examination looks at version, rights and settings, returns each finding with its remedy, and changes nothing.
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

from tenure.clock import Clock
from tenure.engines.contracts import Finding, Level
from tenure.engines.postgres.schema import VERSION, channel_prefix
from tenure.engines.sessions import clock_finding
from tenure.engines.urls import Options, on_off, redact, seconds, whole
from tenure.errors import ConfigurationError, EngineReadOnlyError, EngineRefusedError, EngineVersionError

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


OLDEST = 130_000
_OLD_TRANSACTION_S = 600
_NOTIFY_S = 2.0

ServerConnection = psycopg.Connection[Any]


def must_be_usable(session: ServerConnection) -> None:
    """Refuse a server on which nothing would work."""
    if session.info.server_version < OLDEST:
        raise EngineVersionError(
            f"the server is PostgreSQL {shown_version(session.info.server_version)}, and Tenure needs 13 or newer",
            remedy="Upgrade the server",
        )
    if session.info.parameter_status("server_encoding") not in ("UTF8", "UTF-8"):
        raise EngineRefusedError(
            f"the database's encoding is {session.info.parameter_status('server_encoding')}, and keys and names are UTF-8",
            remedy="CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
    if _one(session, "SELECT pg_is_in_recovery()"):
        raise EngineReadOnlyError(
            "the server is a standby, which takes no writes",
            remedy="Connect to the primary: list all hosts and add target_session_attrs=read-write",
        )


def examine(session: ServerConnection, settings: PostgresSettings, clock: Clock) -> list[Finding]:
    """Everything that `tenure doctor` shows."""
    version = session.info.server_version
    findings = [Finding(Level.OK, f"PostgreSQL {shown_version(version)}, schema {settings.schema!r} version {VERSION}")]
    findings += rights(session, settings)
    findings += durability(session)
    findings += housekeeping(session)
    findings += capacity(session, settings)
    findings += transport(session)
    findings += clocks(session, clock)
    findings += notifications(session, settings)
    return findings


def rights(session: ServerConnection, settings: PostgresSettings) -> list[Finding]:
    """May this user do to every table what the functions do?"""
    rows = session.execute(
        "SELECT c.relname, p.what FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p (what) "
        "WHERE n.nspname = %s AND c.relkind = 'r' AND NOT has_table_privilege(c.oid, p.what) ORDER BY 1, 2",
        (settings.schema,),
    ).fetchall()
    if not rows:
        return [Finding(Level.OK, "this user may read and write every table")]
    lacking = ", ".join(f"{what} on {table}" for table, what in rows)
    remedy = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {settings.schema} TO this user"
    return [Finding(Level.ERROR, f"this user lacks {lacking}", remedy)]


def durability(session: ServerConnection) -> list[Finding]:
    """Can a write that was acknowledged be lost?"""
    found = []
    names = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")
    values = {name: _one(session, "SELECT current_setting(%s)", name) for name in names}
    for name in ("fsync", "full_page_writes"):
        if values[name] == "off":
            fact = f"{name} is off: a crash of the server's machine can lose or damage everything"
            found.append(Finding(Level.ERROR, fact, f"Set {name} = on"))
    commit = values["synchronous_commit"]
    if commit == "off":
        fact = "synchronous_commit is off: a crash of the server loses what it acknowledged in its last moments"
        found.append(Finding(Level.ERROR, fact, "Set synchronous_commit = on, for this user or the server"))
    standbys = _one(session, "SELECT count(*) FROM pg_stat_replication") or 0
    if values["synchronous_standby_names"] and commit in ("local", "off"):
        fact = (
            f"synchronous_commit is {commit}: writes do not wait for the synchronous standby, and a failover loses some"
        )
        found.append(Finding(Level.WARNING, fact, "Set synchronous_commit = on"))
    elif values["synchronous_standby_names"] and commit == "remote_write":
        fact = "synchronous_commit is remote_write: a crash of primary and standby together loses acknowledged writes"
        found.append(Finding(Level.WARNING, fact, "Set synchronous_commit = on"))
    elif standbys and not values["synchronous_standby_names"]:
        fact = f"{standbys} asynchronous standby(s): a failover to one loses what it had not yet received"
        found.append(Finding(Level.WARNING, fact, "Set synchronous_standby_names, or accept it knowingly"))
    return found or [
        Finding(Level.OK, "an acknowledged write is on disk, and on the synchronous standby if there is one")
    ]


def housekeeping(session: ServerConnection) -> list[Finding]:
    """Will dead rows be removed?"""
    found = []
    for name in ("autovacuum", "track_counts"):
        if _one(session, "SELECT current_setting(%s)", name) == "off":
            fact = f"{name} is off: dead rows are never removed, and every operation becomes slower"
            found.append(Finding(Level.ERROR, fact, f"Set {name} = on"))
    oldest = _one(
        session,
        "SELECT max(date_part('epoch', clock_timestamp() - xact_start)) FROM pg_stat_activity "
        "WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()",
    )
    if oldest is not None and oldest > _OLD_TRANSACTION_S:
        fact = f"a transaction has been open for {oldest / 60:.0f} minutes: until it ends, no dead row can be removed"
        found.append(
            Finding(Level.WARNING, fact, "End it (pg_stat_activity), and set idle_in_transaction_session_timeout")
        )
    slots = _one(
        session,
        "SELECT count(*) FROM pg_replication_slots WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)",
    )
    if slots:
        fact = f"{slots} unused replication slot(s) hold back the removal of dead rows, and fill the disk"
        found.append(Finding(Level.WARNING, fact, "Drop them: SELECT pg_drop_replication_slot(…)"))
    prepared = _one(
        session, "SELECT count(*) FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - interval '1 hour'"
    )
    if prepared:
        fact = f"{prepared} prepared transaction(s) are more than an hour old, and hold back the removal of dead rows"
        found.append(Finding(Level.WARNING, fact, "COMMIT PREPARED or ROLLBACK PREPARED them"))
    return found or [Finding(Level.OK, "dead rows are removed: autovacuum is on, and nothing holds it back")]


def capacity(session: ServerConnection, settings: PostgresSettings) -> list[Finding]:
    most = int(_one(session, "SELECT current_setting('max_connections')"))
    used = _one(session, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") or 0
    need = settings.pool + (1 if settings.notify else 0)
    text = f"{used} of {most} connections are in use, and each process of Tenure takes up to {need}"
    if used + need > most - 3:
        return [Finding(Level.WARNING, text, "Lower ?pool=, raise max_connections, or use a pooler with notify=off")]
    return [Finding(Level.OK, text)]


def transport(session: ServerConnection) -> list[Finding]:
    local = session.info.hostaddr in ("", "127.0.0.1", "::1") or session.info.host.startswith("/")
    if session.pgconn.ssl_in_use:
        return [Finding(Level.OK, "the connection is encrypted")]
    if local:
        return [Finding(Level.OK, "the connection is not encrypted, and does not leave this machine")]
    remedy = "Add sslmode=verify-full and sslrootcert= to the URL"
    return [Finding(Level.WARNING, "the connection is not encrypted: bodies can be read on the way", remedy)]


def clocks(session: ServerConnection, clock: Clock) -> list[Finding]:
    before = clock.wall()
    server = float(_one(session, "SELECT date_part('epoch', clock_timestamp())"))
    return [clock_finding(server - (before + clock.wall()) / 2)]


def notifications(session: ServerConnection, settings: PostgresSettings) -> list[Finding]:
    """Does a notification arrive? Behind a transaction pooler it does not."""
    if not settings.notify:
        fact = f"notify=off: consumers poll every {settings.poll_s:g} s, so work waits up to that long"
        return [Finding(Level.WARNING, fact, "Connect past the pooler with notify=on where that matters")]
    channel = f"{channel_prefix(settings.schema)}check"
    session.execute(f'LISTEN "{channel}"')
    session.execute("SELECT pg_notify(%s, '')", (channel,))
    arrived = next(session.notifies(timeout=_NOTIFY_S, stop_after=1), None) is not None
    session.execute(f'UNLISTEN "{channel}"')
    if arrived:
        return [Finding(Level.OK, "notifications arrive: waiting consumers are woken at once")]
    fact = "notifications do not arrive, as behind a transaction pooler: consumers would find work only by looking"
    return [Finding(Level.ERROR, fact, "Add notify=off to the URL, or connect past the pooler")]


def shown_version(number: int) -> str:
    return f"{number // 10_000}.{number % 10_000}"


def _one(session: ServerConnection, statement: str, *values: object) -> Any:
    row = session.execute(statement, values or None).fetchone()
    return row[0] if row else None

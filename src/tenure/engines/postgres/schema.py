"""Makes the schema, brings an older one up to date (one process at a time, and all or nothing), and names every call of its functions.

A call is one function of `sql/`, hence one round trip and one transaction.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from tenure.engines.contracts import KEY_MEMORY_S
from tenure.errors import EngineReadOnlyError, EngineVersionError

VERSION = 2
"""The version of the tables, and of the meaning that functions give to their rows. A process refuses a schema of a version above its own."""
REVISION = 10
"""The revision of the functions alone. A process replaces those of a lower revision, and uses those of a higher one: their arguments and results are the same."""
# version: what brings the tables from the version before to it, if they change; the functions are then made anew too.
MIGRATIONS = {1: "tables.sql"}
FUNCTIONS = ("waking.sql", "sending.sql", "delivery.sql", "steps.sql", "dead_letters.sql", "journal.sql", "store.sql")

# Plans must not depend on statistics, which are wrong by nature for a queue: empty now, a million rows in a minute.
# Nor may a call be planned anew: the server does that when it takes a plan made for these values to be better, and it costs more than the call.
_PLANNER = "SET plan_cache_mode = force_generic_plan " + " ".join(
    f"SET {name} = off" for name in ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
)


def lock_number(schema: str, purpose: str) -> int:
    """A signed 32-bit class for advisory locks, so that schemas in one database do not meet."""
    digest = hashlib.sha256(f"tenure/{schema}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "big", signed=True)


def channel_prefix(schema: str) -> str:
    return f"tenure_{hashlib.sha256(schema.encode()).hexdigest()[:8]}_"


def render(name: str, schema: str) -> str:
    """One of our SQL files for one schema."""
    values = {
        "schema": f'"{schema}"',
        "sequence": f"'\"{schema}\".message_id_seq'",
        "planner": _PLANNER,
        "channel": f"'{channel_prefix(schema)}'",
        "senders": str(lock_number(schema, "senders")),
        "waiters": str(lock_number(schema, "waiters")),
        "batches": str(lock_number(schema, "batches")),
        "janitor": str(lock_number(schema, "janitor")),
        "memory": f"interval '{KEY_MEMORY_S} s'",
    }
    text = files("tenure.engines.postgres").joinpath("sql", name).read_text()
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], text)


def ensure(session: psycopg.Connection[Any], schema: str) -> None:
    """Make sure that the schema is there in our version. Raises EngineVersionError when it is a newer one."""
    if _is_current(session, schema):
        return
    with session.transaction():
        # Released with the transaction: works behind a transaction pooler too.
        session.execute("SELECT pg_advisory_xact_lock(%s::int, 0)", (lock_number(schema, "migration"),))
        found = _version(session, schema)
        if found > VERSION:
            raise EngineVersionError(
                f"schema {schema!r} is of version {found}, and this Tenure knows versions up to {VERSION}",
                remedy="Upgrade Tenure, or name another schema in the URL: ?schema=other",
            )
        if _is_current(session, schema):
            return  # somebody else was faster
        try:
            _migrate(session, schema, found)
        except psycopg.errors.InsufficientPrivilege as error:
            raise EngineReadOnlyError(
                f"schema {schema!r} cannot be made: {error.diag.message_primary}",
                remedy=f"GRANT CREATE ON DATABASE … TO this user, or let an administrator run CREATE SCHEMA {schema} AUTHORIZATION …",
            ) from error


def _migrate(session: psycopg.Connection[Any], schema: str, found: int) -> None:
    _drop_functions(session, schema)
    for version in range(found + 1, VERSION + 1):
        if version in MIGRATIONS:
            session.execute(render(MIGRATIONS[version], schema))
    for name in FUNCTIONS:
        session.execute(render(name, schema))
    keep = "INSERT INTO {}.meta (name, value) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    for name, value in (("version", VERSION), ("functions", REVISION)):
        session.execute(sql.SQL(keep).format(sql.Identifier(schema)), (name, str(value)))


def _drop_functions(session: psycopg.Connection[Any], schema: str) -> None:
    found = session.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s",
        (schema,),
    )
    for (signature,) in found.fetchall():
        session.execute(f"DROP FUNCTION {signature}")


def _is_current(session: psycopg.Connection[Any], schema: str) -> bool:
    return _version(session, schema) == VERSION and _number(session, schema, "functions") >= REVISION


def _version(session: psycopg.Connection[Any], schema: str) -> int:
    """0 when there is nothing yet."""
    # Not to_regclass: inside a transaction it may answer from a cache that is older than the lock we waited for.
    ask_table = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = 'meta'"
    if session.execute(ask_table, (schema,)).fetchone() is None:
        return 0
    return _number(session, schema, "version")


def _number(session: psycopg.Connection[Any], schema: str, name: str) -> int:
    ask = sql.SQL("SELECT value FROM {}.meta WHERE name = %s").format(sql.Identifier(schema))
    row = session.execute(ask, (name,)).fetchone()
    return int(row[0]) if row else 0


@dataclass(frozen=True)
class Statements:
    """The calls, with the schema's name filled in."""

    send: str = "SELECT {s}.send(%b::text, %b::bytea, %b::float8, %b::text, %b::bigint)"
    send_plain: str = "SELECT {s}.send_plain(%b::text, %b::bytea[], %b::float8[], %b::text[], %b::bigint[])"
    send_keyed: str = "SELECT * FROM {s}.send_keyed(%b::text, %b::bytea, %b::float8, %b::text, %b::bigint, %b::text)"
    send_mixed: str = (
        "SELECT * FROM {s}.send_mixed(%b::text, %b::bytea[], %b::float8[], %b::text[], %b::bigint[], %b::text[])"
    )
    send_across: str = (
        "SELECT * FROM {s}.send_across(%b::text[], %b::bytea[], %b::float8[], %b::text[], %b::bigint[], %b::text[])"
    )
    claim: str = "SELECT * FROM {s}.lease(%b::text, %b::int, %b::float8, %b::bigint, %b::smallint, %b::int, %b::float8, %b::boolean)"
    exchange: str = (
        "SELECT * FROM {s}.exchange(%b::bigint[], %b::bigint[], %b::text[], %b::bytea[], %b::text, %b::text[], %b::float8[], "
        "%b::int, %b::float8, %b::bigint, %b::smallint, %b::int, %b::boolean)"
    )
    held: str = "SELECT * FROM {s}.held(%b::text[], %b::bigint[])"
    extend_many: str = "SELECT {s}.extend_many(%b::bigint[], %b::bigint[], %b::float8)"
    give_back: str = "SELECT {s}.give_back(%b::text, %b::bigint[])"
    acknowledge: str = "SELECT {s}.acknowledge(%b::bigint, %b::bigint, %b::text, %b::text)"
    acknowledge_many: str = "SELECT {s}.acknowledge_many(%b::bigint[], %b::bigint[])"
    reply: str = "SELECT {s}.reply(%b::bigint, %b::bigint, %b::text, %b::bytea)"
    settle: str = "SELECT {s}.settle(%b::bigint, %b::bigint, %b::text, %b::text, %b::text, %b::bytea)"
    extend: str = "SELECT {s}.extend(%b::bigint, %b::bigint, %b::float8, %b::bytea)"
    append_step: str = "SELECT {s}.append_step(%b::bigint, %b::bigint, %b::text, %b::text, %b::float8, %b::bytea)"
    steps: str = "SELECT {s}.steps(%b::bigint, %b::bigint, %b::text, %b::text)"
    bury: str = "SELECT {s}.bury(%b::bigint, %b::bigint, %b::text, %b::text)"
    nack: str = "SELECT {s}.nack(%b::bigint, %b::bigint, %b::float8, %b::int)"
    release: str = "SELECT {s}.release(%b::bigint, %b::bigint)"
    why_dead: str = "SELECT {s}.why_dead(%b::bigint, %b::bigint)"
    revoke: str = "SELECT {s}.revoke(%b::text, %b::text)"
    withdraw: str = "SELECT {s}.withdraw(%b::text, %b::text, %b::bigint)"
    depth: str = "SELECT * FROM {s}.depth(%b::text)"
    purge: str = "SELECT {s}.purge(%b::text)"
    dead_letters: str = (
        "SELECT o_id, o_body, o_cause, o_reason, o_died_at, o_enqueued_at, o_deliveries, o_key, o_generation, o_reply_to, o_checkpoint "
        "FROM {s}.dead_letters(%b::text, %b::int, %b::bigint)"
    )
    dead_count: str = "SELECT count(*) FROM {s}.dead_letter WHERE mailbox = %b::text"
    dead_delete: str = "DELETE FROM {s}.dead_letter WHERE mailbox = %b::text AND id = %b::bigint RETURNING id"
    dead_purge: str = (
        "WITH gone AS (DELETE FROM {s}.dead_letter WHERE mailbox = %b::text RETURNING id) SELECT count(*) FROM gone"
    )
    replay: str = "SELECT * FROM {s}.replay(%b::text, %b::bigint)"
    tidy: str = "SELECT {s}.tidy(%b::int)"
    append: str = "SELECT * FROM {s}.append(%b::text, %b::bytea[], %b::bigint, %b::bigint, %b::text)"
    append_with: str = (
        "SELECT * FROM {s}.append_with(%b::text, %b::bytea[], %b::bigint, %b::bigint, %b::text, %b::text[], %b::bytea[], %b::float8[], "
        "%b::text[], %b::bigint[], %b::text[], %b::bigint[], %b::bigint[])"
    )
    head: str = "SELECT * FROM {s}.head(%b::text)"
    read: str = "SELECT * FROM {s}.read(%b::text, %b::bigint, %b::int)"
    snapshot: str = "SELECT * FROM {s}.snapshot(%b::text, %b::bytea, %b::bigint, %b::bigint)"
    latest_snapshot: str = "SELECT * FROM {s}.latest_snapshot(%b::text)"
    truncate: str = "SELECT {s}.truncate(%b::text, %b::bigint)"
    campaign: str = "SELECT {s}.campaign(%b::text, %b::text, %b::float8, %b::bigint)"
    renew: str = "SELECT {s}.renew(%b::text, %b::bigint, %b::float8)"
    resign: str = "SELECT {s}.resign(%b::text, %b::bigint)"
    leader: str = "SELECT * FROM {s}.leader(%b::text)"
    put: str = "SELECT * FROM {s}.put(%b::text, %b::text, %b::bytea, %b::bigint, %b::bigint, %b::float8)"
    get: str = "SELECT {s}.get(%b::text, %b::text)"
    remove: str = "SELECT {s}.remove(%b::text, %b::text)"
    list: str = "SELECT {s}.list(%b::text, %b::text, %b::text, %b::text, %b::int)"
    put_many: str = "SELECT {s}.put_many(%b::text, %b::text[], %b::bytea[], %b::bigint, %b::bigint, %b::float8)"
    get_many: str = "SELECT * FROM {s}.get_many(%b::text, %b::text[])"
    scan: str = "SELECT * FROM {s}.scan(%b::text, %b::text, %b::text, %b::text, %b::int, %b::bigint, %b::boolean)"
    listen: str = "SELECT {s}.listen(%b::text)"
    unlisten: str = "SELECT {s}.unlisten(%b::text)"
    now: str = "SELECT date_part('epoch', clock_timestamp())"


def statements_for(schema: str) -> Statements:
    """Names that `url` accepts need no escaping; the quotes keep words like "order" from being keywords."""
    return Statements(**{field.name: str(field.default).replace("{s}", f'"{schema}"') for field in fields(Statements)})

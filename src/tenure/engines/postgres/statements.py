"""Every call that the engine makes, by name: one function of `sql/` each, hence one round trip and one transaction.

Parameters go in binary (%b); the casts settle overloads and give None a type.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Statements:
    """The calls, with the schema's name filled in."""

    send: str = "SELECT {s}.send(%b::text, %b::bytea, %b::float8, %b::text, %b::bigint)"
    send_plain: str = "SELECT {s}.send_plain(%b::text, %b::bytea[], %b::float8[], %b::text[], %b::bigint[])"
    send_keyed: str = "SELECT * FROM {s}.send_keyed(%b::text, %b::bytea, %b::float8, %b::text, %b::bigint, %b::text)"
    send_mixed: str = (
        "SELECT * FROM {s}.send_mixed(%b::text, %b::bytea[], %b::float8[], %b::text[], %b::bigint[], %b::text[])"
    )
    claim: str = "SELECT * FROM {s}.lease(%b::text, %b::int, %b::float8, %b::bigint, %b::smallint, %b::int, %b::float8, %b::boolean)"
    give_back: str = "SELECT {s}.give_back(%b::text, %b::bigint[])"
    acknowledge: str = "SELECT {s}.acknowledge(%b::bigint, %b::bigint, %b::text, %b::text)"
    acknowledge_many: str = "SELECT {s}.acknowledge_many(%b::bigint[], %b::bigint[])"
    reply: str = "SELECT {s}.reply(%b::bigint, %b::bigint, %b::text, %b::bytea)"
    settle: str = "SELECT {s}.settle(%b::bigint, %b::bigint, %b::text, %b::text, %b::text, %b::bytea)"
    extend: str = "SELECT {s}.extend(%b::bigint, %b::bigint, %b::float8, %b::bytea)"
    bury: str = "SELECT {s}.bury(%b::bigint, %b::bigint, %b::text, %b::text)"
    nack: str = "SELECT {s}.nack(%b::bigint, %b::bigint, %b::float8, %b::int)"
    release: str = "SELECT {s}.release(%b::bigint, %b::bigint)"
    why_dead: str = "SELECT {s}.why_dead(%b::bigint, %b::bigint)"
    revoke: str = "SELECT {s}.revoke(%b::text, %b::text)"
    depth: str = "SELECT * FROM {s}.depth(%b::text)"
    purge: str = "SELECT {s}.purge(%b::text)"
    dead_letters: str = "SELECT * FROM {s}.dead_letters(%b::text, %b::int, %b::bigint)"
    dead_count: str = "SELECT count(*) FROM {s}.dead_letter WHERE mailbox = %b::text"
    dead_delete: str = "DELETE FROM {s}.dead_letter WHERE mailbox = %b::text AND id = %b::bigint RETURNING id"
    dead_purge: str = (
        "WITH gone AS (DELETE FROM {s}.dead_letter WHERE mailbox = %b::text RETURNING id) SELECT count(*) FROM gone"
    )
    replay: str = "SELECT * FROM {s}.replay(%b::text, %b::bigint)"
    tidy: str = "SELECT {s}.tidy(%b::int)"
    append: str = "SELECT * FROM {s}.append(%b::text, %b::bytea[], %b::bigint, %b::bigint, %b::text)"
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
    listen: str = "SELECT {s}.listen(%b::text)"
    unlisten: str = "SELECT {s}.unlisten(%b::text)"
    now: str = "SELECT date_part('epoch', clock_timestamp())"


def statements_for(schema: str) -> Statements:
    """Names that `url` accepts need no escaping; the quotes keep words like "order" from being keywords."""
    return Statements(**{field.name: str(field.default).replace("{s}", f'"{schema}"') for field in fields(Statements)})

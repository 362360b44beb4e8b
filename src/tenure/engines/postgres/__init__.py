"""The PostgreSQL engine: `Engine.open("postgresql://user@host/database?schema=tenure")`, PostgreSQL 13 and newer.

Files: `url` reads the address, `schema` makes and migrates the tables (`sql/tables.sql`) and the functions that do the work
(`sql/`: one function, one round trip, one transaction), `statements` names the calls, `connections` owns the
sessions, `faults` translates the server's errors, `ear` hears NOTIFY for waiting consumers, `pace` keeps
claims fast while dead rows wait for vacuum, `examination` is what `tenure doctor` asks, and `mailbox`, `message`,
`dead_letters`, `journal`, `election` and `store` keep the contracts.
"""

from __future__ import annotations

from tenure.engines.postgres.engine import PostgresEngine, open_postgres

__all__ = ["PostgresEngine", "open_postgres"]

"""The PostgreSQL engine: `Engine.open("postgresql://user@host/database?schema=tenure")`, PostgreSQL 13 and newer.

Files: `address` reads the URL and examines the server for `tenure doctor`, `schema` makes and migrates the tables (`sql/tables.sql`) and the
functions that do the work (`sql/`: one function, one round trip, one transaction) and names their calls, `connections` owns the sessions
and translates the server's errors, `engine` opens the server, hears NOTIFY for waiting consumers and keeps the journal, the election and
the store, and `mailbox` and `consumer` keep the mailbox contracts.
"""

from __future__ import annotations

from tenure.engines.postgres.engine import PostgresEngine, open_postgres

__all__ = ["PostgresEngine", "open_postgres"]

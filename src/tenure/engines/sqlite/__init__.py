"""The embedded engine: one SQLite file, many threads and processes of one machine.

`Engine.open("sqlite:///tenure.db")` is the way in. Files: `address` reads the URL and examines the place of the file, `connection`
is one connection with its lock, its transactions and its errors, `database` makes and checks the tables, tells the engine's time and
survives forks, `statements` holds every statement, `wakeup_page` wakes waiting consumers in other processes, and `mailbox`, `message`
and `engine` keep the contracts.
"""

from __future__ import annotations

from tenure.engines.sqlite.address import Synchronous
from tenure.engines.sqlite.engine import SqliteEngine, open_sqlite

__all__ = ["SqliteEngine", "Synchronous", "open_sqlite"]

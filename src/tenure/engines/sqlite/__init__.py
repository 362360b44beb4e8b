"""The embedded engine: one SQLite file, many threads and processes of one machine.

`Engine.open("sqlite:///tenure.db")` is the way in. Files: `url` reads the address, `schema` makes and checks the tables,
`database` owns connections, transactions and forks, `timeline` tells the engine's time, `bells` wakes waiting
consumers in other processes, and `mailbox`, `journal`, `election`, `store` keep the contracts.
"""

from __future__ import annotations

from tenure.engines.sqlite.engine import SqliteEngine, open_sqlite
from tenure.engines.sqlite.url import Synchronous

__all__ = ["SqliteEngine", "Synchronous", "open_sqlite"]

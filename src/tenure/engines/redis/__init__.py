"""The Redis engine: `Engine.open("redis://:password@host:6379/0?namespace=tenure&wait=1")`, Redis 6.2 and newer, Valkey.

Files: `address` reads the URL and examines the server for `tenure doctor`, `lua/` holds one script per operation (one script, one round
trip, one atomic step), `connections` puts them together from their parts, owns the sessions and translates the server's errors, `engine`
opens the server and hears of what others did, `handover` takes what the sender's script gave us while we waited, and `mailbox` and
`journal_election_store` keep the contracts.

Keys, all under `{namespace}:` so that they are in one slot: `q:` and `h:` (sorted sets of a mailbox: waiting, by the time at which
they become visible, and held, by the end of the lease), `o:` (offers of consumers that wait), `n:` (what an offer got), `x:` (a message), `k:` (what is remembered of a key), `d:` (dead
letters), `j:`, `je:`, `js:` (a journal's head, entries, snapshot), `l:` (a seat), `v:`, `f:`, `s:`, `t` (values, fences, index and
expiry of stores), `last` (the last id), `i` (the instance), `w:` (writes of one engine object).
"""

from __future__ import annotations

from tenure.engines.redis.engine import RedisEngine, open_redis

__all__ = ["RedisEngine", "open_redis"]

"""Redis: our engine beside redis-py doing the same round trips by hand, on one private Valkey.

It appends to its file and syncs it every second, so that what is compared is the work of client and server and not the disk, which
would hide it. The last lines are from a server that syncs every write, which `tenure doctor` asks for: there a wake-up waits for one
sync, as a list by hand does. The script that sends hands the message over, claimed (decision 0171).

Round trips, ours and the raw client's alike:

| operation | ours | raw |
|---|---|---|
| send | 1: `send.lua` | 1: a script: INCR, HSET, ZADD |
| claim + acknowledge | 2: `claim.lua`, `acknowledge.lua` | 2: scripts: ZRANGEBYSCORE, HSET, HMGET, ZADD; HGET, ZSCORE, ZREM, DEL |
| claim + settle with a reply | 2: `claim.lua`, `settle.lua` | 2: the same claim; the same removal with INCR, HSET, ZADD |
| send_many of 100 | 1: `send_plain.lua` | 1: a script over its arguments |
| claim 100 + acknowledge 100 | 2: `claim.lua`, `acknowledge_many.lua` | 2: the same claim, a script over ids |
| extend | 1: `extend.lua` | 1: a script: HGET, ZSCORE, ZADD |
| append | 1: `append.lua` | 1: a script: HGET, HINCRBY, HSET |

The raw client is redis.Redis with hiredis and registered scripts. It keeps our sorted set and hashes, checks receipt and lease
as we do, and nothing else: no keys, no delivery limit, no dead letters, nobody to wake, no count of writes. Wake-up is
from before `send` to after `receive` returned in another thread that was waiting; by hand it is RPUSH and BLPOP on a list.
"""

from __future__ import annotations

import logging
from typing import Any

import redis
from tools.servers.redis import DURABLE

from bench.beside_raw import RAW, SINGLE_BAR, Bench, Ours, our_wakes, tell_wakes, timed_wakes
from bench.harness import Report
from tenure.engines import Engine
from tools.servers import CannotStart, Valkey

NOW = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] "
PUSH = (
    "local id = string.format('%016.0f', redis.call('INCR', 'raw:last')) "
    "redis.call('HSET', 'raw:x:' .. id, 'b', {body}, 'e', now, 'r', 'replies') redis.call('ZADD', KEYS[1], now, id) "
)
SEND = NOW + PUSH.format(body="ARGV[1]") + "return id"
SEND_MANY = NOW + "for n = 1, #ARGV do " + PUSH.format(body="ARGV[n]") + "end return #ARGV"
CLAIM = (
    NOW
    + """
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
local rows = {}
for n, id in ipairs(ids) do
    redis.call('HSET', 'raw:x:' .. id, 't', ARGV[2])
    redis.call('HINCRBY', 'raw:x:' .. id, 'd', 1)
    redis.call('ZADD', KEYS[1], now + 60000000, id)
    rows[n] = redis.call('HMGET', 'raw:x:' .. id, 'd', 'e', 'r', 'b')
    rows[n][5] = id
end
return rows
"""
)
HELD = (
    "local function held(id) return redis.call('HGET', 'raw:x:' .. id, 't') == ARGV[1] "
    "and tonumber(redis.call('ZSCORE', KEYS[1], id)) > now end "
)
REMOVE = "redis.call('ZREM', KEYS[1], id) redis.call('DEL', 'raw:x:' .. id) "
DELETE = NOW + HELD + "for n = 2, #ARGV do local id = ARGV[n] if held(id) then " + REMOVE + "end end return 1"
SETTLE = (
    NOW
    + HELD
    + "do local id = ARGV[2] if held(id) then "
    + REMOVE
    + "end end "
    + PUSH.format(body="ARGV[3]").replace("KEYS[1]", "'raw:q:replies'")
    + "return 1"
)
EXTEND = NOW + HELD + "if held(ARGV[2]) then redis.call('ZADD', KEYS[1], 'GT', now + 60000000, ARGV[2]) end return 1"
APPEND = (
    NOW + "if (redis.call('HGET', KEYS[1], 'seq') or '0') ~= ARGV[1] then return -1 end "
    "local seq = redis.call('HINCRBY', KEYS[1], 'seq', 1) redis.call('HSET', 'raw:entries', seq, now .. ARGV[2]) return seq"
)
QUEUE = ["raw:q:work"]


class Raw:
    """The same round trips with nothing around them."""

    def __init__(self, url: str) -> None:
        self.client: Any = redis.Redis.from_url(url)
        scripts = (SEND, SEND_MANY, CLAIM, DELETE, SETTLE, EXTEND, APPEND)
        made = [self.client.register_script(text) for text in scripts]
        self._send, self._send_many, self._claim, self._delete, self._settle, self._extend, self._append = made
        self.seq = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self._send(QUEUE, [RAW])

    def send_many(self, count: int) -> None:
        for _ in range(count // 100):
            self._send_many(QUEUE, [RAW] * 100)

    def drain(self, count: int) -> None:
        for number in range(count):
            (row,) = self._claim(QUEUE, [1, number])
            self._delete(QUEUE, [number, row[4]])

    def settle(self, count: int) -> None:
        for number in range(count):
            (row,) = self._claim(QUEUE, [1, number])
            self._settle(QUEUE, [number, row[4], b"1"])

    def drain_many(self, count: int) -> None:
        for number in range(count // 100):
            rows = self._claim(QUEUE, [100, number])
            self._delete(QUEUE, [number, *(row[4] for row in rows)])

    def extend(self, count: int) -> None:
        self.send(1)
        (row,) = self._claim(QUEUE, [1, 1])
        for _ in range(count):
            self._extend(QUEUE, [1, row[4]])
        self._delete(QUEUE, [1, row[4]])

    def append(self, count: int) -> None:
        for _ in range(count):
            self.seq = self._append(["raw:head"], [self.seq, RAW])


def run(report: Report) -> None:
    logging.getLogger("tenure.engines.redis").setLevel(logging.ERROR)
    try:
        server, durable = Valkey({**DURABLE, "appendfsync": "everysec"}).start(), Valkey(DURABLE).start()
    except CannotStart as reason:
        report.note(f"SKIPPED: {reason}")
        return
    with server, Engine.open(server.url) as engine:
        raw = Raw(server.url)
        Bench(report, Ours(engine), raw, "redis-py").run()
        wakes(report, engine, raw)
        raw.client.close()
    with durable, Engine.open(durable.url) as engine:
        raw = Raw(durable.url)
        bench = Bench(report, Ours(engine), raw, "redis-py", singles=50)
        bench.line("send", "every write synced: single send", bar=SINGLE_BAR)
        bench.line("drain", "every write synced: single claim + settle (acknowledge)", bar=SINGLE_BAR)
        wakes(report, engine, raw, "every write synced: one sync")
        raw.client.close()


def wakes(report: Report, engine: Engine, raw: Raw, synced: str = "") -> None:
    """In turn with a list that is popped by a waiting client: the least that Redis can do."""
    mine, theirs = [], []
    for _ in range(4):
        mine += our_wakes(engine)
        theirs += raw_wakes(raw)
    tell_wakes(report, mine, theirs, "RPUSH, BLPOP: no lease, one write", synced=synced)


def raw_wakes(raw: Raw) -> list[float]:
    return timed_wakes(
        lambda: raw.client.blpop(["raw:bell"], 30), lambda: raw.client.rpush("raw:bell", RAW), lambda: None
    )

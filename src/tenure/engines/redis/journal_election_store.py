"""The journal, the election and the store in Redis, each changed by one script at a time.

An append is a compare-and-swap on the journal's head. An election has one hash per seat, taken and renewed in the server's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tenure.engines.checks import (
    check_append,
    check_key,
    check_max_messages,
    check_name,
    check_seconds,
    check_snapshot,
    check_store_value,
    check_ttl,
)
from tenure.engines.contracts import (
    MAX_WAIT_S,
    Election,
    Entry,
    Fence,
    Head,
    Journal,
    Leader,
    Snapshot,
    Store,
    Term,
    term_margin,
)
from tenure.engines.long_poll import Look
from tenure.engines.redis.connections import Answer, Argument
from tenure.errors import (
    LimitError,
    SequenceConflictError,
    StaleEpochError,
    StaleFenceError,
    StaleSnapshotError,
    TermLostError,
    Truncated,
)

if TYPE_CHECKING:
    from tenure.engines.redis.engine import RedisEngine

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[str, tuple[bytes, ...]]).decode
_MOST = 2**53
"""Numbers are doubles in the server's Lua."""
_READ_STEP, _READ_BYTES = 1_000, 16_777_216
_TRUNCATE_STEP = 1_000


class RedisJournal(Journal):
    def __init__(self, engine: RedisEngine, name: str) -> None:
        self.name = check_name(name, "journal name")
        self._engine = engine
        self.polls = engine.wakeups.long_polls(f"j:{name}")

    def _call(self, operation: str, *values: Argument) -> Answer:
        return self._engine.connections.call(operation, (self.name, *values))

    def append(self, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str) -> int:
        check_append(events, epoch, expect, append_id)
        if max(epoch, expect) >= _MOST:
            raise LimitError("epoch, expect", (epoch, expect), "below 2**53")
        packed = _pack((append_id, [bytes(event) for event in events]))
        _, seq, *refused = self._call("append", packed, epoch, expect)
        if not refused:
            return int(seq)
        last, current = refused
        if current > epoch:
            raise StaleEpochError(epoch, current)
        raise SequenceConflictError(expect, last)

    def head(self) -> Head:
        return Head(*self._call("head")[1:])

    def read(self, after: int = 0, *, limit: int = 1_000) -> list[Entry]:
        if limit < 1:
            raise LimitError("limit", limit, "1 or more")
        found: list[Entry] = []
        while len(found) < limit:
            position = found[-1].seq if found else max(0, after)
            wanted = min(limit - len(found), _READ_STEP)
            _, truncated, entries = self._call("read", position, wanted, _READ_BYTES)
            if truncated:
                raise Truncated(after, truncated + 1)
            found += (_entry(position + n, packed) for n, packed in enumerate(entries, 1))
            if len(entries) < wanted and (not entries or sum(map(len, entries)) <= _READ_BYTES):
                break
        return found

    def follow(self, after: int, wait_time_seconds: float) -> list[Entry]:
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        if not wait_time_seconds:
            return self.read(after)
        return self.polls.poll(wait_time_seconds, lambda: Look(self.read(after)))

    def wake(self) -> None:
        self._engine.connections.check_open()
        self.polls.wake()

    def snapshot(self, state: bytes, seq: int, *, epoch: int) -> None:
        check_snapshot(state)
        if not 0 <= seq < _MOST:
            raise LimitError("seq", seq, "0 or more, and below 2**53")
        _, refused, *current = self._call("snapshot", bytes(state), seq, epoch)
        if refused == b"epoch":
            raise StaleEpochError(epoch, current[0])
        if refused == b"ahead":
            raise LimitError("seq", seq, f"between 0 and the last sequence, {current[0]}")
        if refused == b"seq":
            raise StaleSnapshotError(seq, current[0])

    def latest_snapshot(self) -> Snapshot | None:
        _, *kept = self._call("latest_snapshot")
        return Snapshot(*kept) if kept else None

    def truncate(self, seq: int) -> None:
        while self._call("truncate", seq, _TRUNCATE_STEP)[1]:
            continue  # a step each, so that others get their turn


def _entry(seq: int, stored: bytes) -> Entry:
    if not stored:
        return Entry(seq, 0, "", 0.0, (), "it is missing")
    try:
        at, epoch, packed = stored.split(b"\n", 2)
        append_id, events = _unpack(packed)
        return Entry(seq, int(epoch), append_id, int(at) / 1e6, events)
    except (ValueError, msgspec.DecodeError) as error:
        return Entry(seq, 0, "", 0.0, (), f"it is not time, epoch, id and events: {error}", stored)


class RedisElection(Election):
    def __init__(self, engine: RedisEngine, name: str) -> None:
        self.name = check_name(name, "election name")
        self._engine = engine

    def _call(self, operation: str, *values: Argument) -> Answer:
        return self._engine.connections.call(operation, (self.name, *values))

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if not 0 <= above < 2**53:
            raise LimitError("above", above, "0 or more, and below 2**53")
        asked = self._engine.clock.boottime()
        epoch = self._call("campaign", candidate, round(ttl * 1e6), above)[1]
        return Term(epoch, candidate, ttl, asked + ttl - term_margin(ttl)) if epoch > 0 else None

    def renew(self, term: Term) -> Term:
        asked = self._engine.clock.boottime()
        _, renewed, *newest = self._call("renew", term.epoch, round(term.ttl * 1e6))
        if not renewed:
            raise TermLostError(self.name, term.epoch, newest[0])
        return term._replace(safe_until=asked + term.ttl - term_margin(term.ttl))

    def resign(self, term: Term) -> None:
        self._call("resign", term.epoch)

    def current(self) -> Leader | None:
        _, *seat = self._call("leader")
        return Leader(seat[0].decode(), seat[1], seat[2] / 1e6) if seat else None


class RedisStore(Store):
    def __init__(self, engine: RedisEngine, name: str) -> None:
        self.name = check_name(name, "store name")
        self._engine = engine

    def _call(self, operation: str, *values: Argument) -> Answer:
        return self._engine.connections.call(operation, (self.name, *values))

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        check_key(key)
        check_store_value(value)
        if ttl is not None:
            check_ttl(ttl)
        generation, delivery = fence if fence is not None else ("", "")
        span = "" if ttl is None else max(1, round(ttl * 1e6))
        _, *refused = self._call("put", key, bytes(value), span, generation, delivery)
        if refused and fence is not None:
            raise StaleFenceError(key, fence, Fence(*map(int, refused)))

    def get(self, key: str) -> bytes | None:
        check_key(key)
        value: bytes | None = self._call("get", key)[1]
        return value

    def delete(self, key: str) -> bool:
        check_key(key)
        return bool(self._call("remove", key)[1])

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> list[str]:
        check_max_messages(limit)
        first = b"[" + prefix.encode() if prefix else b"-"
        if after is not None and after >= prefix:
            first = b"(" + after.encode()
        # No character is encoded with the byte 0xff, so it sorts after everything that has this prefix.
        below = b"(" + prefix.encode() + b"\xff" if prefix else b"+"
        return [key.decode() for key in self._call("list", first, below, limit)[1]]

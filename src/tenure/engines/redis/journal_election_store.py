"""The journal, the election and the store in Redis, each changed by one script at a time.

An append is a compare-and-swap on the journal's head. An election has one hash per seat, taken and renewed in the server's time.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

import msgspec

from tenure.engines.checked_handles import CheckedElection, CheckedStore, PolledJournal
from tenure.engines.checks import EntryPlace
from tenure.engines.contracts import MAX_SCAN_BYTES, Entry, Fence, Head, Leader, Snapshot, Term
from tenure.engines.redis.session import Argument
from tenure.errors import LimitError, Truncated

if TYPE_CHECKING:
    from tenure.engines.redis.engine import RedisEngine

_pack = msgspec.msgpack.Encoder().encode
unpack_entry = msgspec.msgpack.Decoder(tuple[str, tuple[bytes, ...]]).decode
_MOST = 2**53
"""Numbers are doubles in the server's Lua."""
_READ_STEP, _READ_BYTES = 1_000, 16_777_216
_TRUNCATE_STEP = 1_000


class RedisJournal(PolledJournal):
    topic_prefix = "j:"
    engine: RedisEngine

    def _append(self, events: list[bytes], epoch: int, expect: int, append_id: str) -> int:
        _, seq, *refused = self.engine.ask("append", *self.entry_words(events, EntryPlace(epoch, expect, append_id)))
        if not refused:
            return int(seq)
        last, newest = refused
        return self.refuse_append(epoch, expect, newest, last)

    def entry_words(self, events: list[bytes], place: EntryPlace) -> tuple[Argument, ...]:
        """Returns the entry as scripts take it."""
        epoch, expect, append_id = place
        if max(epoch, expect) >= _MOST:
            raise LimitError("epoch, expect", (epoch, expect), "below 2**53")
        return self.name, _pack((append_id, events)), epoch, expect

    def head(self) -> Head:
        return Head(*self.engine.ask("head", self.name)[1:])

    def _read(self, after: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        while len(found) < limit:
            position = found[-1].seq if found else max(0, after)
            wanted = min(limit - len(found), _READ_STEP)
            _, truncated, entries = self.engine.ask("read", self.name, position, wanted, _READ_BYTES)
            if truncated:
                raise Truncated(after, truncated + 1)
            found += (_entry(position + n, packed) for n, packed in enumerate(entries, 1))
            if len(entries) < wanted and (not entries or sum(map(len, entries)) <= _READ_BYTES):
                break
        return found

    def _snapshot(self, state: bytes, seq: int, epoch: int) -> None:
        if not 0 <= seq < _MOST:
            raise LimitError("seq", seq, "0 or more, and below 2**53")
        _, refused, *current = self.engine.ask("snapshot", self.name, state, seq, epoch)
        if current:
            self._refuse_snapshot(refused.decode(), seq, epoch, current[0])

    def latest_snapshot(self) -> Snapshot | None:
        _, *kept = self.engine.ask("latest_snapshot", self.name)
        return Snapshot(*kept) if kept else None

    def truncate(self, seq: int) -> None:
        while self.engine.ask("truncate", self.name, seq, _TRUNCATE_STEP)[1]:
            continue  # a step each, so that others get their turn


def _entry(seq: int, stored: bytes) -> Entry:
    if not stored:
        return Entry(seq, 0, "", 0.0, (), "it is missing")
    try:
        at, epoch, packed = stored.split(b"\n", 2)
        append_id, events = unpack_entry(packed)
        return Entry(seq, int(epoch), append_id, int(at) / 1e6, events)
    except (ValueError, msgspec.DecodeError) as error:
        return Entry(seq, 0, "", 0.0, (), f"it is not time, epoch, id and events: {error}", stored)


class RedisElection(CheckedElection):
    engine: RedisEngine

    def _campaign(self, candidate: str, ttl: float, above: int) -> int | None:
        if above >= _MOST:
            raise LimitError("above", above, "0 or more, and below 2**53")
        epoch = int(self.engine.ask("campaign", self.name, candidate, round(ttl * 1e6), above)[1])
        return epoch if epoch > 0 else None

    def _renew(self, term: Term) -> int | None:
        _, renewed, *newest = self.engine.ask("renew", self.name, term.epoch, round(term.ttl * 1e6))
        return None if renewed else int(newest[0])

    def resign(self, term: Term) -> None:
        self.engine.ask("resign", self.name, term.epoch)

    def current(self) -> Leader | None:
        _, *seat = self.engine.ask("leader", self.name)
        return Leader(seat[0].decode(), seat[1], seat[2] / 1e6) if seat else None


class RedisStore(CheckedStore):
    engine: RedisEngine

    def _put(self, key: str, value: bytes, fence: Fence | None, ttl: float | None) -> Fence | None:
        generation, delivery = fence if fence is not None else ("", "")
        _, *refused = self.engine.ask("put", self.name, key, value, _span(ttl), generation, delivery)
        return Fence(*map(int, refused)) if refused else None

    def _get(self, key: str) -> bytes | None:
        value: bytes | None = self.engine.ask("get", self.name, key)[1]
        return value

    def _delete(self, key: str) -> bool:
        return bool(self.engine.ask("remove", self.name, key)[1])

    def _list(self, prefix: str, limit: int, after: str | None) -> builtins.list[str]:
        first, below = _bounds(prefix)
        if after is not None and after >= prefix:
            first = b"(" + after.encode()
        return [key.decode() for key in self.engine.ask("list", self.name, first, below, limit)[1]]

    def _put_many(self, values: dict[str, bytes | None], fence: Fence, ttl: float | None) -> None:
        told: builtins.list[str | bytes] = []
        for key, value in values.items():
            told += (key, "0", "") if value is None else (key, "1", value)
        self.engine.ask("put_many", self.name, _span(ttl), *fence, *told)

    def _get_many(self, keys: builtins.list[str]) -> dict[str, bytes]:
        found = self.engine.ask("get_many", self.name, *keys)[1]
        return {key: value for key, value in zip(keys, found, strict=True) if value is not None}

    def _scan(self, prefix: str, limit: int, after: str | None, reverse: bool) -> builtins.list[tuple[str, bytes]]:
        first, below = _bounds(prefix)
        start, end = (below, first) if reverse else (first, below)
        if after is not None and (after >= prefix or reverse):
            start = b"(" + after.encode()
        way = "down" if reverse else "up"
        flat = self.engine.ask("scan", self.name, start, end, limit, MAX_SCAN_BYTES, way)[1]
        return [(key.decode(), value) for key, value in zip(flat[::2], flat[1::2], strict=True)]


def _span(ttl: float | None) -> str | int:
    return "" if ttl is None else max(1, round(ttl * 1e6))


def _bounds(prefix: str) -> tuple[bytes, bytes]:
    """Returns the first and the last place of the keys with this prefix. No character is encoded with the byte 0xff, so it sorts after all of them."""
    return (b"[" + prefix.encode(), b"(" + prefix.encode() + b"\xff") if prefix else (b"-", b"+")

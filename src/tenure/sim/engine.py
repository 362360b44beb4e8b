"""The engine contract as a simulated process sees it: the shared memory engine, through its own connection."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from tenure.engines.contracts import (
    Appended,
    BodyT,
    Consumer,
    Election,
    Engine,
    Entry,
    Fence,
    Head,
    Journal,
    Leader,
    Mailbox,
    Message,
    Outgoing,
    ReplyT,
    Sent,
    Snapshot,
    Store,
    Term,
    term_margin,
)
from tenure.errors import ConfigurationError
from tenure.sim.calls import Backend, Connection, EngineCalls, PollTopic
from tenure.sim.mailbox import SimConsumer, SimMailbox, SimMessage
from tenure.sim.world import Host


class SimEngine(Engine):
    """One process's engine. `calls` is how asyncio code uses it; straight calls happen at once."""

    def __init__(self, backend: Backend, host: Host) -> None:
        self.url = "memory://"
        self.appends_in_one_step = backend.engine.appends_in_one_step
        self.clock = host.clock
        self.connection = Connection(backend, host)
        self.calls = EngineCalls(self.connection)
        self._inner = backend.engine

    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Mailbox[BodyT, ReplyT]:
        inner = self._inner.mailbox(name, body, reply, max_delivery_count=max_delivery_count)
        return SimMailbox(self.connection, inner)

    def consumer(
        self,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Consumer[BodyT, ReplyT]:
        inner = self._inner.consumer(body, reply, max_delivery_count=max_delivery_count)
        return SimConsumer(self.connection, self._inner, inner)

    def send_across(self, batches: Sequence[tuple[Mailbox[Any, Any], Sequence[Outgoing[Any]]]]) -> list[Sent]:
        ours = [(mailbox, tuple(messages)) for mailbox, messages in batches if isinstance(mailbox, SimMailbox)]
        if len(ours) == 1:
            return ours[0][0].send_many(ours[0][1])

        def send() -> list[Sent]:
            sent = self._inner.send_across([(mailbox._inner, messages) for mailbox, messages in ours])
            for mailbox, _ in ours:
                self.connection.backend.touch(mailbox.topic)
            return sent

        names = ", ".join(dict.fromkeys(mailbox.name for mailbox, _ in ours))
        return self.connection.do(send, f"send {sum(len(each) for _, each in ours)} to {names}")

    def append_with(
        self,
        journal: Journal,
        events: Sequence[bytes],
        *,
        epoch: int,
        expect: int,
        append_id: str,
        sends: Sequence[tuple[Mailbox[Any, Any], Sequence[Outgoing[Any]]]] = (),
        acknowledges: Sequence[Message[Any, Any]] = (),
    ) -> Appended:
        # Copies: a late append must not see what its caller does to the lists meanwhile.
        ours = [(mailbox, tuple(messages)) for mailbox, messages in sends if isinstance(mailbox, SimMailbox)]
        taken = [message for message in acknowledges if isinstance(message, SimMessage)]
        if not isinstance(journal, SimJournal) or (len(ours), len(taken)) != (len(sends), len(acknowledges)):
            raise ConfigurationError("the journal, a mailbox or a delivery belongs to another engine")
        entry, inner = tuple(events), [message.inner for message in taken]

        def append() -> Appended:
            batches = [(mailbox._inner, messages) for mailbox, messages in ours]
            done = self._inner.append_with(
                journal.inner,
                entry,
                epoch=epoch,
                expect=expect,
                append_id=append_id,
                sends=batches,
                acknowledges=inner,
            )
            for topic in (journal.topic, *(mailbox.topic for mailbox, _ in ours)):
                self.connection.backend.touch(topic)
            return done

        with_them = f"{sum(len(each) for _, each in ours)} sent, {' '.join(message.id for message in taken) or 'none'} acknowledged"
        done = self.connection.do(append, f"append epoch {epoch} after {expect} {append_id}, {with_them}")
        lost = [message for message in taken if message.inner in done.lost]
        return done._replace(lost=lost)

    def journal(self, name: str) -> Journal:
        return SimJournal(self.connection, self._inner.journal(name))

    def election(self, name: str) -> Election:
        return SimElection(self.connection, self._inner.election(name))

    def store(self, name: str) -> Store:
        return SimStore(self.connection, self._inner.store(name))

    def now(self) -> float:
        return self.connection.do(self._inner.now)

    def close(self) -> None:
        self.connection.closed = True
        self.connection.backend.end_polls(self.connection)


class SimJournal(Journal):
    def __init__(self, connection: Connection, inner: Journal) -> None:
        self.name = inner.name
        self._connection, self.inner = connection, inner
        self.topic = PollTopic("journal", inner.name)

    def append(self, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str) -> int:
        events = tuple(events)  # a late append must not see what its caller does to the list meanwhile
        return self._connection.do(
            lambda: self.inner.append(events, epoch=epoch, expect=expect, append_id=append_id),
            f"append epoch {epoch} after {expect} {append_id}",
            touches=self.topic,
        )

    def head(self) -> Head:
        return self._connection.do(self.inner.head)

    def read(self, after: int = 0, *, limit: int = 1_000) -> list[Entry]:
        return self._connection.do(lambda: self.inner.read(after, limit=limit))

    def follow(self, after: int, wait_time_seconds: float) -> list[Entry]:
        call = self._connection.call
        if call is not None and call.polled_before and self._connection.closed:
            return []
        wait_s = call.remaining(wait_time_seconds) if call is not None else wait_time_seconds
        return self._connection.do(lambda: self.inner.follow(after, wait_s), waits=(self.topic,))

    def wake(self) -> None:
        self.inner.wake()  # local to the process: it needs no engine
        self._connection.backend.touch(self.topic)

    def snapshot(self, state: bytes, seq: int, *, epoch: int) -> None:
        self._connection.do(lambda: self.inner.snapshot(state, seq, epoch=epoch), f"snapshot at {seq} epoch {epoch}")

    def latest_snapshot(self) -> Snapshot | None:
        return self._connection.do(self.inner.latest_snapshot)

    def truncate(self, seq: int) -> None:
        self._connection.do(lambda: self.inner.truncate(seq), f"truncate up to {seq}")


class SimElection(Election):
    def __init__(self, connection: Connection, inner: Election) -> None:
        self.name = inner.name
        self._connection, self._inner = connection, inner

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        asked_at = self._connection.asked_at
        term = self._connection.do(
            lambda: self._inner.campaign(candidate, ttl, above=above), f"campaign for {candidate} above {above}"
        )
        return None if term is None else self._as_ours(term, asked_at)

    def _as_ours(self, term: Term, asked_at: float) -> Term:
        """Returns the term as its holder sees it. The engine counted in its own time; the holder relies on its own clock, read before it asked."""
        return term._replace(safe_until=asked_at + term.ttl - term_margin(term.ttl))

    def renew(self, term: Term) -> Term:
        asked_at = self._connection.asked_at
        return self._as_ours(
            self._connection.do(lambda: self._inner.renew(term), f"renew epoch {term.epoch}"), asked_at
        )

    def resign(self, term: Term) -> None:
        self._connection.do(lambda: self._inner.resign(term), f"resign epoch {term.epoch}")

    def current(self) -> Leader | None:
        return self._connection.do(self._inner.current)


class SimStore(Store):
    def __init__(self, connection: Connection, inner: Store) -> None:
        self.name = inner.name
        self._connection, self._inner = connection, inner

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        self._connection.do(lambda: self._inner.put(key, value, fence=fence, ttl=ttl), f"put {key} {len(value)} bytes")

    def get(self, key: str) -> bytes | None:
        return self._connection.do(lambda: self._inner.get(key))

    def delete(self, key: str) -> bool:
        return self._connection.do(lambda: self._inner.delete(key), f"delete {key}")

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> list[str]:
        return self._connection.do(lambda: self._inner.list(prefix, limit=limit, after=after))

    def put_many(self, values: Mapping[str, bytes | None], *, fence: Fence, ttl: float | None = None) -> None:
        what = f"put {len(values)} values, {sum(len(value or b'') for value in values.values())} bytes"
        self._connection.do(lambda: self._inner.put_many(values, fence=fence, ttl=ttl), what)

    def put_each(self, values: Mapping[str, bytes], *, ttl: float | None = None) -> None:
        what = f"put {len(values)} values, {sum(map(len, values.values()))} bytes"
        self._connection.do(lambda: self._inner.put_each(values, ttl=ttl), what)

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        return self._connection.do(lambda: self._inner.get_many(keys))

    def scan(
        self, prefix: str = "", *, limit: int = 1_000, after: str | None = None, reverse: bool = False
    ) -> builtins.list[tuple[str, bytes]]:
        return self._connection.do(lambda: self._inner.scan(prefix, limit=limit, after=after, reverse=reverse))

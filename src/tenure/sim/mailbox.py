"""Mailboxes as a simulated process sees them: each call goes over its connection, leases count by its own clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

from tenure.engines.contracts import (
    BodyT,
    DeadLetter,
    DeadLetters,
    Depth,
    Mailbox,
    Message,
    Outgoing,
    ReplyT,
    Sent,
    Ticket,
)
from tenure.sim.backend import PollTopic
from tenure.sim.calls import Connection


class SimMailbox(Mailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    def __init__(self, connection: Connection, inner: Mailbox[BodyT, ReplyT]) -> None:
        self.name = inner.name
        self._connection, self._inner = connection, inner
        self.topic = PollTopic("mailbox", inner.name)

    def send(
        self,
        body: BodyT,
        *,
        key: str | None = None,
        generation: int = 0,
        reply_to: Mailbox[ReplyT, Any] | str | None = None,
        delay: float = 0,
    ) -> str:
        to = reply_to.name if isinstance(reply_to, Mailbox) else reply_to
        return self._connection.do(
            lambda: self._inner.send(body, key=key, generation=generation, reply_to=to, delay=delay),
            f"send to {self.name} key {key} generation {generation}",
            touches=self.topic,
        )

    def send_many(self, messages: Sequence[Outgoing[BodyT]]) -> list[Sent]:
        batch = tuple(messages)
        return self._connection.do(
            lambda: self._inner.send_many(batch), f"send {len(batch)} to {self.name}", touches=self.topic
        )

    def receive(
        self,
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        *,
        provisional: bool = False,
    ) -> list[Message[BodyT, ReplyT]]:
        connection = self._connection
        asked_at, call = connection.asked_at, connection.call
        if call is not None and call.polled_before and self.closed:
            return []  # closing ends a long poll that is under way without an error
        wait_s = call.remaining(wait_time_seconds) if call is not None and wait_time_seconds else wait_time_seconds

        def claim() -> list[Message[BodyT, ReplyT]]:
            claimed = self._inner.receive(max_messages, visibility_timeout, wait_s, provisional=provisional)
            if claimed:
                # Whoever still waits must know when this lease runs out: the first in line looks after it for all.
                connection.backend.touch_first(self.topic)
                ids = " ".join(f"{message.id}#{message.delivery_count}" for message in claimed)
                connection.backend.world.record(connection.host.id, f"receive from {self.name}: {ids}")
            return claimed

        found = connection.do(claim, waits=self.topic)
        return [SimMessage(self, message, asked_at + visibility_timeout) for message in found]

    def adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        return SimMessage(self, self._inner.adopt(ticket), ticket.lease_until)

    def wake(self) -> None:
        self._inner.wake()  # local to the process: it needs no engine
        self._connection.backend.touch(self.topic)

    def revoke(self, key: str) -> bool:
        return self._connection.do(lambda: self._inner.revoke(key), f"revoke {key} in {self.name}")

    def depth(self) -> Depth:
        return self._connection.do(self._inner.depth)

    def purge(self) -> int:
        return self._connection.do(self._inner.purge, f"purge {self.name}")

    @property
    def dead_letters(self) -> DeadLetters:
        return SimDeadLetters(self._connection, self._inner.dead_letters, self.topic)

    @property
    def closed(self) -> bool:
        return self._inner.closed or self._connection.closed

    def close(self) -> None:
        self._inner.close()
        self._connection.backend.touch(self.topic)

    @property
    def connection(self) -> Connection:
        return self._connection


class SimMessage(Message[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """One delivery; its lease ends by this process's clock, counted from before it asked."""

    def __init__(self, mailbox: SimMailbox[Any, Any], inner: Message[BodyT, ReplyT], lease_until: float) -> None:
        self._mailbox, self._inner = mailbox, inner
        self.id, self.body, self.receipt_handle = inner.id, inner.body, inner.receipt_handle
        self.delivery_count, self.forgiven, self.enqueued_at = inner.delivery_count, inner.forgiven, inner.enqueued_at
        self.reply_to, self.checkpoint, self.failure = inner.reply_to, inner.checkpoint, inner.failure
        self.key, self.generation, self.suspect = inner.key, inner.generation, inner.suspect
        self.lease_until = lease_until

    def _do(self, act: Any, what: str, *, frees: bool = False, answers: bool = False) -> None:
        """`frees`: it may be claimed again. `answers`: something comes to where its replies go."""
        connection = self._mailbox.connection
        connection.do(act, f"{what} {self.id} #{self.delivery_count}", touches=self._mailbox.topic if frees else None)
        if answers and self.reply_to is not None:
            connection.backend.touch(PollTopic("mailbox", self.reply_to))

    def acknowledge(self) -> None:
        self._do(self._inner.acknowledge, "acknowledge")

    def nack(self, visibility_timeout: float = 0) -> None:
        self._do(lambda: self._inner.nack(visibility_timeout), "nack", frees=True, answers=True)

    def release(self) -> None:
        self._do(self._inner.release, "release", frees=True)

    def extend_visibility(self, seconds: float, checkpoint: bytes | None = None) -> None:
        asked_at = self._mailbox.connection.asked_at
        self._do(lambda: self._inner.extend_visibility(seconds, checkpoint), "extend")

        def hold() -> None:
            self.lease_until = max(self.lease_until, asked_at + seconds)

        self._mailbox.connection.when_answered(hold)

    def reply(self, body: ReplyT) -> None:
        self._do(lambda: self._inner.reply(body), "reply to", answers=True)

    def settle(self, reply: ReplyT) -> None:
        self._do(lambda: self._inner.settle(reply), "settle", answers=True)

    def dead_letter(self, reason: str) -> None:
        self._do(lambda: self._inner.dead_letter(reason), "give up", answers=True)


class SimDeadLetters(DeadLetters):
    def __init__(self, connection: Connection, inner: DeadLetters, topic: PollTopic) -> None:
        self._connection, self._inner, self._topic = connection, inner, topic

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        return self._connection.do(lambda: self._inner.list(limit=limit, after=after))

    def count(self) -> int:
        return self._connection.do(self._inner.count)

    def replay(self, message_id: str) -> bool:
        return self._connection.do(lambda: self._inner.replay(message_id), f"replay {message_id}", touches=self._topic)

    def delete(self, message_id: str) -> bool:
        return self._connection.do(lambda: self._inner.delete(message_id), f"delete dead letter {message_id}")

    def purge(self) -> int:
        return self._connection.do(self._inner.purge, f"purge dead letters of {self._topic.name}")

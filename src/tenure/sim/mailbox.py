"""Mailboxes, deliveries and consumers as a simulated process has them: those of the shared memory engine, through its own connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

from tenure.engines.contracts import (
    NO_REPLY,
    BodyT,
    Consumer,
    DeadLetter,
    DeadLetters,
    Depth,
    Engine,
    Exchanged,
    Mailbox,
    Message,
    Outgoing,
    ReplyT,
    Sent,
    Settlement,
    Ticket,
    Withdrawal,
)
from tenure.sim.calls import Connection, PollTopic


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

        found = connection.do(claim, waits=(self.topic,))
        return [SimMessage(self, message, asked_at + visibility_timeout) for message in found]

    def adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        return SimMessage(self, self._inner.adopt(ticket), ticket.lease_until)

    def wake(self) -> None:
        self._inner.wake()  # local to the process: it needs no engine
        self._connection.backend.touch(self.topic)

    def revoke(self, key: str) -> bool:
        return self._connection.do(lambda: self._inner.revoke(key), f"revoke {key} in {self.name}")

    def withdraw(self, key: str, generation: int) -> Withdrawal:
        says = f"withdraw {key} up to {generation} from {self.name}"
        return self._connection.do(lambda: self._inner.withdraw(key, generation), says)

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

    @property
    def mailbox(self) -> str:
        return self._inner.mailbox

    @property
    def inner(self) -> Message[BodyT, ReplyT]:
        """The delivery as the shared engine has it."""
        return self._inner

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

    def append_step(self, record: bytes, seconds: float = 0) -> None:
        asked_at = self._mailbox.connection.asked_at
        self._do(lambda: self._inner.append_step(record, seconds), "step of")

        def hold() -> None:
            self.lease_until = max(self.lease_until, asked_at + seconds)

        self._mailbox.connection.when_answered(hold)

    def steps(self) -> list[bytes]:
        found: list[bytes] = self._mailbox.connection.do(
            self._inner.steps, f"steps of {self.id} #{self.delivery_count}"
        )
        return found

    def reply(self, body: ReplyT) -> None:
        self._do(lambda: self._inner.reply(body), "reply to", answers=True)

    def settle(self, reply: ReplyT) -> None:
        self._do(lambda: self._inner.settle(reply), "settle", answers=True)

    def dead_letter(self, reason: str) -> None:
        self._do(lambda: self._inner.dead_letter(reason), "give up", answers=True)


class SimConsumer(Consumer[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """One consumer of the shared engine for each of a process: what it remembers of repeated calls is there."""

    def __init__(self, connection: Connection, engine: Engine, inner: Consumer[BodyT, ReplyT]) -> None:
        self._connection, self._engine, self._inner = connection, engine, inner
        self._topics: tuple[PollTopic, ...] = ()
        self._mailboxes: dict[str, SimMailbox[BodyT, ReplyT]] = {}

    def cover(self, ranks: Sequence[Sequence[str]]) -> None:
        before = self._topics
        self._inner.cover(ranks)
        self._topics = tuple(PollTopic("mailbox", name) for name in dict.fromkeys(n for rank in ranks for n in rank))
        self._touch(before)  # a poll that is under way goes on with the new ones

    def exchange(
        self,
        settlements: Sequence[Settlement[BodyT, ReplyT]] = (),
        *,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        **options: Any,
    ) -> Exchanged[BodyT, ReplyT]:
        connection = self._connection
        asked_at, call = connection.asked_at, connection.call
        group = [Settlement(_inner_of(message), reply) for message, reply in settlements]
        ours = {id(inner): message for (inner, _), (message, _) in zip(group, settlements, strict=True)}
        again = call is not None and call.polled_before
        if again and self.closed:
            return Exchanged([], [])
        wait_s = call.remaining(wait_time_seconds) if call is not None and wait_time_seconds else wait_time_seconds

        def claim(settled: Sequence[Settlement[BodyT, ReplyT]], wait_s: float) -> Exchanged[BodyT, ReplyT]:
            options.update(visibility_timeout=visibility_timeout, wait_time_seconds=wait_s)
            return self._inner.exchange(settled, **options)

        def act() -> Exchanged[BodyT, ReplyT]:
            if call is None or not wait_s:
                return self._note(group, claim(group, wait_s))
            if not again:  # what is settled is settled once, however often the poll looks
                call.kept = self._note(group, claim(group, 0))
            first: Exchanged[BodyT, ReplyT] = call.kept
            if first.messages or options.get("max_messages") == 0:
                return first
            return first._replace(messages=self._note((), claim((), wait_s)).messages)

        found, lost, refused = connection.do(act, waits=self._topics)
        messages = [self._ours(message, asked_at + visibility_timeout) for message in found]
        return Exchanged(
            messages, [ours[id(inner)] for inner in lost], [(ours[id(inner)], error) for inner, error in refused]
        )

    def _note(
        self, group: Sequence[Settlement[BodyT, ReplyT]], done: Exchanged[BodyT, ReplyT]
    ) -> Exchanged[BodyT, ReplyT]:
        """Writes it into the trace, and tells those who wait for the replies or must know of a new lease."""
        backend = self._connection.backend
        if group or done.messages:
            settled = " ".join(f"{message.id}#{message.delivery_count}" for message, _ in group)
            claimed = " ".join(f"{message.id}#{message.delivery_count}" for message in done.messages)
            backend.world.record(self._connection.host.id, f"exchange {settled} for {claimed}")
        for message, reply in group:
            if reply is not NO_REPLY and message.reply_to is not None:
                backend.touch(PollTopic("mailbox", message.reply_to))
        for message in done.messages:
            backend.touch_first(PollTopic("mailbox", message.mailbox))
        return done

    def _ours(self, message: Message[BodyT, ReplyT], lease_until: float) -> Message[BodyT, ReplyT]:
        mailbox = self._mailboxes.get(message.mailbox)
        if mailbox is None:
            mailbox = self._mailboxes[message.mailbox] = SimMailbox(
                self._connection, self._engine.mailbox(message.mailbox)
            )
        return SimMessage(mailbox, message, lease_until)

    def extend(self, messages: Sequence[Message[BodyT, ReplyT]], seconds: float) -> list[Message[BodyT, ReplyT]]:
        asked_at = self._connection.asked_at
        inner = [_inner_of(message) for message in messages]
        ids = " ".join(message.id for message in messages)
        dead = self._connection.do(lambda: self._inner.extend(inner, seconds), f"extend {ids}")
        lost = [message for message, one in zip(messages, inner, strict=True) if one in dead]

        def hold() -> None:
            for message in messages:
                if message not in lost:
                    message.lease_until = max(message.lease_until, asked_at + seconds)

        self._connection.when_answered(hold)
        return lost

    def _touch(self, topics: Sequence[PollTopic]) -> None:
        for topic in topics:
            self._connection.backend.touch(topic)

    def wake(self) -> None:
        self._inner.wake()  # local to the process: it needs no engine
        self._touch(self._topics)

    @property
    def closed(self) -> bool:
        return self._inner.closed or self._connection.closed

    def close(self) -> None:
        self._inner.close()
        self._touch(self._topics)


def _inner_of(message: Message[BodyT, ReplyT]) -> Message[BodyT, ReplyT]:
    return message.inner if isinstance(message, SimMessage) else message


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

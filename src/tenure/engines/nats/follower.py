"""Following a stream: every message in order, once, from a sequence on, over lost connections and servers that die.

A push consumer that only lives as long as we do: no acknowledgements, so no `max_ack_pending`; flow control instead, so that a slow
reader slows the server down rather than losing messages. Its heartbeats tell that it lives. Whatever is odd (a gap in its
numbers, silence, a new connection) ends it, and another one starts after the last message that was taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from tenure.engines.nats.background import end
from tenure.engines.nats.link import Link

log = logging.getLogger("tenure.engines.nats")

_HEARTBEAT_S = 0.5
_SILENCE_S = 2.0
_LOOK_EVERY_S = 0.25
_INACTIVE_S = 10

Take = Callable[[int, float, bytes], bool]


class Follower:
    """Calls `take(sequence, time, data)` for each message. It answers False when there is a gap before that message."""

    def __init__(self, link: Link, stream: str, take: Take, *, headers_only: bool = False) -> None:
        self._link, self._stream, self._take = link, stream, take
        self._headers_only = headers_only
        self.after = 0
        self._heard = 0.0
        self._expected = 1  # of the consumer's own numbers
        self._round = 0
        self._consumer = ""
        self._subscription: Subscription | None = None
        self._must_restart = False
        self._news = asyncio.Event()
        """Set when there may be something to do; `_watch` clears it before each look, so that it never runs without waiting."""
        self._task: asyncio.Task[None] | None = None
        self.on_trouble: Callable[[Exception], None] = lambda error: None
        self.before_start: Callable[[], Any] | None = None
        """Awaited before each start: it may move `after`, or raise what ends the following."""

    async def start(self, after: int) -> None:
        """Begin; raises what prevents the first consumer."""
        self.after = after
        await self._begin()
        self._link.watchers.append(self._on_link)
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            await end([self._task])
        with contextlib.suppress(ValueError):
            self._link.watchers.remove(self._on_link)
        await self._end()

    @property
    def alive(self) -> bool:
        """Returns True when the server answered lately."""
        return not self._must_restart and self._link.clock.monotonic() - self._heard < _SILENCE_S

    def again(self) -> None:
        """Start over after the last message that was taken."""
        self._must_restart = True
        self._news.set()

    def _on_link(self, up: bool) -> None:
        if up:
            self.again()
        else:
            self._heard = 0.0

    async def _begin(self) -> None:
        await self._end()
        if self.before_start is not None:
            await self.before_start()
        self._round += 1
        mine = self._round
        inbox = self._link.client.new_inbox()

        async def on_message(message: Msg) -> None:
            if mine == self._round:
                await self._on_message(message)

        self._expected = 1
        # No limit of the client's own: flow control bounds what waits here, and what it would drop is never sent again.
        self._subscription = await self._link.client.subscribe(
            inbox, cb=on_message, pending_msgs_limit=0, pending_bytes_limit=0
        )
        config: dict[str, Any] = {
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.after + 1,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(_HEARTBEAT_S * 10**9),
            "inactive_threshold": _INACTIVE_S * 10**9,
            "mem_storage": True,
            "num_replicas": 1,
        }
        if self._headers_only:
            config["headers_only"] = True
        answer = await self._link.ask(
            f"CONSUMER.CREATE.{self._stream}", {"stream_name": self._stream, "config": config}
        )
        self._consumer = answer["name"]
        self._heard = self._link.clock.monotonic()

    async def _end(self) -> None:
        subscription, self._subscription = self._subscription, None
        consumer, self._consumer = self._consumer, ""
        self._round += 1
        if subscription is not None:
            with contextlib.suppress(Exception):  # it may have died with its server; nobody listens to it any more
                await (
                    subscription.unsubscribe()
                )  # also without a connection, or the client takes it over to the next one
                if consumer and self._link.client.is_connected:
                    await self._link.client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{consumer}", b"")

    async def _watch(self) -> None:
        """Start over whenever it must be, for ever. Each round waits for news or for a moment, whatever state it finds."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._news.wait()
            self._news.clear()
            if self.alive or not self._link.client.is_connected:
                continue
            self._must_restart = False
            try:
                await self._begin()
            except Exception as error:  # whatever it is, the process must find back once the server answers
                log.warning("following %s: %s", self._stream, error)
                self.on_trouble(error)
                self._must_restart = True

    async def _on_message(self, message: Msg) -> None:
        self._heard = self._link.clock.monotonic()
        headers = message.headers
        if headers and headers.get("Status") == "100":
            stalled = message.reply or headers.get("Nats-Consumer-Stalled")
            if stalled:  # flow control: we are this far
                await self._link.client.publish(stalled, b"")
            if (last := headers.get("Nats-Last-Consumer")) and int(last) != self._expected - 1:
                self.again()
            return
        fields = message.reply.split(".")
        base = 5 if len(fields) == 9 else 7
        sequence, number, at = int(fields[base]), int(fields[base + 1]), int(fields[base + 2]) / 1e9
        if number != self._expected or self._must_restart:
            self.again()
            return
        if not self._take(sequence, at, message.data):
            self.again()
            return
        self._expected += 1
        self.after = sequence


def unix(text: str) -> float:
    """A time as JetStream's API writes it, with nanoseconds."""
    head, _, rest = text.rstrip("Z").partition(".")
    whole = datetime.fromisoformat(head).replace(tzinfo=UTC).timestamp()
    return whole + float(f"0.{rest}" if rest else 0)

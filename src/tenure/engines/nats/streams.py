"""The streams of one engine: their names, how they are made, that nothing in their settings drops data in silence, and how to follow one.

A follower gets every message in order, once, from a sequence on, over lost connections and servers that die. It is a push consumer that only lives
as long as we do: no acknowledgements, so no `max_ack_pending`; flow control instead, so that a slow reader slows the server down
rather than losing messages. Its heartbeats tell that it lives. Whatever is odd (a gap in its numbers, silence, a new connection)
ends it, and another one starts after the last message that was taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from tenure.engines.nats import address as faults
from tenure.engines.nats.address import ApiError
from tenure.engines.nats.connection import NatsConnection, end
from tenure.errors import EngineRefusedError

_PLAIN = re.compile(r"[A-Za-z0-9\-]")
_LONGEST = 120  # a stream's name is also the name of a folder

DEDUPE_S = 120
"""For how long the server recognises a repeated sending; a call gives up far earlier."""

# Every limit that would drop or refuse something in silence, and the value that does not.
UNLIMITED: dict[str, Any] = {
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msg_size": -1,
    "storage": "file",
}


class Names:
    """The names of streams and subjects in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.log_stream, self.log_subject = f"{namespace}_log", f"{namespace}.log"
        self.blob_stream = f"{namespace}_blobs"

    def journal_stream(self, journal: str) -> str:
        return f"{self.namespace}_j_{token(journal)}"

    def journal_subject(self, journal: str) -> str:
        return f"{self.namespace}.journal.{token(journal)}"

    def blob(self, name: str, chunk: int | str) -> str:
        return f"{self.namespace}.blob.{name}.{chunk}"

    def pointer(self, name: str) -> str:
        return f"{self.namespace}.pointer.{name}"


def token(name: str) -> str:
    """A name as one token of a subject and as a part of a stream's name: no dots, no slashes, and never two alike."""
    plain = "".join(char if _PLAIN.match(char) else f"_{ord(char):02x}" for char in name)
    if len(plain) <= _LONGEST:
        return plain
    return f"{plain[:60]}__{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def wanted(stream: str, subjects: list[str], replicas: int, **more: Any) -> dict[str, Any]:
    return {
        "name": stream,
        "subjects": subjects,
        "num_replicas": replicas or 1,
        "discard": "new",  # a full stream refuses; it does not drop what is oldest
        "allow_direct": True,
        "duplicate_window": DEDUPE_S * 10**9,
        "max_msgs_per_subject": -1,
        **UNLIMITED,
        **more,
    }


async def ensure(link: NatsConnection, config: dict[str, Any]) -> dict[str, Any]:
    """Make the stream, or check the one that is there; what the server says of it."""
    stream, replicas = config["name"], link.settings.replicas
    try:
        info = await link.ask(f"STREAM.INFO.{stream}")
    except ApiError as error:
        if error.number not in faults.NOT_FOUND:
            raise
        try:
            return await link.ask(f"STREAM.CREATE.{stream}", config)
        except ApiError as refused:
            if refused.number != 10058:  # somebody made it meanwhile, with other replicas perhaps
                raise
            info = await link.ask(f"STREAM.INFO.{stream}")
    found = info["config"]
    if wrong := [f"{name}={found.get(name)}" for name in silent_limits(found, config)]:
        raise EngineRefusedError(
            f"the stream {stream} has settings that lose or refuse data: {', '.join(wrong)}",
            remedy=f"nats stream edit {stream}, or remove it if it is not Tenure's",
        )
    if replicas and found["num_replicas"] != replicas:
        info = await link.ask(f"STREAM.UPDATE.{stream}", {**found, "num_replicas": replicas})
    return info


def silent_limits(found: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The settings that differ from what we need to keep what we promise."""
    checked = (*UNLIMITED, "discard", "subjects", "max_msgs_per_subject")
    wrong = [name for name in checked if found.get(name, config[name]) != config[name]]
    if found.get("duplicate_window", 0) < config["duplicate_window"]:
        wrong.append("duplicate_window")
    return wrong + [name for name in ("sealed", "deny_purge", "republish", "mirror", "sources") if found.get(name)]


log = logging.getLogger("tenure.engines.nats")

_HEARTBEAT_S = 0.5
_SILENCE_S = 2.0
_LOOK_EVERY_S = 0.25
_INACTIVE_S = 10

Take = Callable[[int, float, bytes], bool]


class Follower:
    """Calls `take(sequence, time, data)` for each message. It answers False when there is a gap before that message."""

    def __init__(self, link: NatsConnection, stream: str, take: Take, *, headers_only: bool = False) -> None:
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

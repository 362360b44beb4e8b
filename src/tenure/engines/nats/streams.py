"""The streams of one engine: their names, how they are made, that nothing in their settings drops data in silence, and how to follow one.

A follower gets every message in order, once, from a sequence on, over lost connections and servers that die. It is a push consumer that only lives
as long as we do: no acknowledgements, so no `max_ack_pending`; flow control instead, so that a slow reader slows the server down
rather than losing messages. Its heartbeats tell that it lives. Whatever is odd (a gap in its numbers, silence, a new connection)
ends it, and another one starts after the last message that was taken.

A blob is a value larger than a message, in chunks, and never changed. Whatever names it (a stored key, a snapshot) is written after it, so whoever finds
a name finds the whole blob, or a newer name. Pointers are small records that only move by compare-and-swap.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from tenure.engines.nats import address as faults
from tenure.engines.nats.address import ApiError
from tenure.engines.nats.connection import NatsConnection, end
from tenure.errors import EngineRefusedError
from tenure.randomness import new_id

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

_HEARTBEAT_S = 1.0
"""The server tells this often that an idle consumer lives. Each heartbeat wakes every process up."""
_SILENCE_S = 2.5
_LOOK_EVERY_S = 0.25
_INACTIVE_S = 10

_CONSUMER: dict[str, Any] = {
    "deliver_policy": "by_start_sequence",
    "ack_policy": "none",
    "max_deliver": 1,
    "replay_policy": "instant",
    "flow_control": True,
    "idle_heartbeat": int(_HEARTBEAT_S * 10**9),
    "inactive_threshold": _INACTIVE_S * 10**9,
    "mem_storage": True,
    "num_replicas": 1,
}

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
        self._lost_at: float | None = None
        """Our clock when the stream was found to be out of reach; None while it is followed."""
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

        def on_plain(reply: str, data: bytes) -> None:
            if mine == self._round:
                self._on_plain(reply, data)

        self._expected = 1
        # No limit of the client's own: flow control bounds what waits here, and what it would drop is never sent again.
        self._subscription = await self._link.client.subscribe(
            inbox, cb=on_message, pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._link.client.takers[self._subscription._id] = on_plain
        mine_only = {"deliver_subject": inbox, "opt_start_seq": self.after + 1, "headers_only": self._headers_only}
        config = {"stream_name": self._stream, "config": {**_CONSUMER, **mine_only}}
        answer = await self._link.ask(f"CONSUMER.CREATE.{self._stream}", config)
        self._consumer = answer["name"]
        self._heard = self._link.clock.monotonic()

    async def _end(self) -> None:
        subscription, self._subscription = self._subscription, None
        consumer, self._consumer = self._consumer, ""
        self._round += 1
        if subscription is not None:
            self._link.client.takers.pop(subscription._id, None)
            with contextlib.suppress(Exception):  # it may have died with its server; nobody listens to it any more
                # Also without a connection, or the client takes it over to the next one.
                await subscription.unsubscribe()
                if consumer and self._link.client.is_connected:
                    await self._link.client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{consumer}", b"")

    async def _watch(self) -> None:
        """Start over whenever it must be, for ever. Each round waits for news or for a moment, whatever state it finds."""
        while True:
            # While the server is heard, until the moment at which it will have been silent for too long: that costs an idle process nothing.
            silent_in = self._heard + _SILENCE_S - self._link.clock.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(_LOOK_EVERY_S, silent_in)):
                    await self._news.wait()
            self._news.clear()
            if self.alive:
                continue
            if not self._link.client.is_connected:
                self._link.end_stuck_goodbye()
                continue
            self._must_restart = False
            try:
                await self._begin()
            except Exception as error:  # whatever it is, the process must find back once the server answers
                self._tell(error)
                self.on_trouble(error)
                self._must_restart = True
            else:
                self._tell(None)

    def _tell(self, error: Exception | None) -> None:
        """Says once that the stream cannot be followed, and once that it can be again. Each try in between would say the same."""
        now = self._link.clock.monotonic()
        if error is not None and self._lost_at is None:
            self._lost_at = now
            log.warning("following %s: %s", self._stream, error)
        elif error is None and self._lost_at is not None:
            log.warning("following %s again after %.1f s", self._stream, now - self._lost_at)
            self._lost_at = None

    async def _on_message(self, message: Msg) -> None:
        headers = message.headers
        if not headers or headers.get("Status") != "100":
            self._on_plain(message.reply, message.data)
            return
        self._heard = self._link.clock.monotonic()
        stalled = message.reply or headers.get("Nats-Consumer-Stalled")
        if stalled:  # flow control: we are this far
            await self._link.client.publish(stalled, b"")
        # A lower number is an old heartbeat: plain messages that came after it have overtaken it.
        if (last := headers.get("Nats-Last-Consumer")) and int(last) >= self._expected:
            self.again()

    def _on_plain(self, reply: str, data: bytes) -> None:
        """Takes one message of the stream. Its place and time stand in the subject for replies."""
        self._heard = self._link.clock.monotonic()
        fields = reply.split(".")
        base = 5 if len(fields) == 9 else 7
        sequence, number, at = int(fields[base]), int(fields[base + 1]), int(fields[base + 2]) / 1e9
        if number != self._expected or self._must_restart:
            self.again()
            return
        if not self._take(sequence, at, data):
            self.again()
            return
        self._expected += 1
        self.after = sequence


def unix(text: str) -> float:
    """A time as JetStream's API writes it, with nanoseconds."""
    head, _, rest = text.rstrip("Z").partition(".")
    whole = datetime.fromisoformat(head).replace(tzinfo=UTC).timestamp()
    return whole + float(f"0.{rest}" if rest else 0)


_CHUNK = 524_288
_AT_ONCE = 8
ROOM = 4_096
"""The bytes of a server's max_payload that are left for headers, and for what surrounds the data of a message."""


class Pointer(NamedTuple):
    data: bytes
    revision: int


class BlobGoneError(Exception):
    """It was deleted after its name was read: read the name again."""


class Blobs:
    def __init__(self, link: NatsConnection, names: Names) -> None:
        self._link, self._names = link, names

    async def open(self) -> None:
        subjects = [self._names.blob(">", "")[:-1], self._names.pointer(">")]
        config = wanted(self._names.blob_stream, subjects, self._link.settings.replicas, max_msgs_per_subject=1)
        await ensure(self._link, config)

    async def write(self, name: str, value: bytes) -> int:
        """The number of chunks."""
        size = min(_CHUNK, self._link.max_payload - ROOM)
        chunks = [value[at : at + size] for at in range(0, len(value), size)] or [b""]
        for start in range(0, len(chunks), _AT_ONCE):
            few = enumerate(chunks[start : start + _AT_ONCE], start)
            await asyncio.gather(*(self._write_chunk(name, number, chunk) for number, chunk in few))
        return len(chunks)

    async def _write_chunk(self, name: str, number: int, chunk: bytes) -> None:
        headers = {"Nats-Msg-Id": f"{name}.{number}"}
        await self._link.write(self._names.blob_stream, self._names.blob(name, number), chunk, headers)

    async def read(self, name: str, chunks: int) -> bytes:
        """Raises `BlobGoneError`."""
        parts = []
        for start in range(0, chunks, _AT_ONCE):
            few = range(start, min(start + _AT_ONCE, chunks))
            parts += await asyncio.gather(*(self._read_chunk(name, number) for number in few))
        return b"".join(parts)

    async def _read_chunk(self, name: str, number: int) -> bytes:
        found = await self._last(self._names.blob(name, number))
        if found is None:
            raise BlobGoneError(name)
        return found.data

    async def delete(self, name: str) -> None:
        await self._link.ask(f"STREAM.PURGE.{self._names.blob_stream}", {"filter": self._names.blob(name, "*")})

    async def names(self) -> set[str]:
        """Returns the keys of all blobs, or of their first hundred thousand chunks."""
        everything = self._names.blob(">", "")[:-1]
        info = await self._link.ask(f"STREAM.INFO.{self._names.blob_stream}", {"subjects_filter": everything})
        return {subject.split(".")[2] for subject in info["state"].get("subjects") or ()}

    async def pointer(self, name: str) -> Pointer | None:
        return await self._last(self._names.pointer(name))

    async def move(self, name: str, data: bytes, revision: int) -> bool:
        """Write the pointer if it still is at this revision (0: if there is none)."""
        message_id = new_id()
        headers = {"Nats-Msg-Id": message_id, "Nats-Expected-Last-Subject-Sequence": str(revision)}
        try:
            await self._link.write(self._names.blob_stream, self._names.pointer(name), data, headers)
        except ApiError as error:
            if error.number not in faults.WRONG_LAST_SEQUENCE:
                raise
            return False
        return True

    async def _last(self, subject: str) -> Pointer | None:
        """From the stream's leader, never from a replica that may be behind."""
        try:
            answer = await self._link.ask(f"STREAM.MSG.GET.{self._names.blob_stream}", {"last_by_subj": subject})
        except ApiError as error:
            if error.number in faults.NOT_FOUND:
                return None
            raise
        message = answer["message"]
        return Pointer(base64.b64decode(message.get("data", "")), message["seq"])

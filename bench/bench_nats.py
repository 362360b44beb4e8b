"""NATS JetStream: our engine beside nats-py doing the same round trips by hand, on one private server.

Round trips, ours and the raw client's alike:

| operation | ours | raw |
|---|---|---|
| send | 1: a command into the log, back through the consumer | 1: `js.publish`, its answer |
| claim + acknowledge | 2: `claim`, `end` | 2: `fetch(1)`, `ack_sync` |
| claim + settle with a reply | 2: `claim`, `end` with the reply in it | 3: `fetch(1)`, `js.publish` of the reply, `ack_sync` |
| send_many of 100 | 1: one command | 100 `js.publish`, all in flight at once: the batch that nats-py has |
| claim 100 + acknowledge 100 | 2 | `fetch(100)`, 100 `ack_sync`, all in flight at once |
| both, packed | 1 and 2 | 1 and 2: one `js.publish` of a message with 100 bodies; `fetch(1)`, `ack_sync` of that one (no bar) |
| extend | 1: `extend` | 1: `in_progress`, then a flush |
| append | 1: `js.publish` with the expected last sequence | 1: the same |

The raw client is called as ours is: from a synchronous thread, with its event loop in another one, since engines are synchronous. It has a work-queue stream and a durable
pull consumer; it has no fence per delivery, no keys, no dead letters and no order of redelivery. Wake-up is from before `send` to after `receive` returned in another thread that was waiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any

import msgspec
import nats
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy
from tools.servers.nats import Nats

from bench.beside_raw import BATCHED, LEASE, RAW, Bench, Ours, our_wakes, tell_wakes, timed_wakes
from bench.harness import Report, rate
from tenure.engines import Engine
from tenure.engines.nats import commands
from tenure.engines.nats.ledger import Ledger
from tools.servers import CannotStart


class Raw:
    """The same round trips with nothing around them."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.seq = 0
        self.do(self._open(url))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def _open(self, url: str) -> None:
        self.client: Client = await nats.connect(url)
        self.js = self.client.jetstream()
        await self.js.add_stream(name="raw", subjects=["raw.work"], retention=RetentionPolicy.WORK_QUEUE)
        await self.js.add_stream(name="rawreplies", subjects=["raw.replies"])
        await self.js.add_stream(name="rawlog", subjects=["raw.log"])
        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=LEASE, max_ack_pending=10_000)
        self.pull = await self.js.pull_subscribe("raw.work", durable="workers", config=config)
        await self.js.add_stream(name="rawpacked", subjects=["raw.packed"], retention=RetentionPolicy.WORK_QUEUE)
        self.packed = await self.js.pull_subscribe("raw.packed", durable="packers", config=config)

    def send(self, count: int) -> None:
        for _ in range(count):
            self.do(self.js.publish("raw.work", RAW))

    def send_many(self, count: int) -> None:
        async def hundred() -> None:
            await asyncio.gather(*(self.js.publish("raw.work", RAW) for _ in range(100)))

        for _ in range(count // 100):
            self.do(hundred())

    def drain(self, count: int) -> None:
        for _ in range(count):
            (message,) = self.do(self.pull.fetch(1))
            self.do(message.ack_sync())

    def settle(self, count: int) -> None:
        for _ in range(count):
            (message,) = self.do(self.pull.fetch(1))
            self.do(self.js.publish("raw.replies", b"1"))
            self.do(message.ack_sync())

    def drain_many(self, count: int) -> None:
        async def acknowledge(messages: list[Any]) -> None:
            await asyncio.gather(*(message.ack_sync() for message in messages))

        done = 0
        while done < count:
            messages = self.do(self.pull.fetch(100))
            self.do(acknowledge(messages))
            done += len(messages)

    def extend(self, count: int) -> None:
        self.send(1)
        (message,) = self.do(self.pull.fetch(1))

        async def progress() -> None:
            await message.in_progress()
            await self.client.flush()

        for _ in range(count):
            self.do(progress())
        self.do(message.ack_sync())

    def append(self, count: int) -> None:
        for _ in range(count):
            headers = {"Nats-Expected-Last-Sequence": str(self.seq)}
            self.seq = self.do(self.js.publish("raw.log", RAW, headers=headers)).seq

    def close(self) -> None:
        self.do(self.client.close())
        self.loop.call_soon_threadsafe(self.loop.stop)


class Packed:
    """A batch as one message with all hundred bodies in it: as many round trips as ours, but one delivery for all of them."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    def send_many(self, count: int) -> None:
        for _ in range(count // 100):
            self.raw.do(self.raw.js.publish("raw.packed", msgspec.msgpack.encode([RAW] * 100)))

    def drain_many(self, count: int) -> None:
        for _ in range(count // 100):
            (message,) = self.raw.do(self.raw.packed.fetch(1))
            assert len(msgspec.msgpack.decode(message.data)) == 100
            self.raw.do(message.ack_sync())


def run(report: Report) -> None:
    logging.getLogger("tenure.engines.nats").setLevel(logging.ERROR)
    try:
        server = Nats().start()
    except CannotStart as reason:
        report.note(f"SKIPPED: {reason}")
        return
    with server, Engine.open(server.url) as engine:
        ours, raw = Ours(engine), Raw(server.url)
        try:
            Bench(report, ours, raw, "nats-py").run()
            packed(report, ours, Packed(raw))
            wakes(report, engine, raw)
        finally:
            raw.close()
    folding(report)


def packed(report: Report, ours: Ours, raw: Packed) -> None:
    """Without a bar: the other side delivers, leases and acknowledges one thing where we do a hundred."""
    for act, title in (("send_many", "batch: send 100"), ("drain_many", "batch: claim 100 + settle 100 (acknowledge)")):
        report.compare(
            title,
            lambda act=act: rate(lambda: getattr(ours, act)(BATCHED), count=BATCHED),
            lambda act=act: rate(lambda: getattr(raw, act)(BATCHED), count=BATCHED),
            beside="nats-py, a hundred bodies packed into one message",
            rounds=11,
        )


def wakes(report: Report, engine: Engine, raw: Raw) -> None:
    """In turn with a fetch that waits at the server: the least that JetStream can do."""
    mine, theirs = [], []
    for _ in range(4):
        mine += our_wakes(engine)
        theirs += raw_wakes(raw)
    tell_wakes(report, mine, theirs, "js.publish, a waiting fetch: no lease that fences")


def raw_wakes(raw: Raw) -> list[float]:
    taken: list[Any] = []
    return timed_wakes(
        lambda: taken.extend(raw.do(raw.pull.fetch(1, timeout=30))),
        lambda: raw.send(1),
        lambda: raw.do(taken.pop().ack_sync()),
    )


def folding(report: Report) -> None:
    """What anybody's operation costs every process, beside receiving it: decode and fold."""
    ledger, rounds = Ledger(), 5_000

    def apply(command: commands.AnyCommand) -> Any:
        data = commands.encode(command)
        seq = ledger.seq + 1
        return ledger.apply(commands.decode(data), seq, float(seq), len(data))

    def fold() -> None:
        for _ in range(rounds):
            seq = ledger.seq + 1
            apply(commands.Send(f"p.{seq}", "work", [commands.Item(RAW, reply_to="replies")]))
            (delivery,) = apply(commands.Claim(f"p.{seq + 1}", "work", 1, LEASE, None, False))
            apply(commands.End(f"p.{seq + 2}", "work", [(delivery.id, f"p.{seq + 1}")]))

    report.value("fold of one command, with its encoding and decoding", 1e6 / rate(fold, count=3 * rounds), "us")

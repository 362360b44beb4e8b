"""NATS JetStream: our engine beside nats-py doing the same round trips by hand, on one private server.

Round trips, ours and the raw client's alike:

| operation | ours | raw |
|---|---|---|
| send | 1: a command into the log, back through the consumer | 1: `js.publish`, its answer |
| claim + acknowledge | 2: `claim`, `end` | 2: `fetch(1)`, `ack_sync` |
| claim + settle with a reply | 2: `claim`, `end` with the reply in it | 3: `fetch(1)`, `js.publish` of the reply, `ack_sync` |
| send_many of 100 | 1: one command | 100 `js.publish`, all in flight at once |
| claim 100 + acknowledge 100 | 2 | `fetch(100)`, 100 `ack_sync`, all in flight at once |
| extend | 1: `extend` | 1: `in_progress`, then a flush |
| append | 1: `js.publish` with the expected last sequence | 1: the same |

The raw client is called as ours is: from a synchronous thread, with its event loop in another one, since engines are synchronous. It has a work-queue stream and a durable
pull consumer; it has no fence per delivery, no keys, no dead letters and no order of redelivery. Wake-up is from before `send` to after `receive` returned in another thread that was waiting.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import nats
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy
from tools.servers.nats import Nats

from bench.harness import Report, rate
from tenure.engines import Engine, Outgoing
from tenure.engines.nats import commands
from tenure.engines.nats.ledger import Ledger
from tools.servers import CannotStart

BODY = {"frame": 17, "path": "a/b/c.mov", "note": "x" * 150}
RAW = b'{"frame":17,"path":"a/b/c.mov","note":"' + b"x" * 150 + b'"}'
LEASE = 60.0
SINGLES = 200
ROUNDS = 11


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


class Ours:
    def __init__(self, engine: Engine) -> None:
        self.mailbox = engine.mailbox("work")
        self.journal = engine.journal("log")
        self.seq = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self.mailbox.send(BODY, reply_to="replies")

    def send_many(self, count: int) -> None:
        batch = [Outgoing(BODY, reply_to="replies")] * 100
        for _ in range(count // 100):
            self.mailbox.send_many(batch)

    def drain(self, count: int) -> None:
        for _ in range(count):
            self.mailbox.receive(1, LEASE)[0].acknowledge()

    def settle(self, count: int) -> None:
        for _ in range(count):
            self.mailbox.receive(1, LEASE)[0].settle(1)

    def drain_many(self, count: int) -> None:
        for _ in range(count // 100):
            assert not self.mailbox.acknowledge_many(self.mailbox.receive(100, LEASE))

    def extend(self, count: int) -> None:
        self.send(1)
        (message,) = self.mailbox.receive(1, LEASE)
        for _ in range(count):
            message.extend_visibility(LEASE)
        message.acknowledge()

    def append(self, count: int) -> None:
        for _ in range(count):
            self.seq = self.journal.append([RAW], epoch=1, expect=self.seq, append_id=str(self.seq))


def run(report: Report) -> None:
    logging.getLogger("tenure.engines.nats").setLevel(logging.ERROR)
    try:
        server = Nats().start()
    except CannotStart as reason:
        print(f"SKIPPED: {reason}")
        return
    with server, Engine.open(server.url) as engine:
        ours, raw = Ours(engine), Raw(server.url)
        try:
            singles(report, ours, raw)
            batches(report, ours, raw)
            wakes(report, engine)
        finally:
            raw.close()
    folding(report)


def singles(report: Report, ours: Ours, raw: Raw) -> None:
    for side in (ours, raw):
        side.send(50)
        side.drain(50)
    side_by_side(report, ours, raw, "send", "send, one by one", bar=0.8)
    side_by_side(report, ours, raw, "drain", "claim + acknowledge, one by one", bar=0.8)
    for side in (ours, raw):
        side.send_many(100 * (ROUNDS * SINGLES // 100 + 1))
    side_by_side(report, ours, raw, "settle", "claim + settle with a reply, one by one", bar=0.8)
    side_by_side(report, ours, raw, "extend", "extend, one by one")
    side_by_side(report, ours, raw, "append", "append, one by one", bar=0.8)


def side_by_side(
    report: Report, ours: Ours, raw: Raw, act: str, title: str, *, bar: float | None = None, count: int = SINGLES
) -> None:
    report.compare(
        title,
        lambda: rate(lambda: getattr(ours, act)(count), count=count),
        lambda: rate(lambda: getattr(raw, act)(count), count=count),
        beside="nats-py, same round trips",
        at_least=bar,
        rounds=ROUNDS,
    )


def batches(report: Report, ours: Ours, raw: Raw) -> None:
    for side in (ours, raw):
        side.send_many(200)
        side.drain_many(200)
    side_by_side(report, ours, raw, "send_many", "send_many of 100", bar=0.6, count=4_000)
    side_by_side(report, ours, raw, "drain_many", "claim 100 + acknowledge 100", bar=0.6, count=4_000)


def wakes(report: Report, engine: Engine) -> None:
    mailbox = engine.mailbox("wake")
    taken: list[Any] = []

    def take() -> None:
        (message,) = mailbox.receive(1, LEASE, 30)
        taken.append(message)

    times = sorted(timed_wakes(take, lambda: mailbox.send(1), lambda: taken.pop().acknowledge()))
    report.value("wake-up of a waiting consumer, p50", statistics.median(times) * 1e3, "ms", most=1.5)
    report.value("wake-up of a waiting consumer, p99", times[int(len(times) * 0.99)] * 1e3, "ms")


def timed_wakes(take: Callable[[], None], send: Callable[[], object], settle: Callable[[], object]) -> list[float]:
    times: list[float] = []
    begun, ready, done = 0.0, threading.Event(), threading.Event()

    def consume() -> None:
        for _ in range(200):
            ready.set()
            take()
            times.append(time.perf_counter() - begun)
            done.set()

    consumer = threading.Thread(target=consume)
    consumer.start()
    for _ in range(200):
        ready.wait()
        time.sleep(0.005)  # so that it waits for sure
        ready.clear()
        begun = time.perf_counter()
        send()
        done.wait()
        done.clear()
        settle()
    consumer.join()
    return times[20:]


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

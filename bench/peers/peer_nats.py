"""nats-py by hand: the worker loop that a user would write around a JetStream work queue."""

import asyncio
import contextlib
import sys

import nats
from driver import CONFIG, URL, Peer, answer_ping, itself, mark, serve
from nats.errors import TimeoutError as NothingCame
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig
from nats.js.errors import NotFoundError

STREAM = "peers-by-hand"
AT_ONCE = 1 if CONFIG == "one" else 200


async def work():
    client = await nats.connect(URL)
    config = ConsumerConfig(durable_name="w", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=10_000, ack_wait=30)
    pull = await client.jetstream().pull_subscribe(f"{STREAM}.>", durable="w", stream=STREAM, config=config)
    while True:
        try:
            messages = await pull.fetch(AT_ONCE, timeout=5)
        except NothingCame:
            continue
        for message in messages:
            kind, _, number = message.data.decode().partition(":")
            if kind == "noop":
                mark()
            else:
                answer_ping(int(number))
            await message.ack()


class NatsByHand(Peer):
    settings = (
        f"fetch({AT_ONCE}), ack without an answer, ack_wait 30 s; no lease per delivery, no keys, no dead letters"
    )
    client = None

    def worker(self):
        return itself("peer_nats")

    def reset(self):
        async def empty():
            if self.client is None:
                self.client = await nats.connect(URL)
                self.js = self.client.jetstream(publish_async_max_pending=2_000)
            with contextlib.suppress(NotFoundError):
                await self.js.delete_stream(STREAM)
            config = StreamConfig(name=STREAM, subjects=[f"{STREAM}.>"], retention=RetentionPolicy.WORK_QUEUE)
            await self.js.add_stream(config)

        self.run(empty())

    def fill(self, count):
        async def publish():
            for _ in range(count):
                await self.js.publish_async(f"{STREAM}.job", b"noop:")
            await self.js.publish_async_completed()

        self.run(publish())

    def ping(self, number):
        self.run(self.js.publish(f"{STREAM}.job", f"ping:{number}".encode()))


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        asyncio.run(work())
    else:
        serve(NatsByHand())

import asyncio
import sys

from driver import CONFIG, URL, Peer, answer_ping, itself, mark, serve
from saq import Queue, Worker


def make_queue():
    return Queue.from_url(URL, **({"max_size": 20} if CONFIG == "postgres" else {"max_concurrent_ops": 200}))


async def noop(ctx):
    mark()


async def ping(ctx, *, number):
    return answer_ping(number)


async def work():
    queue = make_queue()
    await queue.connect()
    await Worker(queue, [noop, ping], concurrency=20 if CONFIG == "postgres" else 100).start()


class Saq(Peer):
    settings = "concurrency 100 (PostgreSQL: 20), keeps jobs for 60 s"
    queue = None

    def worker(self):
        return itself("peer_saq")

    def reset(self):
        if self.queue is None:
            self.queue = make_queue()
            self.run(self.queue.connect())
        self.run(self._empty())

    async def _empty(self):
        if CONFIG != "postgres":
            await self.queue.redis.flushdb()
            return
        async with self.queue.pool.connection() as connection:
            await connection.execute("TRUNCATE saq_jobs, saq_stats")

    def fill(self, count):
        async def work():
            for _ in range(count):
                await self.queue.enqueue("noop", ttl=60)

        self.run(work())

    def filled(self):
        async def analyze():
            async with self.queue.pool.connection() as connection:
                await connection.execute("ANALYZE saq_jobs")

        if CONFIG == "postgres":
            self.run(analyze())

    def ping(self, number):
        self.run(self.queue.enqueue("ping", number=number, ttl=60))


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        asyncio.run(work())
    else:
        serve(Saq())

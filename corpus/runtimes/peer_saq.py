import asyncio

from saq import Queue, Worker

from corpus.job import Job
from corpus.runtimes.peer_base import LIMIT_S, MODE, PLACES, SCALE, STALL_S, URL, attempt_async, serve

BEST = (
    {"timeout": LIMIT_S, "heartbeat": round(STALL_S), "retries": 3} if MODE != "defaults" else {"timeout": 10 / SCALE}
)


class Beating(Job):
    """Tells saq of each beat, at most once a second, from whichever thread it comes."""

    def __init__(self, job, loop):
        self.job, self.loop, self.told = job, loop, 0.0

    def beat(self, done=None, total=None, fraction=None, note=None):
        if MODE != "defaults" and self.loop.time() - self.told > 0.5:
            self.told = self.loop.time()
            asyncio.run_coroutine_threadsafe(self.job.update(), self.loop)


async def case(ctx, *, name):
    return await attempt_async(name, Beating(ctx["job"], asyncio.get_running_loop()))


def worker():
    async def work():
        queue = Queue.from_url(URL)
        await queue.connect()
        timers = {"sweep": 1, "schedule": 1} if MODE != "defaults" else None
        await Worker(queue, [case], concurrency=PLACES, timers=timers).start()

    asyncio.run(work())


def submit(names):
    async def send():
        queue = Queue.from_url(URL)
        await queue.connect()
        for name in names:
            await queue.enqueue("case", name=name, key=name, **BEST)

    asyncio.run(send())


if __name__ == "__main__":
    import corpus.runtimes.peer_saq as me

    serve(me)

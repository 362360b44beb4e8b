import asyncio
import collections
import threading
import time

from saq import Queue, Worker

from corpus.runtimes.peer_base import BEST, LIMIT_S, PLACES, SCALE, STALL_S, URL, Beating, attempt_async, serve

OPTIONS = {"timeout": LIMIT_S, "heartbeat": round(STALL_S), "retries": 4} if BEST else {"timeout": 10 / SCALE}

START_S = 6


class SaqJob(Beating):
    """Tells saq of beats, and saves in the job's own record, which a retry finds again."""

    def __init__(self, job, loop):
        super().__init__()
        self.job, self.loop = job, loop
        self.sent = collections.deque(maxlen=20)  # a loop holds its tasks weakly

    def tell(self, done=None):
        self.sent.append(asyncio.run_coroutine_threadsafe(self.job.update(), self.loop))

    def checkpoint(self, state):
        self.sent.append(asyncio.run_coroutine_threadsafe(self.job.update(meta={"state": state}), self.loop))
        if threading.current_thread() is not threading.main_thread():
            self.sent[-1].result(10)

    @property
    def resume(self):
        return self.job.meta.get("state")


async def case(ctx, *, name):
    return await attempt_async(name, SaqJob(ctx["job"], asyncio.get_running_loop()) if BEST else None)


def worker():
    async def work():
        queue = Queue.from_url(URL)
        await queue.connect()
        timers = {"sweep": 3600, "schedule": 1, "abort": 0.1} if BEST else None
        await Worker(queue, [case], concurrency=PLACES, timers=timers).start()

    asyncio.run(work())


def tend():
    """Sweeps. A sweep takes a job for stuck that a worker has dequeued and not marked yet: some milliseconds, of which a real day with a
    sweep each minute sees nothing. At our scale it is one job in two, so the sweeps begin when the jobs have."""

    async def sweep():
        queue = Queue.from_url(URL)
        await queue.connect()
        await asyncio.sleep(START_S + 3)
        # A worker's first sweep locks out all others for as long as its timer says.
        await queue.redis.delete(queue._sweep)
        while True:
            # It waits so long for each job that it aborts; a sweep that lasts takes beats for older than they are.
            await queue.sweep(lock=1, abort=0.5)
            await asyncio.sleep(1)

    asyncio.run(sweep())


def submit(names):
    async def send():
        queue = Queue.from_url(URL)
        await queue.connect()
        # A worker sweeps when it starts, too: so the workers start first.
        begin = round(time.time()) + START_S
        for name in names:
            await queue.enqueue("case", name=name, key=name, scheduled=begin, **OPTIONS)

    asyncio.run(send())


if __name__ == "__main__":
    import corpus.runtimes.peer_saq as me

    serve(me)

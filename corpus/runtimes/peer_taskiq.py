import asyncio

from taskiq import SimpleRetryMiddleware
from taskiq_redis import RedisStreamBroker

from corpus.runtimes.peer_base import BEST, LIMIT_S, PLACES, SCALE, URL, attempt_async, program, serve

IDLE_S = LIMIT_S + 3 if BEST else 600 / SCALE  # by default it gives a message to another worker after ten minutes
# Without a limit on the lock, a worker that hangs while it holds it keeps all others from taking anything over.
LOCK = {"unacknowledged_lock_timeout": 2.0} if BEST else {}
broker = RedisStreamBroker(URL, consumer_id="0", idle_timeout=int(IDLE_S * 1000), xread_count=1, **LOCK)
if BEST:
    broker = broker.with_middlewares(SimpleRetryMiddleware(default_retry_count=3))
LABELS = {"timeout": LIMIT_S, "retry_on_error": True} if BEST else {}


@broker.task(task_name="case", **LABELS)
async def case(name: str):
    return await attempt_async(name)


def worker():
    few = ["--workers", str(PLACES + 4), "--max-async-tasks", "1", "--max-prefetch", "0"]
    program("taskiq", "worker", "corpus.runtimes.peer_taskiq:broker", *few)


def submit(names):
    async def send():
        await broker.startup()
        for name in names:
            await case.kiq(name)
        await broker.shutdown()

    asyncio.run(send())


if __name__ == "__main__":
    import corpus.runtimes.peer_taskiq as me

    serve(me)

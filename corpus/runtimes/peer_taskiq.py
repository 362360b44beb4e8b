import asyncio

from taskiq import SimpleRetryMiddleware
from taskiq_redis import RedisStreamBroker

from corpus.runtimes.peer_base import LIMIT_S, MODE, PLACES, URL, attempt_async, program, serve

broker = RedisStreamBroker(URL, consumer_id="0")
if MODE != "defaults":
    broker = broker.with_middlewares(SimpleRetryMiddleware(default_retry_count=3))
LABELS = {"timeout": LIMIT_S, "retry_on_error": True} if LIMIT_S else {}


@broker.task(task_name="case", **LABELS)
async def case(name: str):
    return await attempt_async(name)


def worker():
    few = ["--workers", str(PLACES + 4), "--max-async-tasks", "1", "--max-prefetch", "1"]
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

import asyncio

import arq
from arq.connections import RedisSettings

from corpus.runtimes.peer_base import LIMIT_S, PLACES, SCALE, URL, attempt_async, serve

SETTINGS = RedisSettings.from_dsn(URL)


async def case(ctx, name):
    return await attempt_async(name)


class WorkerSettings:
    functions = (case,)
    redis_settings = SETTINGS
    max_jobs = PLACES
    job_timeout = LIMIT_S or 300 / SCALE  # its default is five minutes


def worker():
    asyncio.set_event_loop(asyncio.new_event_loop())
    arq.run_worker(WorkerSettings)


def submit(names):
    async def send():
        pool = await arq.create_pool(SETTINGS)
        for name in names:
            await pool.enqueue_job("case", name)

    asyncio.run(send())


if __name__ == "__main__":
    import corpus.runtimes.peer_arq as me

    serve(me)

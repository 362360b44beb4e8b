import asyncio

import arq
from arq.connections import RedisSettings
from arq.worker import create_worker

from corpus.runtimes.peer_base import BEST, LIMIT_S, PLACES, SCALE, URL, attempt_async, serve

SETTINGS = RedisSettings.from_dsn(URL)


async def case(ctx, name):
    if not BEST:
        return await attempt_async(name)
    try:  # arq does not run a job again that went over its own limit
        return await asyncio.wait_for(attempt_async(name), LIMIT_S)
    except TimeoutError:
        raise arq.Retry(defer=0.1) from None


class WorkerSettings:
    functions = (case,)
    redis_settings = SETTINGS
    max_jobs = PLACES
    job_timeout = LIMIT_S + 1 if BEST else 300 / SCALE  # its default is five minutes


def worker():
    asyncio.set_event_loop(asyncio.new_event_loop())
    worker = create_worker(WorkerSettings)
    worker.in_progress_timeout_s -= (
        9  # a job that is not renewed belongs to others ten seconds after its limit: at our scale, far too long
    )
    worker.run()


def submit(names):
    async def send():
        pool = await arq.create_pool(SETTINGS)
        for name in names:
            await pool.enqueue_job("case", name)

    asyncio.run(send())


if __name__ == "__main__":
    import corpus.runtimes.peer_arq as me

    serve(me)

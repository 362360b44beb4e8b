import asyncio
import contextlib

import procrastinate

from corpus.runtimes.peer_base import BEST, LIMIT_S, PLACES, STALL_S, URL, attempt_async, serve

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL))
BEAT_S = 0.5


@app.task(name="case", retry=3 if BEST else False)
async def case(name):
    # It has no limit for a job, so its users write one themselves.
    return await asyncio.wait_for(attempt_async(name), LIMIT_S or None)


def worker():
    beats = {"update_heartbeat_interval": BEAT_S} if BEST else {}
    app.run_worker(concurrency=PLACES, **beats)


def tend():
    """Starts the jobs of workers again that beat no more, as its documentation advises."""

    async def sweep():
        async with app.open_async():
            while True:
                await asyncio.sleep(BEAT_S)
                for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALL_S):
                    await app.job_manager.retry_job(job)

    asyncio.run(sweep())


def submit(names):
    async def send():
        async with app.open_async():
            with contextlib.suppress(procrastinate.exceptions.ConnectorException):
                await app.schema_manager.apply_schema_async()
            for name in names:
                await case.defer_async(name=name)

    asyncio.run(send())


if __name__ == "__main__":
    import corpus.runtimes.peer_procrastinate as me

    serve(me)

import asyncio
import contextlib

import procrastinate

from corpus.runtimes.peer_base import MODE, PLACES, URL, attempt, serve

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL))


@app.task(name="case", retry=3 if MODE != "defaults" else False)
def case(name):
    return attempt(name)


def worker():
    app.run_worker(concurrency=PLACES)


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

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from corpus.job import Job
    from corpus.runtimes.peer_base import LIMIT_S, MODE, PLACES, SCALE, STALL_S, URL, attempt, serve

QUEUE = "corpus"


class Beating(Job):
    """Each beat is an activity's heartbeat."""

    def beat(self, done=None, total=None, fraction=None, note=None):
        if MODE != "defaults":
            activity.heartbeat(done)


@activity.defn
def act(name: str) -> str:
    return attempt(name, Beating())


@workflow.defn(sandboxed=False)
class CaseWorkflow:
    @workflow.run
    async def run(self, name: str) -> str:
        if MODE == "defaults":  # one of its timeouts is required: an hour
            limits = {"start_to_close_timeout": timedelta(seconds=3600 / SCALE)}
        else:
            limits = {
                "start_to_close_timeout": timedelta(seconds=LIMIT_S),
                "heartbeat_timeout": timedelta(seconds=STALL_S),
            }
        return await workflow.execute_activity(act, name, **limits)


def worker():
    async def work():
        client = await Client.connect(URL)
        threads = ThreadPoolExecutor(PLACES)
        given = {"workflows": [CaseWorkflow], "activities": [act], "activity_executor": threads}
        await Worker(client, task_queue=QUEUE, max_concurrent_activities=PLACES, **given).run()

    asyncio.run(work())


def submit(names):
    async def send():
        client = await Client.connect(URL)
        for name in names:
            await client.start_workflow(CaseWorkflow.run, name, id=name, task_queue=QUEUE)

    asyncio.run(send())


if __name__ == "__main__":
    import corpus.runtimes.peer_temporal as me

    serve(me)

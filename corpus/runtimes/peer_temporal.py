import asyncio
import contextlib
import contextvars
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from corpus.runtimes.peer_base import BEST, LIMIT_S, PLACES, SCALE, STALL_S, URL, Beating, attempt, serve

QUEUE = "corpus"


class TemporalJob(Beating):
    """Each beat is a heartbeat of the activity, and its details are the checkpoint."""

    def __init__(self):
        super().__init__()
        self._context = contextvars.copy_context()
        self._state = None

    def tell(self, done=None):
        activity.heartbeat(self._state)

    def helped(self):
        self._context.copy().run(self.tell)  # the helper's thread has no context of its own

    @contextlib.contextmanager
    def thread(self):
        for variable, value in self._context.items():
            variable.set(value)
        yield

    def checkpoint(self, state):
        self._state = state
        self.tell()

    @property
    def resume(self):
        details = activity.info().heartbeat_details
        return details[0] if details else None


@activity.defn
def act(name: str) -> str:
    return attempt(name, TemporalJob() if BEST else None)


@workflow.defn(sandboxed=False)
class CaseWorkflow:
    @workflow.run
    async def run(self, name: str) -> str:
        if not BEST:  # one of its timeouts is required: an hour
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
        if BEST:
            given["max_heartbeat_throttle_interval"] = timedelta(seconds=0.5)
        await Worker(client, task_queue=QUEUE, max_concurrent_activities=PLACES, **given).run()

    asyncio.run(work())


def submit(names):
    async def send():
        client = await Client.connect(URL)
        for name in names:
            await client.start_workflow(CaseWorkflow.run, name, id=name, task_queue=QUEUE)

    asyncio.run(send())
    os._exit(0)  # its threads sometimes crash the interpreter while that ends


if __name__ == "__main__":
    import corpus.runtimes.peer_temporal as me

    serve(me)

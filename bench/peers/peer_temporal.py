import asyncio
import os
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from driver import URL, Peer, answer_ping, itself, mark, serve

QUEUE = "peers"


@activity.defn
async def act(number: int) -> int:
    if number < 0:
        mark()
    else:
        answer_ping(number)
    return number


@workflow.defn(sandboxed=False)
class Job:
    @workflow.run
    async def run(self, number: int) -> int:
        return await workflow.execute_activity(act, number, start_to_close_timeout=timedelta(seconds=60))


async def work():
    client = await Client.connect(URL)
    many = {"max_concurrent_workflow_task_polls": 10, "max_concurrent_activity_task_polls": 10}
    many |= {"max_concurrent_activities": 500, "max_cached_workflows": 1000}
    await Worker(client, task_queue=QUEUE, workflows=[Job], activities=[act], **many).run()


class Temporal(Peer):
    settings = "dev server; a workflow with one activity, not sandboxed, 10 pollers, 500 activities at once"
    client = None

    def worker(self):
        return itself("peer_temporal")

    def reset(self):
        self.client = self.client or self.run(Client.connect(URL))

    async def _start(self, number):
        await self.client.start_workflow(Job.run, number, id=os.urandom(8).hex(), task_queue=QUEUE)

    def fill(self, count):
        async def submit():
            for _ in range(count):
                await self._start(-1)

        self.run(submit())

    def ping(self, number):
        self.run(self._start(number))


if __name__ == "__main__":
    import peer_temporal  # the worker's names are this module's, not those of __main__

    if sys.argv[1:] == ["worker"]:
        asyncio.run(peer_temporal.work())
    else:
        serve(peer_temporal.Temporal())

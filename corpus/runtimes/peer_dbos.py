import os
import time

from dbos import DBOS, DBOSClient

from corpus.job import Job
from corpus.runtimes.peer_base import BEST, LIMIT_S, URL, attempt, forever, serve

ADDRESS = URL.replace("postgresql://", "postgresql+psycopg://", 1)


@DBOS.step(name="save")
def save(state):
    return state


class DbosJob(Job):
    """Saves by a recorded step."""

    def checkpoint(self, state):
        save(state)

    @property
    def resume(self):
        # Asked from outside: inside a workflow the answer would be recorded, and be the same for ever.
        steps = DBOSClient(system_database_url=ADDRESS).list_workflow_steps(DBOS.workflow_id)
        return next((step["output"] for step in steps if step["function_name"] == "save"), None)


@DBOS.workflow(name="case")
def case(name):
    return attempt(name, DbosJob())


def launch():
    # Each process is an executor of its own. With one id for all, the start of one would recover what runs in the others.
    config = {"name": "corpus", "system_database_url": ADDRESS, "application_version": "1", "log_level": "INFO"}
    DBOS(config={**config, "executor_id": f"worker-{os.getpid()}", "sys_db_pool_size": 4})
    DBOS.launch()
    DBOS.register_queue("q", polling_interval_sec=0.5, worker_concurrency=1)


def worker():
    launch()
    forever()


def tend():
    """Resumes what went over its limit: DBOS cancels such a workflow, and leaves the rest to its user."""
    client = DBOSClient(system_database_url=ADDRESS)
    while True:
        time.sleep(0.5)
        for row in client.list_workflows(status=["CANCELLED"]):
            client.resume_workflow(row.workflow_id, queue_name="q")


def submit(names):
    launch()
    DBOS.destroy()
    client = DBOSClient(system_database_url=ADDRESS)
    limit = {"workflow_timeout": LIMIT_S} if BEST else {}
    for name in names:
        given = {"workflow_name": "case", "queue_name": "q", "app_version": "1", "workflow_id": name, **limit}
        client.enqueue(given, name)


def failed(names):
    client = DBOSClient(system_database_url=ADDRESS)
    rows = client.list_workflows(status=["CANCELLED", "ERROR", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"])
    return {row.workflow_id: [row.updated_at / 1000, f"{row.status} {row.error}"] for row in rows}


if __name__ == "__main__":
    import corpus.runtimes.peer_dbos as me

    serve(me)

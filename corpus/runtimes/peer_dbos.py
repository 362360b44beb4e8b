import sqlite3
import sys

if sqlite3.sqlite_version_info < (3, 42):  # DBOS asks for unixepoch('subsec')
    import pysqlite3

    sys.modules["sqlite3"] = sys.modules["sqlite3.dbapi2"] = pysqlite3

from dbos import DBOS, DBOSClient

from corpus.runtimes.peer_base import FOLDER, LIMIT_S, attempt, forever, serve

ADDRESS = f"sqlite:///{FOLDER}/dbos.sqlite"


@DBOS.workflow(name="case")
def case(name):
    return attempt(name)


def launch():
    DBOS(config={"name": "corpus", "system_database_url": ADDRESS, "application_version": "1", "log_level": "INFO"})
    DBOS.launch()
    DBOS.register_queue("q", polling_interval_sec=0.1, worker_concurrency=1)


def worker():
    launch()
    forever()


def submit(names):
    launch()
    DBOS.destroy()
    client = DBOSClient(system_database_url=ADDRESS)
    limit = {"workflow_timeout": LIMIT_S} if LIMIT_S else {}
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

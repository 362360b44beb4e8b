import sqlite3
import sys
import threading

if sqlite3.sqlite_version_info < (3, 42):  # DBOS asks for unixepoch('subsec')
    import pysqlite3

    sys.modules["sqlite3"] = sys.modules["sqlite3.dbapi2"] = pysqlite3

import sqlalchemy
from dbos import DBOS, DBOSClient
from driver import CONFIG, RUN, URL, Peer, answer_ping, itself, mark, serve

ADDRESS = f"sqlite:///{RUN}/dbos.sqlite" if CONFIG == "sqlite" else URL.replace("postgresql:", "postgresql+psycopg:")
TABLE = "workflow_status" if CONFIG == "sqlite" else "dbos.workflow_status"


@DBOS.workflow(name="noop")
def noop():
    mark()


@DBOS.workflow(name="ping")
def ping(number):
    return answer_ping(number)


def launch():
    DBOS(config={"name": "peers", "system_database_url": ADDRESS, "application_version": "1", "log_level": "WARNING"})
    DBOS.launch()
    DBOS.register_queue("q", polling_interval_sec=0.01)


class Dbos(Peer):
    settings = "one workflow per job on a queue that is polled every 10 ms"
    client = None

    def worker(self):
        return itself("peer_dbos")

    def reset(self):
        if self.client is None:
            launch()  # makes and migrates its tables
            DBOS.destroy()
            self.client = DBOSClient(system_database_url=ADDRESS)
        self._execute(f"DELETE FROM {TABLE}")

    def _execute(self, statement):
        engine = sqlalchemy.create_engine(ADDRESS)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(statement))
        engine.dispose()

    def _enqueue(self, name, *values):
        self.client.enqueue({"workflow_name": name, "queue_name": "q", "app_version": "1"}, *values)

    def fill(self, count):
        for _ in range(count):
            self._enqueue("noop")

    def filled(self):
        if CONFIG != "sqlite":
            self._execute(f"ANALYZE {TABLE}")

    def ping(self, number):
        self._enqueue("ping", number)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        launch()
        threading.Event().wait()
    else:
        serve(Dbos())

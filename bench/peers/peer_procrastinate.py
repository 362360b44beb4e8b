import contextlib
import sys

import procrastinate
from driver import URL, Peer, answer_ping, itself, mark, serve

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL))
TABLES = "procrastinate_jobs, procrastinate_events, procrastinate_periodic_defers"


@app.task(name="noop")
async def noop():
    mark()


@app.task(name="ping")
async def ping(number):
    return answer_ping(number)


class Procrastinate(Peer):
    settings = "concurrency 20, LISTEN/NOTIFY, deletes finished jobs"
    opened = False

    def worker(self):
        return itself("peer_procrastinate")

    def reset(self):
        if not self.opened:
            self.opened = True
            self.run(app.open_async())
            with contextlib.suppress(procrastinate.exceptions.ConnectorException):  # it is there already
                self.run(app.schema_manager.apply_schema_async())
        self.run(app.connector.execute_query_async(f"TRUNCATE {TABLES} RESTART IDENTITY CASCADE"))

    def fill(self, count):
        self.run(noop.batch_defer_async(*[{} for _ in range(count)]))

    def filled(self):
        self.run(app.connector.execute_query_async("ANALYZE procrastinate_jobs"))

    def ping(self, number):
        self.run(ping.defer_async(number=number))


if __name__ == "__main__":
    import peer_procrastinate  # so that the tasks are not those of __main__

    if sys.argv[1:] == ["worker"]:
        peer_procrastinate.app.run_worker(concurrency=20, delete_jobs="always")
    else:
        serve(peer_procrastinate.Procrastinate())

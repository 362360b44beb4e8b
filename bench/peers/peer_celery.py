import os
import sys

import redis
from celery import Celery
from driver import URL, Peer, answer_ping, mark, serve

app = Celery("peer_celery", broker=URL, backend=URL)
app.conf.broker_connection_retry_on_startup = True
app.conf.update(worker_prefetch_multiplier=256, worker_send_task_events=False, task_send_sent_event=False)


@app.task(name="noop", ignore_result=True)
def noop():
    mark()


@app.task(name="ping", ignore_result=True)
def ping(number):
    return answer_ping(number)


@app.task(name="echo")
def echo(number):
    return number


class CeleryPeer(Peer):
    settings = "solo pool, acknowledges early, ignores results, prefetch 256, no gossip, mingle, heartbeat or events"

    def worker(self):
        name = f"w{os.urandom(3).hex()}@h"
        command = [sys.executable, "-m", "celery", "-A", "peer_celery", "worker", "-n", name, "-P", "solo"]
        return [*command, "--without-gossip", "--without-mingle", "--without-heartbeat"]

    def reset(self):
        redis.Redis.from_url(URL).flushdb()

    def fill(self, count):
        for _ in range(count):
            noop.delay()

    def ping(self, number):
        ping.delay(number)

    def ask(self, number):
        return echo.delay(number).get(timeout=60)


if __name__ == "__main__":
    import peer_celery  # so that the tasks are not those of __main__

    serve(peer_celery.CeleryPeer())

from redis import Redis
from rq import Queue, Retry
from rq.worker_pool import WorkerPool

from corpus.runtimes.peer_base import LIMIT_S, MODE, PLACES, SCALE, URL, attempt, serve

connection = Redis.from_url(URL)
queue = Queue(connection=connection)
LIMIT = LIMIT_S or 180 / SCALE  # its default is three minutes


def case(name):
    return attempt(name)


def worker():
    WorkerPool(["default"], connection=connection, num_workers=PLACES).start()


def submit(names):
    again = {"retry": Retry(max=2)} if MODE != "defaults" else {}
    for name in names:
        queue.enqueue("corpus.runtimes.peer_rq.case", name, job_timeout=max(1, round(LIMIT)), **again)


if __name__ == "__main__":
    import corpus.runtimes.peer_rq as me

    serve(me)

from redis import Redis
from rq import Queue, Retry, Worker, get_current_job
from rq.worker_pool import WorkerPool

from corpus.job import Job
from corpus.runtimes.peer_base import BEST, LIMIT_S, PLACES, SCALE, URL, attempt, serve

connection = Redis.from_url(URL)
queue = Queue(connection=connection)
LIMIT = LIMIT_S or 180 / SCALE  # its default is three minutes
MINUTE_S = 60


class ScaledWorker(Worker):
    """A worker whose constants have the scale of the corpus: it kills a job that outlives its limit by another minute, and looks every half minute."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{**kwargs, "job_monitoring_interval": 1})

    @property
    def current_job_working_time(self):
        return self._worked_s + MINUTE_S - MINUTE_S / SCALE if self._worked_s else 0

    @current_job_working_time.setter
    def current_job_working_time(self, seconds):
        self._worked_s = seconds


class Saving(Job):
    """Saves in the record of the job, which a retry finds again."""

    def checkpoint(self, state):
        job = get_current_job(connection)
        job.meta["state"] = state
        job.save_meta()

    @property
    def resume(self):
        return get_current_job(connection).meta.get("state")


def case(name):
    return attempt(name, Saving() if BEST else None)


def worker():
    WorkerPool(["default"], connection=connection, num_workers=PLACES, worker_class=ScaledWorker).start()


def submit(names):
    again = {"retry": Retry(max=3)} if BEST else {}
    for name in names:
        queue.enqueue("corpus.runtimes.peer_rq.case", name, job_timeout=max(1, round(LIMIT)), **again)


if __name__ == "__main__":
    import corpus.runtimes.peer_rq as me

    serve(me)

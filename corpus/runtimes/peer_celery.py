from celery import Celery

from corpus.runtimes.peer_base import BEST, LIMIT_S, PLACES, URL, attempt, program, serve

app = Celery("corpus.runtimes.peer_celery", broker=URL, backend=URL)
app.conf.broker_connection_retry_on_startup = True
OPTIONS = {}
if BEST:
    app.conf.worker_prefetch_multiplier = 1
    app.conf.broker_transport_options = {"visibility_timeout": 3 * LIMIT_S}
    OPTIONS = {"time_limit": LIMIT_S + 1, "soft_time_limit": LIMIT_S, "acks_late": True, "reject_on_worker_lost": True}
    OPTIONS |= {"autoretry_for": (Exception,), "default_retry_delay": 0.5, "max_retries": 3}


@app.task(name="case", **OPTIONS)
def case(name):
    return attempt(name)


def worker():
    program("celery", "-A", "corpus.runtimes.peer_celery", "worker", "-c", str(PLACES), "-l", "INFO")


def submit(names):
    for name in names:
        case.apply_async((name,), task_id=name)


if __name__ == "__main__":
    import corpus.runtimes.peer_celery as me

    serve(me)

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from corpus.runtimes.peer_base import LIMIT_S, PLACES, SCALE, URL, attempt, program, serve

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)
LIMIT_MS = int((LIMIT_S or 600 / SCALE) * 1000)  # its default is ten minutes


@dramatiq.actor(time_limit=LIMIT_MS, min_backoff=int(15_000 / SCALE))
def case(name):
    return attempt(name)


def worker():
    os.environ["dramatiq_queue_prefetch"] = "1"  # else work waits behind a hung neighbour, and never begins
    program("dramatiq", "corpus.runtimes.peer_dramatiq", "-p", str(PLACES + 4), "-t", "1")


def submit(names):
    for name in names:
        case.send(name)


if __name__ == "__main__":
    import corpus.runtimes.peer_dramatiq as me

    serve(me)

import os
import sys

from driver import CONFIG, RUN, URL, Peer, answer_ping, mark, serve
from huey import RedisHuey, SqliteHuey

if CONFIG == "sqlite":
    huey = SqliteHuey("peers", filename=os.path.join(RUN, "huey.db"), results=True)
else:
    huey = RedisHuey("peers", url=URL, results=True)


@huey.task()
def noop():
    mark()


@huey.task()
def ping(number):
    answer_ping(number)


class Huey(Peer):
    settings = "1 thread, polls every 5 to 10 ms, quiet; a job that a killed worker had is lost"

    def worker(self):
        command = [sys.executable, "-m", "huey.bin.huey_consumer", "peer_huey.huey", "-w", "1"]
        return [*command, "-d", "0.005", "-m", "0.01", "-q"]

    def reset(self):
        huey.storage.flush_all()

    def fill(self, count):
        for _ in range(count):
            noop()

    def ping(self, number):
        ping(number)


if __name__ == "__main__":
    import peer_huey  # so that the tasks are not those of __main__

    serve(peer_huey.Huey())

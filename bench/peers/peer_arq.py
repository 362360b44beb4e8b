import sys

from arq import create_pool, func
from arq.connections import RedisSettings
from driver import URL, Peer, answer_ping, mark, serve

SETTINGS = RedisSettings.from_dsn(URL)


async def noop(ctx):
    mark()


async def ping(ctx, number):
    return answer_ping(number)


class WorkerSettings:
    functions = (func(noop, keep_result=0), ping)
    redis_settings = SETTINGS
    max_jobs = 200
    poll_delay = 0.01
    log_results = False


class Arq(Peer):
    settings = "max_jobs 200, polls every 10 ms, keeps no results, no line per job"
    pool = None

    def worker(self):
        return [sys.executable, "-c", "import arq, peer_arq; arq.run_worker(peer_arq.WorkerSettings)"]

    def reset(self):
        self.pool = self.pool or self.run(create_pool(SETTINGS))
        self.run(self.pool.flushdb())

    def fill(self, count):
        async def work():
            for _ in range(count):
                await self.pool.enqueue_job("noop")

        self.run(work())

    def ping(self, number):
        self.run(self.pool.enqueue_job("ping", number))


if __name__ == "__main__":
    serve(Arq())

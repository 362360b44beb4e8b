from driver import URL, Peer, answer_ping, mark, serve, tool
from streaq import Worker

worker = Worker(redis_url=URL, concurrency=200, prefetch=1000)


@worker.task(silent=True, ttl=0)
async def noop():
    mark()


@worker.task(silent=True)
async def ping(number: int):
    return answer_ping(number)


class Streaq(Peer):
    settings = "concurrency 200, prefetch 1000, keeps no results, silent"
    entered = False

    def worker(self):
        return [tool("streaq"), "run", "peer_streaq:worker"]

    def reset(self):
        if not self.entered:
            self.entered = True
            self.run(worker.__aenter__())
        self.run(worker.redis.flushdb())

    def fill(self, count):
        self.run(worker.enqueue_many([noop.enqueue() for _ in range(count)]))

    def ping(self, number):
        async def submit():
            await ping.enqueue(number)

        self.run(submit())


if __name__ == "__main__":
    import peer_streaq  # so that the tasks are not those of __main__

    serve(peer_streaq.Streaq())

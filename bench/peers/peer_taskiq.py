from driver import CONFIG, URL, Peer, answer_ping, mark, serve, tool

if CONFIG == "nats":
    from taskiq_nats import PullBasedJetStreamBroker

    # One message per fetch, its default: a larger fetch waits until it is full.
    broker = PullBasedJetStreamBroker([URL], queue="peers")
else:
    from taskiq_redis import RedisStreamBroker

    # consumer_id 0: read what was queued before the group existed
    broker = RedisStreamBroker(URL, consumer_id="0", xread_count=1000)


@broker.task
async def noop():
    mark()


@broker.task
async def ping(number: int):
    return answer_ping(number)


class Taskiq(Peer):
    settings = "1 worker, 1000 tasks at once, prefetch 1000, no parsing, no results"
    started = False

    def worker(self):
        command = [tool("taskiq"), "worker", "peer_taskiq:broker", "--workers", "1", "--log-level", "WARNING"]
        return [*command, "--max-async-tasks", "1000", "--max-prefetch", "1000", "--no-parse"]

    def reset(self):
        if not self.started:
            self.started = True
            self.run(broker.startup())
        self.run(self._empty())

    async def _empty(self):
        if CONFIG == "nats":
            await broker.js.purge_stream(broker.stream_name)
            return
        from redis.asyncio import Redis

        async with Redis(connection_pool=broker.connection_pool) as client:
            await client.flushdb()
        await broker._declare_consumer_group()

    def fill(self, count):
        async def work():
            for _ in range(count):
                await noop.kiq()

        self.run(work())

    def ping(self, number):
        self.run(ping.kiq(number))


if __name__ == "__main__":
    import peer_taskiq  # so that the tasks are not those of __main__

    serve(peer_taskiq.Taskiq())

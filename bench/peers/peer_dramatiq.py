import dramatiq
from dramatiq.brokers.redis import RedisBroker
from driver import URL, Peer, answer_ping, mark, serve, tool

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop():
    mark()


@dramatiq.actor
def ping(number):
    answer_ping(number)


class Dramatiq(Peer):
    settings = "1 process, 2 threads, prefetch 1000"

    def worker(self):
        # Dramatiq reads this when it is imported, which is before it imports this module.
        return ["env", "dramatiq_queue_prefetch=1000", tool("dramatiq"), "peer_dramatiq", "-p", "1", "-t", "2"]

    def reset(self):
        broker.client.flushdb()

    def fill(self, count):
        for _ in range(count):
            noop.send()

    def ping(self, number):
        ping.send(number)


if __name__ == "__main__":
    import peer_dramatiq  # so that the actors are not those of __main__

    serve(peer_dramatiq.Dramatiq())

from driver import URL, Peer, answer_ping, mark, serve, tool
from redis import Redis
from rq import Queue

connection = Redis.from_url(URL)
queue = Queue(connection=connection)


def noop():
    mark()


def ping(number):
    return answer_ping(number)


class Rq(Peer):
    settings = "SimpleWorker (no fork per job), keeps no results, quiet"

    def worker(self):
        return [tool("rq"), "worker", "-u", URL, "-w", "rq.SimpleWorker", "-q", "--disable-job-desc-logging"]

    def reset(self):
        connection.flushdb()

    def fill(self, count):
        queue.enqueue_many([Queue.prepare_data("peer_rq.noop", result_ttl=0) for _ in range(count)])

    def ping(self, number):
        queue.enqueue("peer_rq.ping", number, result_ttl=0)


if __name__ == "__main__":
    serve(Rq())

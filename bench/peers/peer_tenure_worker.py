"""Tenure as people run it: `tenure worker` on an engine, and a manager with a worker.

PEERS_CONFIG is `worker-N` (N slots, work sent to the engine's mailbox), `compute-N` (the same, and its jobs compute for a millisecond), `async` (one slot, 50
async workflows at once) or `managed-N` (a manager and a worker of N slots, work submitted by `Client`).
"""

import re
import subprocess
import sys
import threading
import time

import psutil
from counted import ran_s
from driver import CONFIG, RUN, URL, Peer, serve

from tenure import Client
from tenure.engines import Engine, Outgoing
from tenure.work import WorkItem, WorkResult

KIND, _, SLOTS = CONFIG.partition("-")
TENURE = [sys.executable, "-m", "tenure"]


class TenureWorker(Peer):
    settings = {
        "worker": f"tenure worker --slots {SLOTS}",
        "compute": f"tenure worker --slots {SLOTS}, jobs that compute for a millisecond",
        "async": "tenure worker --slots 1 --concurrency 50, async workflows",
        "managed": f"tenure manager, and tenure worker --managed --slots {SLOTS}",
    }[KIND]

    def __init__(self):
        self.engine = Engine.open(URL)
        self.mailbox = self.engine.mailbox("work", WorkItem, WorkResult)
        self.manager = None
        if KIND == "managed":
            self.manager, self.client = start_manager()

    def worker(self):
        how = {"async": ["--slots", "1", "--concurrency", "50"], "managed": ["--slots", SLOTS, "--managed"]}
        options = how.get(KIND, ["--slots", SLOTS])
        return [*TENURE, "worker", "tenure_app.py", "--engine", URL, "--grace", "1", *options]

    def reset(self):
        self.mailbox.purge()

    def fill(self, count):
        noop = WorkItem(workflow={"async": "noop_async", "compute": "compute"}.get(KIND, "noop"))
        for begun in range(0, count, 500):
            self.mailbox.send_many([Outgoing(noop)] * min(500, count - begun))

    def ping(self, number):
        if KIND == "managed":
            self.client.submit("ping", number=number)
        else:
            self.mailbox.send(WorkItem(workflow="ping", args={"number": number}))

    def ask(self, number):
        return self.client.submit("echo", number=number).wait(60)

    def measure_map(self, count):
        """Runs `Client.map` over so many inputs. Returns jobs per second and milliseconds of the manager's CPU for each."""
        before, begun = cpu_s(self.manager.pid), time.perf_counter()
        self.client.map("echo", [{"number": number} for number in range(count)], in_flight=500, progress=False)
        took = time.perf_counter() - begun
        return count / took, 1e3 * (cpu_s(self.manager.pid) - before) / count

    def measure_submissions(self, threads, each):
        """Returns single submissions per second of so many threads, each with a client of its own. The work is for later."""

        def send(client):
            for _ in range(each):
                client.submit("echo", number=1, delay=86_400.0)

        clients = [Client(self.client.addresses) for _ in range(threads)]
        senders = [threading.Thread(target=send, args=[client]) for client in clients]
        begun = time.perf_counter()
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        took = time.perf_counter() - begun
        for client in clients:
            client.close()
        return threads * each / took

    def measure_manager_cpu(self):
        """Returns the seconds of CPU that the manager has used so far."""
        return ran_s(self.manager.pid)

    def close(self):
        if self.manager is not None:
            self.client.close()
            self.manager.terminate()
            self.manager.wait(20)


def start_manager():
    command = [*TENURE, "manager", "--engine", URL, "--port", "0", "--rate-limit", "1000000"]
    with open(f"{RUN}/manager.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    until = time.monotonic() + 60
    while True:
        with open(f"{RUN}/manager.log") as log:
            found = re.search(r"listens on (\S+)", log.read())
        if found:
            break
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError("the manager did not start")
        time.sleep(0.05)
    client = Client([found[1]], patience_s=60)
    while not client.leader().leads:
        time.sleep(0.05)
    return process, client


def cpu_s(pid):
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    peer = TenureWorker()
    try:
        serve(peer)
    finally:
        peer.close()

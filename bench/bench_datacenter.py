"""A datacenter as users start it, on each engine: submissions, no-op workflows, pick-up, failover, and what it costs when nothing happens."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from bench.harness import Report
from tenure.client.client import Client
from tenure.errors import NodeUnavailableError
from tenure.jobs import JobSubmission, WorkflowSpec
from tools.servers import CannotStart, Nats, Postgres, Valkey

APP = Path(__file__).parent / "datacenter_app.py"
TERM_S = 2.0
SUBMISSIONS, SENDERS = 400, 8
JOBS, EACH = 20, 50
PICK_UPS = 60
IDLE_S = 10.0


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        on_engine(report, "SQLite", f"sqlite:///{folder}/t.db")
    for name, make in (("PostgreSQL", Postgres), ("Valkey", Valkey), ("NATS", Nats)):
        server = make()
        try:
            server.start()
        except CannotStart as reason:
            report.note(f"{name}: NOT MEASURED: {reason}")
            continue
        try:
            on_engine(report, name, server.url)
        finally:
            server.stop()


def on_engine(report: Report, name: str, url: str) -> None:
    with datacenter(url) as dc:
        submissions(report, name, dc)
        no_ops(report, name, dc)
        pick_up(report, name, dc)
        if name == "SQLite":
            idle(report, dc)
        failover(report, name, dc)


class Processes:
    """Two managers and two workers, and a way to them."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        self._folder, self._url, self._stack = folder, url, stack
        self.all: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}

    def start(self, name: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "tenure", *arguments, "--engine", self._url]
            process = self.all[name] = subprocess.Popen(command, stdout=output, stderr=output)
        self._stack.callback(end, process)
        return log

    def manager(self, name: str) -> None:
        log = self.start(name, "manager", "--name", name, "--port", "0", "--term", str(TERM_S))
        until(lambda: "listens on" in log.read_text(), log.read_text)
        found = re.search(r"listens on (\S+)", log.read_text())
        assert found is not None
        self.addresses[name] = found[1]

    def client(self) -> Client:
        return self._stack.enter_context(Client(list(self.addresses.values())))

    def leader(self) -> str:
        for name, address in self.addresses.items():
            if self.all[name].poll() is None:
                with Client([address], patience_s=5) as client, suppress(NodeUnavailableError):
                    if client.leader().leads:
                        return name
        return ""


@contextmanager
def datacenter(url: str) -> Iterator[Processes]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        dc = Processes(Path(folder), url, stack)
        for name in ("m-1", "m-2"):
            dc.manager(name)
        for name in ("w-1", "w-2"):
            dc.start(name, "worker", str(APP), "--managed", "--slots", "2")
        until(lambda: bool(dc.leader()), lambda: "nobody leads")
        client = dc.client()
        for number in range(8):  # warm: every slot has run something
            client.wait(client.submit("nothing", job_id=f"warm-{number}").id, 60)
        yield dc


def submissions(report: Report, name: str, dc: Processes) -> None:
    """Each is one durable job when its answer comes. Their work is delayed: it is not what is measured."""

    def send(client: Client, sender: str, count: int) -> None:
        for number in range(count):
            client.submit("nothing", job_id=f"sub-{sender}-{number}", delay=3_600.0)

    client = dc.client()
    begun = time.perf_counter()
    send(client, "one", SUBMISSIONS // 4)
    report.value(f"{name}: submissions, one client", SUBMISSIONS / 4 / (time.perf_counter() - begun), "per second")
    clients = [dc.client() for _ in range(SENDERS)]
    threads = [
        threading.Thread(target=send, args=(one, f"many{number}", SUBMISSIONS // SENDERS))
        for number, one in enumerate(clients)
    ]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report.value(f"{name}: submissions, {SENDERS} clients", SUBMISSIONS / (time.perf_counter() - begun), "per second")


def no_ops(report: Report, name: str, dc: Processes) -> None:
    client = dc.client()
    specs = tuple(WorkflowSpec(name=f"n{number}", function="nothing") for number in range(EACH))
    begun = time.perf_counter()
    for number in range(JOBS):
        client.submit_job(JobSubmission(job_id=f"noop-{number}", workflows=specs))
    for number in range(JOBS):
        view = client.wait(f"noop-{number}", 300)
        assert view.state.value == "completed", view
    took = time.perf_counter() - begun
    report.value(f"{name}: no-op workflows, submit to recorded result", JOBS * EACH / took, "per second")


def pick_up(report: Report, name: str, dc: Processes) -> None:
    """From before the submission to the first line of the workflow, in an idle datacenter."""
    client, taken, whole = dc.client(), [], []
    for number in range(PICK_UPS):
        asked = time.monotonic()
        view = client.wait(client.submit("begun", job_id=f"pick-{number}").id, 60)
        whole.append(1e3 * (time.monotonic() - asked))
        taken.append(1e3 * (view.workflows[0].result - asked))
        time.sleep(0.02)
    cuts = statistics.quantiles(taken, n=100)
    report.value(f"{name}: pick-up p50, from submit to the first line", statistics.median(taken), "ms")
    report.value(f"{name}: pick-up p99", cuts[98], "ms")
    report.value(f"{name}: one no-op job, submit to answered result p50", statistics.median(whole), "ms")


def idle(report: Report, dc: Processes) -> None:
    dc.start("w-3", "worker", str(APP), "--managed", "--slots", "2")
    time.sleep(3.0)
    tree = [
        process
        for root in dc.all.values()
        if root.poll() is None
        for process in [psutil.Process(root.pid), *psutil.Process(root.pid).children(recursive=True)]
    ]
    before = sum(cpu(process) for process in tree)
    time.sleep(IDLE_S)
    spent = sum(cpu(process) for process in tree) - before
    report.value("idle: 2 managers, 3 workers of 2 slots: CPU", 100 * spent / IDLE_S, "% of one core")
    memory = sum(process.memory_full_info().pss for process in tree)
    report.value("idle: the same: memory (proportional)", memory / 2**20, "MiB")
    dc.all["w-3"].kill()


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def failover(report: Report, name: str, dc: Processes) -> None:
    client, leader = dc.client(), dc.leader()
    dc.all[leader].kill()
    begun = time.monotonic()
    client.submit("nothing", job_id="after-the-leader")
    took = time.monotonic() - begun
    report.value(f"{name}: leader killed, next accepted submission", took / TERM_S, "terms", most=2.0)


def until(true: Callable[[], bool], why: Callable[[], str], *, within_s: float = 60.0) -> None:
    begun = time.monotonic()
    while not true():
        if time.monotonic() - begun > within_s:
            raise RuntimeError(why())
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()

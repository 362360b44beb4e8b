"""One measurement in one tree: `python stories.py STORY URL COUNT` prints a JSON line with seconds of wall and CPU time for COUNT jobs.

Only names that the first release has are used here, so that the same file runs against an old tree and a new one (PYTHONPATH chooses).
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tenure import Client
from tenure.beat.heartbeat import Heartbeat
from tenure.engines import Engine, Mailbox, Outgoing
from tenure.work import WorkItem, WorkResult

APP = Path(__file__).with_name("app.py")
PATIENCE_S = 120.0


class Stopwatch:
    """Wall and CPU seconds since its creation. The CPU of a child counts once the child has ended."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), self._used()

    @staticmethod
    def _used() -> float:
        both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in both)

    def read(self) -> dict[str, float]:
        return {"wall_s": time.monotonic() - self._wall, "cpu_s": self._used() - self._cpu}


def mailbox(url: str, count: int) -> dict[str, float]:
    """Sends, receives and acknowledges messages one by one, as a loop does."""
    with Engine.open(url) as engine:
        box: Mailbox[WorkItem, WorkResult] = engine.mailbox("compared", WorkItem, WorkResult)
        item = WorkItem(workflow="noop", args={})
        watch = Stopwatch()
        for _ in range(count):
            box.send(item)
        for _ in range(count):
            (message,) = box.receive(max_messages=1, visibility_timeout=60)
            message.acknowledge()
        return watch.read()


def beats(url: str, count: int) -> dict[str, float]:
    heartbeat = Heartbeat()
    watch = Stopwatch()
    for _ in range(count * 100):
        heartbeat.beat()
    return watch.read()


def worker(url: str, count: int) -> dict[str, float]:
    """`tenure worker` with one slot empties a mailbox. Its start is measured apart, by a first job."""
    with Engine.open(url) as engine:
        box: Mailbox[WorkItem, WorkResult] = engine.mailbox("work", WorkItem, WorkResult)
        with running("worker", str(APP), "--engine", url, "--slots", "1"):
            box.send(WorkItem(workflow="noop", args={}))
            until_counted(1)
            children_begun = children_cpu()
            watch = Stopwatch()
            one = Outgoing(WorkItem(workflow="noop", args={}))
            for done in range(0, count, 500):
                box.send_many([one] * min(500, count - done))
            until_counted(count + 1)
            return {**watch.read(), "cpu_s": children_cpu() - children_begun}


def managed(url: str, count: int) -> dict[str, float]:
    """A manager and a worker: jobs are submitted in one request and run to their ends."""
    with datacenter(url) as client, running("worker", str(APP), "--engine", url, "--managed", "--slots", "2"):
        client.submit("noop").wait(PATIENCE_S)
        begun = children_cpu()
        watch = Stopwatch()
        client.submit_many("noop", [{}] * count)
        until_counted(count + 1)
        return {**watch.read(), "cpu_s": children_cpu() - begun}


def submits(url: str, count: int) -> dict[str, float]:
    """Single submissions over HTTP; nobody runs them."""
    with datacenter(url) as client:
        client.submit("noop")
        begun = children_cpu()
        watch = Stopwatch()
        for _ in range(count):
            client.submit("noop")
        return {**watch.read(), "cpu_s": children_cpu() - begun}


def imports(url: str, count: int) -> dict[str, float]:
    watch = Stopwatch()
    for _ in range(max(1, count // 200)):
        subprocess.run([sys.executable, "-m", "tenure", "--help"], check=True, stdout=subprocess.DEVNULL)
    return watch.read()


STORIES: dict[str, Callable[[str, int], dict[str, float]]] = {
    "mailbox": mailbox, "beats": beats, "worker": worker, "managed": managed, "submits": submits, "imports": imports,
}  # fmt: skip


@contextmanager
def datacenter(url: str) -> Iterator[Client]:
    with running("manager", "--engine", url, "--port", "0", "--rate-limit", "1000000") as log:
        end = time.monotonic() + PATIENCE_S
        while not (found := re.search(r"listens on (\S+)", log.read_text())):
            if time.monotonic() > end:
                raise SystemExit("no manager:\n" + log.read_text()[-2000:])
            time.sleep(0.02)
        client = Client(found[1])
        while True:
            try:
                if client.leader().leads:
                    break
            except Exception:
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)
        yield client


@contextmanager
def running(*words: str) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen([sys.executable, "-m", "tenure", *words], stdout=log, stderr=log)
        try:
            yield Path(log.name)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def until_counted(count: int) -> None:
    path, end = Path(os.environ["COMPARED_COUNT"]), time.monotonic() + PATIENCE_S
    while not path.exists() or path.stat().st_size < count:
        if time.monotonic() > end:
            raise SystemExit(f"{path.stat().st_size if path.exists() else 0} of {count} jobs ran in {PATIENCE_S:g} s")
        time.sleep(0.005)


def children_cpu() -> float:
    """CPU seconds of all living descendants, from /proc: workers and managers live on when the clock is read."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    me, total = os.getpid(), 0.0
    for pid in used:
        above = pid
        while above in parents and above != me:
            above = parents[above]
        total += used[pid] if above == me and pid != me else 0.0
    return total


if __name__ == "__main__":
    story, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    print(json.dumps(STORIES[story](url, count)))

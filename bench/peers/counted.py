"""Durable steps, counted by a broker's server or by the kernel: they are the same on a busy machine and on an idle one."""

from __future__ import annotations

import asyncio
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil

Counter = Callable[[], int]
Act = Callable[[], object]
Measure = Callable[[Act], float]
"""Returns what happened while the act was done."""
FLUSHED_S = 11.0
"""A session of PostgreSQL tells its figures at the latest ten seconds after its last transaction."""
ATTACHED_S = 2.0


def measures_of(broker: str, url: str, processes: list[int]) -> list[tuple[str, float | None, Measure]]:
    """Returns what can be counted there: a name, the most that one job alone may take, and how to count it.

    `processes` are those of the datacenter: SQLite has no server that counts.
    """
    if broker == "sqlite":
        commits = difference(WalCommits(Path(url.removeprefix("sqlite:///"))))
        syncs = [("syncs of its files", 3.0, DiskSyncs(processes))] if shutil.which("strace") else []
        return [*syncs, ("commits", None, commits)]
    if broker == "redis":
        return [("scripts", None, difference(lambda: redis_calls(url, {"evalsha", "eval", "fcall"})))]
    if broker == "postgres":
        traced = DiskSyncs(postgres_processes(url)) if shutil.which("strace") else None
        return [
            ("syncs of the log", 3.0, traced or without_idle(lambda: postgres(url, WAL_SYNCS))),
            ("commits", None, without_idle(lambda: postgres(url, COMMITS))),
        ]
    return [("messages stored", 5.0, difference(lambda: asyncio.run(nats_messages(url))))]


def difference(count: Counter) -> Measure:
    def measure(act: Act) -> float:
        before = count()
        act()
        return count() - before

    return measure


def without_idle(count: Counter) -> Measure:
    """Leaves out what the same time costs without an act: to read the figure takes so long that the leader renews its term meanwhile."""

    def measure(act: Act) -> float:
        before, begun = count(), time.monotonic()
        act()
        took, after = time.monotonic() - begun, count()
        time.sleep(took)
        return (after - before) - (count() - after)

    return measure


class DiskSyncs:
    """Counts the system calls with which these processes wait for their disk: the least of five acts, because in some of them a leader renews its term.

    So the figure is that of the jobs, to the call. What a server says about itself comes ten seconds later, with all that it did in them.
    """

    ACTS = 5

    def __init__(self, processes: list[int]) -> None:
        self._processes = processes

    def __call__(self, act: Act) -> float:
        with tempfile.NamedTemporaryFile("r", prefix="tenure-syncs-") as found:
            whom = [word for each in self._processes for word in ("-p", str(each))]
            traced = ["strace", "-f", "-qq", "-ttt", "-e", "trace=fsync,fdatasync", "-e", "signal=none"]
            marks = list[float]()
            with subprocess.Popen([*traced, "-o", found.name, *whom], stderr=subprocess.DEVNULL) as tracer:
                time.sleep(ATTACHED_S)
                for _ in range(self.ACTS):
                    marks.append(time.time())
                    act()
                marks.append(time.time())
                tracer.send_signal(signal.SIGINT)
            at = [float(line.split()[1]) for line in found if "sync(" in line and "resumed" not in line]
        return min(sum(1 for each in at if begun <= each < done) for begun, done in pairwise(marks))


def ran_s(process: int) -> float:
    """Returns the seconds for which the threads of a process have run, to the nanosecond: the process' own times come in hundredths of a second, which
    are 0.1 % of a core over ten seconds. Threads that have ended are not in it."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{process}/task").glob("*/schedstat")) / 1e9


class WalCommits:
    """Counts the commits in SQLite's write-ahead log: frames that name the size of the database. A log that begins anew goes on counting."""

    def __init__(self, database: Path) -> None:
        self._log = database.with_name(f"{database.name}-wal")
        self._salt, self._seen, self._before = b"", 0, 0

    def __call__(self) -> int:
        data = self._log.read_bytes() if self._log.exists() else b""
        if len(data) < 32:
            return self._before + self._seen
        page = struct.unpack(">I", data[8:12])[0]
        if data[16:24] != self._salt:  # a checkpoint was made, and the log begins again at its start
            self._salt, self._before, self._seen = data[16:24], self._before + self._seen, 0
        frames = (data[at : at + 24] for at in range(32, len(data) - 23, 24 + page))
        self._seen = sum(1 for frame in frames if frame[8:16] == self._salt and frame[4:8] != b"\0\0\0\0")
        return self._before + self._seen


def redis_calls(url: str, names: set[str]) -> int:
    import redis

    with redis.Redis.from_url(url) as client:
        stats = client.info("commandstats")
    return sum(int(stats[f"cmdstat_{name}"]["calls"]) for name in names if f"cmdstat_{name}" in stats)


WAL_SYNCS = "select sum(fsyncs) from pg_stat_io where object = 'wal' and backend_type = 'client backend'"
COMMITS = "select sum(xact_commit) from pg_stat_database"


def postgres(url: str, query: str) -> int:
    import psycopg

    time.sleep(FLUSHED_S)
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


def postgres_processes(url: str) -> list[int]:
    """Returns the processes of the server that serve clients, and the one that starts more of them. The others sync in the background: nobody waits for them."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        query = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        serving = [int(row[0]) for row in connection.execute(query)]
        return [*serving, psutil.Process(connection.info.backend_pid).ppid()]


async def nats_messages(url: str) -> int:
    """Returns the messages that all streams have taken so far. Each is written to a file before its sender hears of it."""
    import nats

    client = await nats.connect(url.partition("?")[0])
    try:
        streams = await client.jetstream().streams_info()
    finally:
        await client.close()
    return sum(stream.state.last_seq for stream in streams)

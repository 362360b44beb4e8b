"""The SQLite engine beside bare SQL with the same commits; wake-up between processes; claims from short and long queues.

    python -m bench sqlite
    python -m bench.bench_sqlite consume URL COUNT      (the other process of the wake-up)

Batches are `send_many` of 100, `receive(100)` and `acknowledge_many`: one commit each, as in the bare version.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.baselines.bare_sqlite import BareQueue
from bench.beside_raw import slow_disk
from bench.harness import Report, rate
from tenure.clock import SystemClock
from tenure.engines import Outgoing
from tenure.engines.sqlite import SqliteEngine, open_sqlite

BODY = {"job": "encode/17", "path": "/films/a.mov", "frames": [1, 2, 3]}
SINGLES = 400
BATCH, BATCHES = 100, 20
ROUNDS = 7
WAKES = 300
WAKE_MS = 2.0
IDLE_S = 5.0
QUEUED = (10, 1_000_000)


@contextlib.contextmanager
def pair(synchronous: str) -> Iterator[tuple[SqliteEngine, BareQueue]]:
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        engine = open_sqlite(f"sqlite:///{folder}/ours.db?synchronous={synchronous}", SystemClock())
        bare = BareQueue(Path(folder) / "bare.db", synchronous)
        try:
            yield engine, bare
        finally:
            engine.close()
            bare.close()


def singles(report: Report, synchronous: str) -> None:
    with pair(synchronous) as (engine, bare):
        mailbox = engine.mailbox("work")

        def ours_send() -> None:
            for _ in range(SINGLES):
                mailbox.send(BODY)

        def bare_send() -> None:
            for _ in range(SINGLES):
                bare.send(BODY)

        def ours_take() -> None:
            for _ in range(SINGLES):
                mailbox.receive()[0].acknowledge()

        def bare_take() -> None:
            for _ in range(SINGLES):
                seq, _ = bare.claim()
                bare.acknowledge(seq)

        _warm(ours_send, bare_send, ours_take, bare_take)
        report.compare(
            f"single send, synchronous={synchronous}",
            lambda: rate(ours_send, count=SINGLES),
            lambda: rate(bare_send, count=SINGLES),
            beside="bare SQL",
            at_least=0.7,
            rounds=ROUNDS,
        )
        report.compare(
            f"single claim + acknowledge, synchronous={synchronous}",
            lambda: rate(ours_take, count=SINGLES),
            lambda: rate(bare_take, count=SINGLES),
            beside="bare SQL",
            at_least=0.7,
            rounds=ROUNDS,
        )


def batches(report: Report, synchronous: str) -> None:
    with pair(synchronous) as (engine, bare):
        mailbox = engine.mailbox("work")
        outgoing, bodies = [Outgoing(BODY)] * BATCH, [BODY] * BATCH

        def ours_send() -> None:
            for _ in range(BATCHES):
                mailbox.send_many(outgoing)

        def bare_send() -> None:
            for _ in range(BATCHES):
                bare.send_many(bodies)

        def ours_take() -> None:
            for _ in range(BATCHES):
                assert mailbox.acknowledge_many(mailbox.receive(BATCH)) == []

        def bare_take() -> None:
            for _ in range(BATCHES):
                bare.acknowledge_many([seq for seq, _ in bare.claim_many(BATCH)])

        _warm(ours_send, bare_send, ours_take, bare_take)
        report.compare(
            f"send_many of {BATCH}, synchronous={synchronous}",
            lambda: rate(ours_send, count=BATCHES * BATCH),
            lambda: rate(bare_send, count=BATCHES * BATCH),
            beside="bare SQL",
            at_least=0.5,
            rounds=ROUNDS,
        )
        report.compare(
            f"receive + acknowledge_many of {BATCH}, synchronous={synchronous}",
            lambda: rate(ours_take, count=BATCHES * BATCH),
            lambda: rate(bare_take, count=BATCHES * BATCH),
            beside="bare SQL",
            at_least=0.5,
            rounds=ROUNDS,
        )


def _warm(*works: Callable[[], None]) -> None:
    """Until the logs have their length: extending a file costs more to flush than writing it over again."""
    for _ in range(4):
        for work in works:
            work()


def consume(url: str, count: str) -> None:
    """The other process: says when each message arrived, and at the end what waiting costs it."""
    with open_sqlite(url, SystemClock()) as engine:
        mailbox = engine.mailbox("work")
        print("ready", flush=True)
        for _ in range(int(count)):
            (message,) = mailbox.receive(1, 60, 60)
            print(time.monotonic(), flush=True)
            message.acknowledge()
        before, begun = _cpu_s(), time.monotonic()
        mailbox.receive(1, 60, IDLE_S)
        print(json.dumps((_cpu_s() - before) / (time.monotonic() - begun)), flush=True)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def wake_up(report: Report, synchronous: str) -> None:
    """From before the send to the claim's return in another process: two commits, and the wake-up between them."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        url = f"sqlite:///{folder}/t.db?synchronous={synchronous}"
        command = [sys.executable, "-m", "bench.bench_sqlite", "consume", url, str(WAKES)]
        other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": _path()})
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        delays = []
        with open_sqlite(url, SystemClock()) as engine:
            mailbox = engine.mailbox("work")
            for _ in range(WAKES):
                time.sleep(0.01)  # so that it waits
                begun = time.monotonic()
                mailbox.send(BODY)
                delays.append((float(other.stdout.readline()) - begun) * 1_000)
            idle = float(other.stdout.readline())
        other.wait(30)
        other.stdout.close()
    delays.sort()
    what = f"wake-up across processes, synchronous={synchronous}"
    unfair = "" if synchronous == "normal" else slow_disk()
    report.value(f"{what}, p50", statistics.median(delays), "ms", most=WAKE_MS, unfair=unfair)
    report.value(f"{what}, p95", delays[int(len(delays) * 0.95)], "ms")
    report.value(f"CPU of a process that waits, synchronous={synchronous}", idle * 100, "%", most=0.5)


def _path() -> str:
    root = Path(__file__).resolve().parent.parent
    return f"{root}/src:{root}"


def long_queues(report: Report) -> None:
    """Claims beside ten queued messages and beside a million: the ratio of the times."""
    with contextlib.ExitStack() as stack:
        takes = []
        for queued in QUEUED:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-bench-"))
            engine = open_sqlite(f"sqlite:///{folder}/t.db?synchronous=normal", SystemClock())
            stack.enter_context(engine)
            mailbox = engine.mailbox("work")
            _fill(mailbox, queued)

            def take(mailbox: Any = mailbox) -> float:
                times = []
                for _ in range(400):
                    mailbox.send(BODY)  # the length stays
                    begun = time.perf_counter()
                    (message,) = mailbox.receive()
                    times.append(time.perf_counter() - begun)
                    message.acknowledge()
                return statistics.median(times) * 1e6

            take()
            takes.append(take)
        report.compare(
            f"claim from a queue of {QUEUED[1]:,}",
            takes[1],
            takes[0],
            beside=f"from a queue of {QUEUED[0]}",
            unit="µs",
            at_most=1.5,
        )


def _fill(mailbox: Any, count: int) -> None:
    while count > 0:
        step = min(count, 1_000)
        mailbox.send_many([Outgoing(BODY)] * step)
        count -= step


def run(report: Report) -> None:
    for synchronous in ("full", "normal"):
        singles(report, synchronous)
        batches(report, synchronous)
    wake_up(report, "full")
    wake_up(report, "normal")
    long_queues(report)


if __name__ == "__main__" and sys.argv[1:2] == ["consume"]:
    consume(*sys.argv[2:4])

"""An engine with a server beside its raw client doing the same round trips by hand: the same lines, in the same words, for each of them.

The bars are those of the issue: single send and claim + settle at least 80 % of the raw client, batches at least 60 %, wake-up of a
waiting consumer p50 under 1.5 ms. What the raw client does, each engine's bench lists.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.harness import Report, rate
from tenure.engines import Engine, Mailbox, Outgoing

BODY = {"frame": 17, "path": "a/b/c.mov", "note": "x" * 150}
RAW = b'{"frame":17,"path":"a/b/c.mov","note":"' + b"x" * 150 + b'"}'
LEASE = 60.0
SINGLE_BAR, BATCH_BAR, WAKE_MS = 0.8, 0.6, 1.5
DISK_MS = 0.3
"""Where the disk has more than this of a wake-up, a bar on the whole is one on the disk (decision 0173)."""
BATCHED = 2_000


class Side(Protocol):
    """One of the two: each does `count` of them."""

    def send(self, count: int) -> None: ...
    def drain(self, count: int) -> None: ...
    def settle(self, count: int) -> None: ...
    def send_many(self, count: int) -> None: ...
    def drain_many(self, count: int) -> None: ...
    def extend(self, count: int) -> None: ...
    def append(self, count: int) -> None: ...


class Ours:
    """The engine, as its users call it."""

    def __init__(self, engine: Engine) -> None:
        self.mailbox: Mailbox[Any, Any] = engine.mailbox("work")
        self.journal = engine.journal("log")
        self.seq = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self.mailbox.send(BODY, reply_to="replies")

    def send_many(self, count: int) -> None:
        batch = [Outgoing(BODY)] * 100
        for _ in range(count // 100):
            self.mailbox.send_many(batch)

    def drain(self, count: int) -> None:
        for _ in range(count):
            self.mailbox.receive(1, LEASE)[0].acknowledge()

    def settle(self, count: int) -> None:
        for _ in range(count):
            self.mailbox.receive(1, LEASE)[0].settle(1)

    def drain_many(self, count: int) -> None:
        for _ in range(count // 100):
            assert not self.mailbox.acknowledge_many(self.mailbox.receive(100, LEASE))

    def extend(self, count: int) -> None:
        self.send(1)
        (message,) = self.mailbox.receive(1, LEASE)
        for _ in range(count):
            message.extend_visibility(LEASE)
        message.acknowledge()

    def append(self, count: int) -> None:
        for _ in range(count):
            self.seq = self.journal.append([RAW], epoch=1, expect=self.seq, append_id=str(self.seq))


@dataclass
class Bench:
    """Many short rounds in turn: a burst of somebody else's work then falls on both sides."""

    report: Report
    ours: Side
    raw: Side
    library: str
    rounds: int = 15
    singles: int = 200

    def run(self) -> None:
        for side in (self.ours, self.raw):
            side.send(50)
            side.drain(50)
            side.send_many(200)
            side.drain_many(200)
        self.line("send", "single send", bar=SINGLE_BAR)
        self.line("drain", "single claim + settle (acknowledge)", bar=SINGLE_BAR)
        for side in (self.ours, self.raw):
            side.send(self.rounds * self.singles)
        self.line("settle", "single claim + settle (with a reply)", bar=SINGLE_BAR)
        self.line("send_many", "batch: send 100", bar=BATCH_BAR, count=BATCHED)
        self.line("drain_many", "batch: claim 100 + settle 100 (acknowledge)", bar=BATCH_BAR, count=BATCHED)
        self.line("extend", "single extend")
        self.line("append", "single append")

    def line(self, act: str, title: str, *, bar: float | None = None, count: int | None = None) -> None:
        many = count or self.singles
        self.report.compare(
            title,
            lambda: rate(lambda: getattr(self.ours, act)(many), count=many),
            lambda: rate(lambda: getattr(self.raw, act)(many), count=many),
            beside=f"{self.library}, same round trips",
            at_least=bar,
            rounds=self.rounds,
        )


def tell_wakes(
    report: Report,
    ours: list[float],
    raw: list[float],
    by_hand: str,
    *,
    synced: str = "",
    unsynced: Sequence[float] = (),
) -> None:
    """The bar's line, and what the least that the server can do takes.

    `synced` says which syncs of the disk are in it. On a disk that needs more than a millisecond for two of them nobody can meet the bar.
    `unsynced` is the same without them, measured in turn: then that is held to the bar, and the other where the disk leaves room for it.
    """
    ours.sort()
    what = "wake-up of a waiting consumer" + (f" ({synced})" if synced else "")
    unfair = slow_disk() if synced and not unsynced else ""
    if unsynced:
        quick_ms = statistics.median(unsynced) * 1e3
        report.value("wake-up of a waiting consumer (no sync), p50", quick_ms, "ms", most=WAKE_MS)
        disk_ms = statistics.median(ours) * 1e3 - quick_ms
        unfair = f"{disk_ms:.2f} ms of it are the disk's" if disk_ms > DISK_MS else ""
    report.value(f"{what}, p50", statistics.median(ours) * 1e3, "ms", most=WAKE_MS, unfair=unfair)
    report.value(f"{what}, p99", ours[int(len(ours) * 0.99)] * 1e3, "ms")
    report.value(f"{what}: by hand ({by_hand}), p50", statistics.median(raw) * 1e3, "ms")


def our_wakes(engine: Engine, *, provisional: bool = False, since_sent: list[float] | None = None) -> list[float]:
    """Seconds from before `send` to after `receive` returned in another thread that was waiting.

    `since_sent` gets the part of them after `send` had returned: the wake-up without the sender's own commit.
    """
    mailbox: Mailbox[Any, Any] = engine.mailbox("wake")
    taken: list[Any] = []

    def take() -> None:
        taken.extend(mailbox.receive(1, LEASE, 30, provisional=provisional))

    return timed_wakes(take, lambda: mailbox.send(1), lambda: taken.pop().acknowledge(), since_sent)


def timed_wakes(
    take: Callable[[], Any],
    send: Callable[[], Any],
    settle: Callable[[], Any],
    since_sent: list[float] | None = None,
) -> list[float]:
    times: list[tuple[float, float]] = []
    got, ready, done = 0.0, threading.Event(), threading.Event()

    def consume() -> None:
        nonlocal got
        for _ in range(60):
            ready.set()
            take()
            got = time.perf_counter()
            done.set()

    consumer = threading.Thread(target=consume)
    consumer.start()
    for _ in range(60):
        ready.wait()
        time.sleep(0.008)  # so that it waits for sure
        ready.clear()
        begun = time.perf_counter()
        send()
        sent = time.perf_counter()
        done.wait()
        times.append((got - begun, got - sent))
        done.clear()
        settle()
    consumer.join()
    if since_sent is not None:
        since_sent.extend(after for _, after in times[10:])
    return [whole for whole, _ in times[10:]]


def slow_disk() -> str:
    """Why a bar on a time with two syncs in it says nothing here, where they alone take a millisecond; nothing where they do not."""
    sync_ms = sync_p50_ms()
    return f"one sync of this disk takes {sync_ms:.2f} ms now" if 2 * sync_ms > 1.0 else ""


def sync_p50_ms() -> float:
    """What one sync costs here and now."""
    times = []
    with tempfile.TemporaryDirectory(prefix="tenure-bench-", dir="/tmp") as folder:
        file = os.open(Path(folder) / "x", os.O_RDWR | os.O_CREAT)
        os.write(file, b"x" * 1_000_000)
        os.fsync(file)
        for number in range(200):
            os.pwrite(file, b"y" * 200, number * 200)
            begun = time.perf_counter()
            os.fdatasync(file)
            times.append(time.perf_counter() - begun)
        os.close(file)
    return statistics.median(times) * 1e3

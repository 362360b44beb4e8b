"""What a beat costs, alone and with a lease attached, and what a probe costs beside a thousand idle connections."""

from __future__ import annotations

import resource
import socket
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.baselines.document_beat import DocumentHeartbeat, DocumentLeaseExtender, LockedHeartbeat, LockedOnceHeartbeat
from bench.harness import Report
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtender
from tenure.beat.probes import HealthServer
from tenure.testing import create_test_message

BEATS = 200_000
THREADS = 8
IDLE = 1_000


def nanoseconds(beat: Callable[[], None]) -> float:
    """Per call, in a plain loop whose own cost is taken off."""
    turns = range(BEATS)
    begun = time.perf_counter()
    for _ in turns:
        beat()
    middle = time.perf_counter()
    for _ in turns:
        pass
    return ((middle - begun) - (time.perf_counter() - middle)) / BEATS * 1e9


def per_second(beat: Callable[[], None]) -> float:
    return 1e9 / nanoseconds(beat)


def threaded_nanoseconds(beat: Callable[[], None]) -> float:
    """Wall time per beat while eight threads beat: under one interpreter lock they take turns."""
    start = threading.Barrier(THREADS + 1)
    each = BEATS // THREADS

    def work() -> None:
        start.wait()
        for _ in range(each):
            beat()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    start.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - begun) / (each * THREADS) * 1e9


def run(report: Report) -> None:
    beats(report)
    attached(report)
    report.compare(
        "8 threads beating, wall time per beat",
        lambda: threaded_nanoseconds(Heartbeat().beat),
        lambda: nanoseconds(Heartbeat().beat),
        beside="one thread",
        unit="ns",
        at_most=3,
    )
    probes(report)


def beats(report: Report) -> None:
    ours, locked, once, bare = Heartbeat(), LockedHeartbeat(), LockedOnceHeartbeat(), DocumentHeartbeat()
    report.compare(
        "beat() without callback", lambda: per_second(ours.beat), lambda: per_second(locked.beat),
        beside="the same under locks", at_least=3,
    )  # fmt: skip
    report.compare(
        "beat() without callback, beside one lock", lambda: per_second(ours.beat), lambda: per_second(once.beat),
        beside="the same under one lock",
    )  # fmt: skip
    report.compare(
        "beat() without callback, beside less", lambda: per_second(ours.beat), lambda: per_second(bare.beat),
        beside="document 003 (no count, progress, callbacks)", at_least=1.75,  # more is not to be had: decision 0140
    )  # fmt: skip


def attached(report: Report) -> None:
    message: Any = create_test_message()
    with ExitStack() as stack:
        ours, bare, locked = Heartbeat(), DocumentHeartbeat(), LockedHeartbeat()
        stack.enter_context(LeaseExtender().attach(message, ours))
        stack.enter_context(DocumentLeaseExtender(60.0, 300).attach(message, bare))
        stack.enter_context(DocumentLeaseExtender(60.0, 300).attach(message, locked))
        report.compare(
            "beat() with a rate-limited extender", lambda: per_second(ours.beat), lambda: per_second(locked.beat),
            beside="the same under locks", at_least=3,
        )  # fmt: skip
        report.compare(
            "beat() with a rate-limited extender, beside less", lambda: per_second(ours.beat),
            lambda: per_second(bare.beat), beside="document 003 (no count, progress, callbacks)", at_least=3,
        )  # fmt: skip


def probes(report: Report) -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(files[0], 4_096), files[1]), files[1]))
    with HealthServer(0, host="127.0.0.1") as server, ExitStack() as stack:
        address = server.start()
        alone = {path: latencies(address, path) for path in ("/health/live", "/health/ready")}
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection(address))
        for path, before in alone.items():
            beside_idle = latencies(address, path)
            report.value(f"{path} beside {IDLE} idle connections, p99", p99(beside_idle), "ms", most=50)
            report.value(f"{path} beside {IDLE} idle connections, median", statistics.median(beside_idle), "ms")
            report.value(f"{path} alone, p99", p99(before), "ms")


def latencies(address: tuple[str, int], path: str, count: int = 2_000) -> list[float]:
    """Milliseconds from connect to the end of the answer, a new connection for each, as probes do."""
    request = f"GET {path} HTTP/1.1\r\nHost: probe\r\n\r\n".encode()
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        with socket.create_connection(address) as client:
            client.sendall(request)
            answer = b""
            while part := client.recv(4_096):
                answer += part
        found.append((time.perf_counter() - begun) * 1_000)
        assert answer.startswith(b"HTTP/1.1 200")
    return found


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]

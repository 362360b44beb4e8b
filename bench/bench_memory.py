"""The memory mailbox beside a lock-and-reaper-thread one: one by one, in batches, under threads, and how long waking takes."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.baselines.reaper_mailbox import ReaperMailbox
from bench.harness import Report, rate
from tenure.engines import InMemoryMailbox, Outgoing

BODY = {"job": "encode/17", "path": "/data/a.mov", "attempt": 1}
ROUND_TRIPS = 20_000


def round_trips(mailbox: Any, count: int = ROUND_TRIPS) -> None:
    for _ in range(count):
        mailbox.send(BODY)
        (message,) = mailbox.receive()
        message.acknowledge()


def measured(make: Callable[[], Any], work: Callable[[Any], None], count: int) -> Callable[[], float]:
    def once() -> float:
        mailbox = make()
        try:
            return rate(lambda: work(mailbox), count=count)
        finally:
            mailbox.close()

    return once


def with_a_backlog(mailbox: Any) -> None:
    """20,000 messages wait, 1,000 are held: what a reaper has to look through."""
    for _ in range(21_000):
        mailbox.send(BODY)
    for _ in range(100):
        mailbox.receive(10)


def after_a_backlog(mailbox: Any) -> None:
    round_trips(mailbox, 20_000)


def backlogged(make: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        mailbox = make()
        with_a_backlog(mailbox)
        return mailbox

    return made


def in_batches(mailbox: Any) -> None:
    for _ in range(2_000):
        if isinstance(mailbox, InMemoryMailbox):
            mailbox.send_many([Outgoing(BODY)] * 10)
        else:
            for _ in range(10):
                mailbox.send(BODY)
        for message in mailbox.receive(10):
            message.acknowledge()


def in_threads(mailbox: Any) -> None:
    """Two producers and two consumers, which wait for what is not there yet."""
    each = 5_000

    def produce() -> None:
        for _ in range(each):
            mailbox.send(BODY)

    def consume() -> None:
        for _ in range(each):
            mailbox.receive(1, 300, 30)[0].acknowledge()

    threads = [threading.Thread(target=work) for work in (produce, consume, produce, consume)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wake_up_us(mailbox: Any, samples: int = 300) -> float:
    """From send() in one thread to the message in another that waits; the median."""
    sent, delays, ready = [0.0], [], threading.Semaphore(0)

    def consume() -> None:
        for _ in range(samples):
            ready.release()
            (message,) = mailbox.receive(1, 300, 30)
            delays.append(time.perf_counter() - sent[0])
            message.acknowledge()

    consumer = threading.Thread(target=consume)
    consumer.start()
    for _ in range(samples):
        ready.acquire()
        time.sleep(0.001)
        sent[0] = time.perf_counter()
        mailbox.send(BODY)
    consumer.join()
    mailbox.close()
    return statistics.median(delays) * 1e6


def idle_mailboxes_cpu(make: Callable[[], Any]) -> float:
    """CPU of 50 mailboxes with 1,000 held messages each in which nothing happens, in milliseconds per second."""
    boxes = [make() for _ in range(50)]
    for box in boxes:
        for _ in range(1_000):
            box.send(1)
        for _ in range(100):
            box.receive(10)
    before = time.process_time()
    time.sleep(1.0)
    spent = time.process_time() - before
    for box in boxes:
        box.close()
    return spent * 1e3


def run(report: Report) -> None:
    beside = "lock and reaper thread"
    report.compare(
        "memory: send + receive + acknowledge",
        measured(InMemoryMailbox, round_trips, ROUND_TRIPS),
        measured(ReaperMailbox, round_trips, ROUND_TRIPS),
        beside=beside,
        at_least=2.5,
        rounds=11,
    )
    report.compare(
        "memory: the same over 20,000 waiting and 1,000 held",
        measured(backlogged(InMemoryMailbox), after_a_backlog, 20_000),
        measured(backlogged(ReaperMailbox), after_a_backlog, 20_000),
        beside=beside,
        at_least=2.0,
    )
    report.compare(
        "memory: batches of 10",
        measured(InMemoryMailbox, in_batches, 20_000),
        measured(ReaperMailbox, in_batches, 20_000),
        beside=beside,
    )
    report.compare(
        "memory: two producers, two consumers, in threads",
        measured(InMemoryMailbox, in_threads, 10_000),
        measured(ReaperMailbox, in_threads, 10_000),
        beside=beside,
    )
    report.compare(
        "memory: waking a waiting consumer",
        lambda: wake_up_us(InMemoryMailbox()),
        lambda: wake_up_us(ReaperMailbox()),
        beside=beside,
        unit="us",
        rounds=3,
    )
    report.compare(
        "memory: CPU of 50 idle mailboxes, 1,000 held messages each",
        lambda: idle_mailboxes_cpu(InMemoryMailbox),
        lambda: idle_mailboxes_cpu(ReaperMailbox),
        beside=beside,
        unit="ms per second",
        at_most=0.5,
        rounds=3,
    )

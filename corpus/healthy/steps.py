"""Work whose steps are long, uneven or bursty."""

from __future__ import annotations

import random
import threading
import time

from corpus.case import healthy
from corpus.job import Job

QUIET = 1.6
"""The longest silence of a healthy job, about half of the stall threshold: a busy machine makes it longer."""


@healthy("bursts of many beats with long quiet spells between them", short=True)
def bursts(job: Job) -> None:
    done = 0
    for _ in range(5):
        time.sleep(QUIET)
        for _ in range(200):
            done += 1
            job.beat(done, 1000)


@healthy("steps whose lengths have a heavy tail", short=True)
def heavy_tail(job: Job) -> None:
    chance = random.Random(26)
    for _ in job.track(range(40), 40):
        time.sleep(min(QUIET, 0.05 * chance.paretovariate(1.1)))


@healthy("one long first step, as a model that is loaded")
def long_first_step(job: Job) -> None:
    time.sleep(QUIET)
    for _ in job.track(range(40), 40):
        time.sleep(0.1)


@healthy("a long tail of work after its loop, which only beats")
def long_tail(job: Job) -> None:
    for _ in job.track(range(20), 20):
        time.sleep(0.05)
    for _ in range(9):
        time.sleep(1.0)
        job.beat()


@healthy("epochs that count to the same total again and again", short=True)
def epochs(job: Job) -> None:
    for _ in range(9):
        for batch in range(10):
            time.sleep(0.1)
            job.beat(batch + 1, 10)


@healthy("phases whose fraction begins anew")
def phases(job: Job) -> None:
    for _ in range(4):
        for part in range(1, 11):
            time.sleep(0.2)
            job.beat(fraction=part / 10)


@healthy("it beats and counts nothing, for longer than the stuck threshold", short=True)
def only_beats_honestly(job: Job) -> None:
    for _ in range(18):
        time.sleep(0.5)
        job.beat()


@healthy("it counts without knowing how many there will be")
def unknown_total(job: Job) -> None:
    for item in range(1, 30):
        time.sleep(0.25)
        job.beat(item)


@healthy("items that take as long as the stuck threshold allows, with beats between them")
def rare_items(job: Job) -> None:
    for item in range(1, 4):
        for _ in range(6):
            time.sleep(0.5)
            job.beat()
        job.beat(item, 3)


@healthy("it logs what it does and says nothing else")
def logs_only(job: Job) -> None:
    for line in range(14):
        time.sleep(0.5)
        job.log(f"loaded table {line}")
        job.beat()


@healthy("it saves a checkpoint after each slow item", short=True)
def checkpoints(job: Job) -> None:
    for item in range(int(job.resume or 0), 7):
        time.sleep(1.0)
        job.checkpoint(item + 1)


@healthy("a large checkpoint each time")
def large_checkpoints(job: Job) -> None:
    for item in range(6):
        time.sleep(0.8)
        job.checkpoint({"item": item, "state": "x" * 50_000})


@healthy("a retry in the middle: an item fails twice and succeeds then")
def retries_one_item(job: Job) -> None:
    for item in range(1, 9):
        for _ in range(3 if item == 4 else 1):
            time.sleep(0.6)
            job.beat()
        job.beat(item, 8)


@healthy("items in an order that is not the order of their numbers")
def out_of_order(job: Job) -> None:
    done = 0
    for _ in (3, 1, 2, 6, 5, 4, 8, 7):
        time.sleep(0.7)
        done += 1
        job.beat(done, 8)


@healthy("two nested loops, of which the outer one counts")
def nested_loops(job: Job) -> None:
    for row in range(1, 6):
        for _ in range(8):
            time.sleep(0.2)
            job.beat()
        job.beat(row, 5)


@healthy("a threads' pool does the work, and the main thread counts what comes back", short=True)
def pool_results(job: Job) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        for _ in job.track(pool.map(lambda _: time.sleep(0.7), range(12)), 12):
            pass


@healthy("a helper thread does part of the work, and is declared")
def declared_helper(job: Job) -> None:
    def helper() -> None:
        with job.thread():
            for item in range(1, 15):
                time.sleep(0.5)
                job.beat(item, 14)

    thread = threading.Thread(target=helper)
    thread.start()
    thread.join()


@healthy("progress that falls back and goes beyond: a search that backtracks")
def backtracking_search(job: Job) -> None:
    deepest = 0
    for depth in (1, 2, 3, 2, 3, 4, 3, 2, 3, 4, 5, 4, 5, 6):
        time.sleep(0.5)
        deepest = max(deepest, depth)
        job.beat(depth, 10)

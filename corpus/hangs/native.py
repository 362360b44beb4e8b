"""Code that holds the interpreter, the core or the process, and comes back to nobody."""

from __future__ import annotations

import collections
import ctypes
import itertools
import re
import threading
import time

from corpus.case import hang
from corpus.job import Job


@hang("a regular expression that backtracks for ever", "matches_the_expression", short=True, cpu=True)
def regular_expression(job: Job) -> None:
    def matches_the_expression() -> None:
        re.match(r"(a+)+$", "a" * 40 + "b")

    matches_the_expression()


@hang(
    "native code that keeps the interpreter lock: no other thread of the process runs",
    "sleeps_with_the_lock",
    short=True,
)
def interpreter_lock_held(job: Job) -> None:
    libc = ctypes.PyDLL(None)

    def sleeps_with_the_lock() -> None:
        while True:
            libc.usleep(900_000)

    sleeps_with_the_lock()


@hang("native code that waits, without the interpreter lock", "pauses_in_native_code")
def native_wait(job: Job) -> None:
    libc = ctypes.CDLL(None)

    def pauses_in_native_code() -> None:
        while True:
            libc.pause()

    pauses_in_native_code()


@hang("a loop whose end condition never becomes true", "loops_for_ever", cpu=True)
def busy_loop(job: Job) -> None:
    def loops_for_ever() -> None:
        fraction = 0.0
        while fraction != 1.0:
            fraction = (fraction + 0.1) % 7.0

    loops_for_ever()


@hang(
    "an endless iterator consumed inside C, where no signal handler of Python ever runs",
    "consumes_the_iterator",
    cpu=True,
)
def endless_iterator(job: Job) -> None:
    def consumes_the_iterator() -> None:
        collections.deque(itertools.repeat(None), maxlen=0)

    consumes_the_iterator()


@hang("arithmetic on a number that nobody thought would be so large", "computes_the_power", cpu=True)
def huge_number(job: Job) -> None:
    def computes_the_power() -> int:
        return len(str(7 ** (1 << 26)) * 1)

    import sys

    sys.set_int_max_str_digits(0)
    computes_the_power()


@hang("a helper thread beats while the work itself hangs", "the_work_hangs", short=True)
def helper_thread_beats(job: Job) -> None:
    def helper() -> None:
        while True:
            job.beat()
            time.sleep(0.2)

    def the_work_hangs() -> None:
        threading.Event().wait()

    threading.Thread(target=helper, daemon=True).start()
    the_work_hangs()


@hang("it swallows every exception, also the one that asks it to end", "swallows_everything")
def swallows_exceptions(job: Job) -> None:
    def swallows_everything() -> None:
        while True:
            try:
                time.sleep(0.05)
                raise ValueError("never mind")
            except BaseException:
                pass

    swallows_everything()


@hang("its result hangs while it is built", "builds_the_result")
def result_never_built(job: Job) -> None:
    class Lazy:
        def __len__(self) -> int:
            return self.builds_the_result()

        def builds_the_result(self) -> int:
            threading.Event().wait()
            return 0

    len(Lazy())


@hang("a clean-up handler waits for something that is gone", "cleans_up")
def hangs_in_cleanup(job: Job) -> None:
    class Resource:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None:
            self.cleans_up()

        def cleans_up(self) -> None:
            threading.Event().wait()

    with Resource():
        job.beat()


@hang("recursion through a linked list that is a ring", "walks_the_ring", cpu=True)
def ring_of_references(job: Job) -> None:
    ring: dict[str, object] = {}
    ring["next"] = ring

    def walks_the_ring() -> None:
        node: object = ring
        while isinstance(node, dict):
            node = node["next"]

    walks_the_ring()

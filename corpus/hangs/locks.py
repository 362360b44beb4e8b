"""Threads that wait for each other, or for something that will not come."""

from __future__ import annotations

import concurrent.futures
import fcntl
import gc
import logging
import multiprocessing
import os
import queue
import sqlite3
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

from corpus.case import hang
from corpus.job import Job


@hang("two threads take two locks in opposite orders", "takes_the_second_lock", short=True)
def lock_order(job: Job) -> None:
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def takes_the_second_lock(one: threading.Lock, other: threading.Lock) -> None:
        with one:
            both.wait()
            with other:
                pass

    threads = [
        threading.Thread(target=takes_the_second_lock, args=pair, daemon=True)
        for pair in ((first, second), (second, first))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@hang("a function that holds a lock calls another one that takes it", "inner_takes_it_again")
def lock_taken_twice(job: Job) -> None:
    lock = threading.Lock()

    def inner_takes_it_again() -> None:
        with lock:
            pass

    with lock:
        inner_takes_it_again()


@hang("the wake-up comes before the wait, and is lost", "waits_for_a_lost_wakeup")
def lost_wakeup(job: Job) -> None:
    ready = threading.Condition()

    def waits_for_a_lost_wakeup() -> None:
        with ready:
            ready.wait()

    with ready:
        ready.notify_all()
    waits_for_a_lost_wakeup()


@hang("the thread that was to set an event died of an exception that nobody saw", "waits_for_the_event")
def event_never_set(job: Job) -> None:
    event = threading.Event()

    def setter() -> None:
        try:
            raise RuntimeError("the setter died")
        except RuntimeError:
            return
        event.set()

    def waits_for_the_event() -> None:
        event.wait()

    threading.Thread(target=setter, daemon=True).start()
    waits_for_the_event()


@hang("a consumer waits for a producer that has died", "gets_from_the_queue")
def queue_without_producer(job: Job) -> None:
    items: queue.Queue[int] = queue.Queue()

    def gets_from_the_queue() -> int:
        return items.get()

    items.put(1)
    while True:
        gets_from_the_queue()


@hang("task_done() is missing on the path of an error, so join() never returns", "joins_the_queue")
def queue_join(job: Job) -> None:
    items: queue.Queue[int] = queue.Queue()

    def worker() -> None:
        while True:
            if items.get() == 3:
                continue  # an error, as it were: no task_done()
            items.task_done()

    def joins_the_queue() -> None:
        items.join()

    threading.Thread(target=worker, daemon=True).start()
    for number in range(5):
        items.put(number)
    joins_the_queue()


@hang("a connection pool whose connections were never given back", "borrows_a_connection")
def pool_exhausted(job: Job) -> None:
    pool = threading.BoundedSemaphore(3)

    def borrows_a_connection() -> None:
        pool.acquire()

    for _ in range(4):
        borrows_a_connection()


@hang("a barrier waits for a party that never started", "waits_at_the_barrier")
def barrier_party_missing(job: Job) -> None:
    barrier = threading.Barrier(3)

    def waits_at_the_barrier() -> None:
        barrier.wait()

    threading.Thread(target=waits_at_the_barrier, daemon=True).start()
    waits_at_the_barrier()


@hang("a task of a thread pool waits for another task of the same full pool", "outer_waits_for_inner", short=True)
def pool_waits_for_itself(job: Job) -> None:
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def inner() -> int:
        return 1

    def outer_waits_for_inner() -> int:
        return pool.submit(inner).result()

    pool.submit(outer_waits_for_inner).result()


@hang("a future that nobody will ever complete", "waits_for_the_future")
def future_never_done(job: Job) -> None:
    future: concurrent.futures.Future[int] = concurrent.futures.Future()

    def waits_for_the_future() -> int:
        return future.result()

    waits_for_the_future()


@hang("a module starts a thread while it is imported, which imports the same module", "needs_the_import_lock")
def import_lock(job: Job) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "imports_itself.py").write_text(
            textwrap.dedent("""
                import threading

                def needs_the_import_lock():
                    import imports_itself
                    imports_itself.ready

                thread = threading.Thread(target=needs_the_import_lock, daemon=True)
                thread.start()
                thread.join()
                ready = True
                """)
        )
        sys.path.insert(0, folder)
        import imports_itself  # type: ignore[import-not-found]  # noqa: F401


@hang("a log handler holds its lock and waits for a thread that logs", "emits_and_waits", short=True)
def log_handler(job: Job) -> None:
    class Shipping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            self.emits_and_waits()

        def emits_and_waits(self) -> None:
            helper = threading.Thread(target=lambda: logger.warning("shipped"), daemon=True)
            helper.start()
            helper.join()

    logger = logging.getLogger("corpus.log_handler")
    logger.addHandler(Shipping())
    logger.warning("first")


@hang("a finaliser takes a lock that the collecting thread holds", "__del__")
def finaliser(job: Job) -> None:
    lock = threading.Lock()

    class Handle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            with lock:
                pass

    Handle()
    with lock:
        gc.collect()


@hang("a file lock, as on a network file system, that a stray process holds", "locks_the_file")
def file_lock(job: Job) -> None:
    path = tempfile.mkstemp()[1]
    reading, writing = os.pipe()
    if os.fork() == 0:
        with open(path, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            os.write(writing, b".")
            time.sleep(600)
            os._exit(0)
    os.read(reading, 1)

    def locks_the_file() -> None:
        with Path(path).open("w") as wanted:
            fcntl.flock(wanted, fcntl.LOCK_EX)

    locks_the_file()


@hang("a database that another connection of the same job has locked", "writes_to_the_locked_database")
def database_locked(job: Job) -> None:
    path = tempfile.mkstemp(suffix=".db")[1]
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE t (n)")
    holder.execute("BEGIN IMMEDIATE")
    other = sqlite3.connect(path, timeout=3600, isolation_level=None)

    def writes_to_the_locked_database() -> None:
        other.execute("INSERT INTO t VALUES (1)")

    writes_to_the_locked_database()


@hang("a lock between processes, whose holder was killed", "takes_the_orphaned_lock")
def orphaned_process_lock(job: Job) -> None:
    lock = multiprocessing.get_context("fork").Lock()
    child = os.fork()
    if child == 0:
        lock.acquire()
        os._exit(1)
    os.waitpid(child, 0)

    def takes_the_orphaned_lock() -> None:
        lock.acquire()

    takes_the_orphaned_lock()


@hang(
    "a process is forked while another thread holds a lock that the child needs",
    "waits_for_the_forked_child",
    short=True,
)
def fork_with_held_lock(job: Job) -> None:
    lock, held = threading.Lock(), threading.Event()

    def holder() -> None:
        with lock:
            held.set()
            time.sleep(600)

    threading.Thread(target=holder, daemon=True).start()
    held.wait()
    child = os.fork()
    if child == 0:
        lock.acquire()
        os._exit(0)

    def waits_for_the_forked_child() -> None:
        os.waitpid(child, 0)

    waits_for_the_forked_child()


@hang("readers never leave a writer a turn", "writer_waits_for_its_turn")
def writer_starved(job: Job) -> None:
    readers, no_readers = [2], threading.Condition()

    def writer_waits_for_its_turn() -> None:
        with no_readers:
            while readers[0]:
                no_readers.wait(0.5)

    writer_waits_for_its_turn()

"""Work that is slow because of the machine: collections, native code, stopped and starved processes."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import zlib

from corpus.case import healthy
from corpus.job import Job


@healthy("a long call in native code, declared, without the interpreter lock", short=True)
def native_call_declared(job: Job) -> None:
    libc = ctypes.CDLL(None)
    with job.silence(8, "native call"):
        for _ in range(5):
            libc.usleep(900_000)
    job.beat()


@healthy("a long call in native code, declared, that keeps the interpreter lock", short=True)
def lock_held_declared(job: Job) -> None:
    libc = ctypes.PyDLL(None)
    with job.silence(8, "native call that keeps the interpreter lock"):
        for _ in range(5):
            libc.usleep(900_000)
    job.beat()


@healthy("pauses of the garbage collector, with much to look at", short=True)
def collector_pauses(job: Job) -> None:
    heap = [[number] for number in range(150_000)]
    for _ in job.track(range(14), 14):
        gc.collect()
        time.sleep(0.4)
    del heap


@healthy("its process is stopped for a while, as a laptop that sleeps, and continued", short=True)
def laptop_sleeps(job: Job) -> None:
    for turn in range(3):
        code = f"import os, signal, time; time.sleep(0.1); os.kill({os.getpid()}, signal.SIGSTOP); time.sleep(1.3); os.kill({os.getpid()}, signal.SIGCONT)"
        lid = subprocess.Popen([sys.executable, "-c", code])
        time.sleep(0.3)
        lid.wait()
        job.beat(turn + 1, 3)


@healthy("a child is stopped for a while and continued")
def child_is_frozen(job: Job) -> None:
    for turn in range(4):
        child = subprocess.Popen(["sleep", "0.2"])
        child.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        child.send_signal(signal.SIGCONT)
        child.wait()
        job.beat(turn + 1, 4)


@healthy("it runs at the lowest priority", cpu=True)
def lowest_priority(job: Job) -> None:
    os.nice(10)
    for _ in job.track(range(30), 30):
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 20_000)
        time.sleep(0.15)


@healthy("a regular expression that is slow and ends", cpu=True)
def slow_expression(job: Job) -> None:
    for _ in job.track(range(8), 8):
        re.match(r"(a+)+$", "a" * 20 + "b")
        time.sleep(0.6)


@healthy("it compresses block after block", cpu=True)
def compresses(job: Job) -> None:
    block = os.urandom(200_000) * 3
    for _ in job.track(range(20), 20):
        zlib.compress(block, 9)
        time.sleep(0.25)


@healthy("a long query, with a beat for every row of its result")
def long_query(job: Job) -> None:
    database = sqlite3.connect(":memory:")
    database.create_function("slowly", 1, lambda n: time.sleep(0.2) or n)
    query = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 35) SELECT slowly(n) FROM c"
    for row, _ in enumerate(database.execute(query), 1):
        job.beat(row, 35)


@healthy("a process pool with slow tasks")
def process_pool(job: Job) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for _ in job.track(pool.imap_unordered(time.sleep, [0.9] * 12), 12):
            pass


@healthy("a process for each item")
def process_per_item(job: Job) -> None:
    for _ in job.track(range(8), 8):
        subprocess.run(["sleep", "0.7"], check=True)


@healthy("its pipe is full most of the time, and is emptied")
def busy_pipe(job: Job) -> None:
    code = "import sys\nfor _ in range(60): sys.stdout.write('x' * 65536)\n"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        got = 0
        while writer.stdout and (piece := writer.stdout.read(65536)):
            got += len(piece)
            time.sleep(0.1)
            job.beat(got, 60 * 65536)

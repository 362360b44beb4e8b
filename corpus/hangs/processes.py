"""Waiting for other processes, pipes and terminals."""

from __future__ import annotations

import multiprocessing
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corpus.case import hang
from corpus.job import Job

_FORK = multiprocessing.get_context("fork")


@hang("a program that never ends, and no timeout", "runs_the_program")
def child_never_ends(job: Job) -> None:
    def runs_the_program() -> None:
        subprocess.run(["sleep", "600"], check=True)

    runs_the_program()


@hang("wait() while the program fills a pipe that nobody reads", "waits_beside_a_full_pipe", short=True)
def full_pipe(job: Job) -> None:
    def waits_beside_a_full_pipe() -> None:
        code = "import sys; sys.stdout.write('x' * 1_000_000)"
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
            writer.wait()

    waits_beside_a_full_pipe()


@hang("a program has ended, and its daemon keeps the pipe open", "reads_to_the_end_of_the_pipe")
def pipe_held_by_grandchild(job: Job) -> None:
    def reads_to_the_end_of_the_pipe() -> bytes:
        return subprocess.run(["sh", "-c", "sleep 600 & echo started"], stdout=subprocess.PIPE, check=True).stdout

    reads_to_the_end_of_the_pipe()


@hang(
    "it waits until a child is gone, and the child is a zombie that only it could reap",
    "waits_for_the_zombie",
    short=True,
)
def zombie_child(job: Job) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)

    def waits_for_the_zombie() -> None:
        while Path(f"/proc/{child}").exists():
            time.sleep(0.05)

    waits_for_the_zombie()


@hang("a tool asks for a password on a terminal that nobody sits at", "reads_the_terminal")
def tool_prompts(job: Job) -> None:
    controller, terminal = pty.openpty()
    tool = subprocess.Popen(["sh", "-c", "printf 'Password: '; read answer"], stdin=terminal, stdout=terminal)
    os.read(controller, 1024)

    def reads_the_terminal() -> None:
        os.read(controller, 1024)

    reads_the_terminal()
    tool.wait()


@hang("a tool waits for its standard input", "waits_for_cat")
def tool_reads_stdin(job: Job) -> None:
    def waits_for_cat() -> None:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
            cat.wait()

    waits_for_cat()


@hang("a child was stopped and is never continued", "waits_for_the_stopped_child")
def stopped_child(job: Job) -> None:
    child = subprocess.Popen(["sleep", "1"])
    child.send_signal(signal.SIGSTOP)

    def waits_for_the_stopped_child() -> None:
        child.wait()

    waits_for_the_stopped_child()


@hang("its own process is stopped, as by a debugger or a frozen container", "stopped by a signal", short=True)
def stopped_process(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)


@hang(
    "it opens a named pipe that nobody writes to, as an open on a dead network file system waits",
    "opens_the_fifo",
    short=True,
)
def fifo_without_writer(job: Job) -> None:
    path = Path(tempfile.mkdtemp()) / "fifo"
    os.mkfifo(path)

    def opens_the_fifo() -> None:
        path.open("rb").read()

    opens_the_fifo()


def _dies(number: int) -> int:
    os._exit(number)


@hang("a worker of a process pool was killed, and the pool waits for its answer for ever", "waits_for_the_pool")
def pool_worker_killed(job: Job) -> None:
    pool = _FORK.Pool(1)

    def waits_for_the_pool() -> None:
        pool.apply(_dies, (1,))

    waits_for_the_pool()


@hang("join() of a process before its queue was emptied: both wait", "joins_before_reading")
def process_join_before_queue(job: Job) -> None:
    results = _FORK.Queue()
    child = _FORK.Process(target=results.put, args=("x" * 1_000_000,), daemon=True)
    child.start()

    def joins_before_reading() -> None:
        child.join()

    joins_before_reading()


@hang("a program that was to report each step has gone quiet", "program")
def quiet_program(job: Job) -> None:
    job.program("sh", "-c", "echo step 1; sleep 600")


@hang("a program that prints the same line for ever", "program", spins=True)
def chattering_program(job: Job) -> None:
    job.program("sh", "-c", "while :; do echo retrying; sleep 0.2; done")

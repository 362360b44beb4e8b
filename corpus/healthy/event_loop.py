"""Coroutines that are slow and healthy."""

from __future__ import annotations

import asyncio
import time

from corpus.case import healthy
from corpus.job import Job
from corpus.servers import serve, stream


@healthy("an event stream of few tokens", short=True)
async def async_slow_tokens(job: Job) -> None:
    reader, writer = await asyncio.open_connection(*serve(lambda c: stream(c, b"data: token\n", 0.8, 10)))
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    tokens = 0
    while line := await reader.readline():
        if line.startswith(b"data:"):
            tokens += 1
            job.beat(tokens)


@healthy("many tasks at once, each of them slow")
async def many_slow_tasks(job: Job) -> None:
    done = 0

    async def one(number: int) -> None:
        nonlocal done
        await asyncio.sleep(0.7 * number)
        done += 1
        job.beat(done, 12)

    await asyncio.gather(*(one(number) for number in range(1, 13)))


@healthy("the event loop is blocked now and then, for less than the threshold", short=True)
async def loop_blocked_at_times(job: Job) -> None:
    for turn in range(5):
        time.sleep(1.3)
        await asyncio.sleep(0.1)
        job.beat(turn + 1, 5)


@healthy("a long call in a thread, declared")
async def thread_call_declared(job: Job) -> None:
    async with job.silence(9, "a call in a thread"):
        await asyncio.to_thread(time.sleep, 5)
    job.beat()


@healthy("two at a time, through a semaphore")
async def two_at_a_time(job: Job) -> None:
    gate, done = asyncio.Semaphore(2), 0

    async def one() -> None:
        nonlocal done
        async with gate:
            await asyncio.sleep(0.9)
        done += 1
        job.beat(done, 14)

    await asyncio.gather(*(one() for _ in range(14)))


@healthy("attempts with a timeout, of which most fail, and then one succeeds")
async def timeouts_then_success(job: Job) -> None:
    for turn in range(6):
        try:
            await asyncio.wait_for(asyncio.sleep(0.2 if turn == 5 else 60), 1.0)
        except asyncio.TimeoutError:
            job.beat(note="again")


@healthy("a producer that is slower than its consumer")
async def slow_producer(job: Job) -> None:
    items: asyncio.Queue[int] = asyncio.Queue()

    async def produce() -> None:
        for number in range(6):
            await asyncio.sleep(1.2)
            await items.put(number)

    producer = asyncio.create_task(produce())
    for item in range(6):
        await items.get()
        job.beat(item + 1, 6)
    await producer


@healthy("tasks that wait long for their turn at a lock")
async def contended_lock(job: Job) -> None:
    lock, done = asyncio.Lock(), 0

    async def one() -> None:
        nonlocal done
        async with lock:
            await asyncio.sleep(0.8)
        done += 1
        job.beat(done, 9)

    await asyncio.gather(*(one() for _ in range(9)))


@healthy("a program awaited while another task counts its output", short=True)
async def async_program(job: Job) -> None:
    command = "for n in 1 2 3 4 5 6 7; do sleep 1; echo $n; done"
    started = await asyncio.create_subprocess_exec("sh", "-c", command, stdout=asyncio.subprocess.PIPE)
    lines = 0
    while started.stdout and await started.stdout.readline():
        lines += 1
        job.beat(lines, 7)
    await started.wait()


@healthy("long sleeps between its steps, as a rate limit asks for")
async def rate_limited(job: Job) -> None:
    for turn in range(5):
        async with job.silence(3, "the rate limit"):
            await asyncio.sleep(1.7)
        job.beat(turn + 1, 5)


@healthy("a generator that yields rarely")
async def rare_yields(job: Job) -> None:
    async def source():  # type: ignore[no-untyped-def]
        for number in range(5):
            await asyncio.sleep(1.5)
            yield number

    done = 0
    async for _ in source():
        done += 1
        job.beat(done, 5)

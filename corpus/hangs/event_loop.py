"""Coroutines that wait for each other, and those that keep the event loop from running."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

from corpus.case import hang
from corpus.job import Job


@hang("a blocking call inside a coroutine: the event loop stands still", "blocks_the_loop", short=True)
async def blocked_loop(job: Job) -> None:
    def blocks_the_loop() -> None:
        time.sleep(600)

    blocks_the_loop()


@hang("a future that nobody completes", "awaits_the_future", short=True)
async def awaited_future(job: Job) -> None:
    async def awaits_the_future() -> None:
        await asyncio.get_running_loop().create_future()

    await awaits_the_future()


@hang("two tasks take two locks in opposite orders", "awaits_both_tasks")
async def async_lock_order(job: Job) -> None:
    first, second = asyncio.Lock(), asyncio.Lock()

    async def take(one: asyncio.Lock, other: asyncio.Lock) -> None:
        async with one:
            await asyncio.sleep(0.05)
            async with other:
                pass

    async def awaits_both_tasks() -> None:
        await asyncio.gather(take(first, second), take(second, first))

    await awaits_both_tasks()


@hang("two tasks that await each other's event", "awaits_the_other")
async def circular_wait(job: Job) -> None:
    one, other = asyncio.Event(), asyncio.Event()

    async def awaits_the_other(mine: asyncio.Event, its: asyncio.Event) -> None:
        await its.wait()
        mine.set()

    await asyncio.gather(awaits_the_other(one, other), awaits_the_other(other, one))


@hang("the producer task died of an exception that nobody looked at", "awaits_an_item")
async def dead_producer(job: Job) -> None:
    items: asyncio.Queue[int] = asyncio.Queue()

    async def produce() -> None:
        await items.put(1)
        raise RuntimeError("the producer died")

    async def awaits_an_item() -> None:
        while True:
            await items.get()

    producer = asyncio.create_task(produce())
    await awaits_an_item()
    await producer


@hang("a call handed to a thread never comes back", "hangs_in_a_thread|in thread_never_returns")
async def thread_never_returns(job: Job) -> None:
    def hangs_in_a_thread() -> None:
        threading.Event().wait()

    await asyncio.to_thread(hangs_in_a_thread)


@hang("wait_for() on a task that swallows its cancellation", "waits_for_the_stubborn", short=True)
async def cancellation_swallowed(job: Job) -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass

    async def waits_for_the_stubborn() -> None:
        await asyncio.wait_for(stubborn(), 0.1)

    await waits_for_the_stubborn()


@hang("a task that spins on sleep(0) until somebody else sets a flag", "spins_on_the_flag", cpu=True)
async def spinning_task(job: Job) -> None:
    flag = asyncio.Event()

    async def spins_on_the_flag() -> None:
        while not flag.is_set():
            await asyncio.sleep(0)

    await spins_on_the_flag()


@hang("a thread's lock taken in a coroutine, while its holder waits for the loop", "takes_a_thread_lock")
async def thread_lock_in_coroutine(job: Job) -> None:
    lock = threading.Lock()

    async def holder() -> None:
        with lock:
            await asyncio.sleep(0.1)

    async def takes_a_thread_lock() -> None:
        with lock:
            pass

    held = asyncio.create_task(holder())
    await asyncio.sleep(0.02)
    await takes_a_thread_lock()
    await held


@hang("await process.wait() while the program fills its pipe", "awaits_beside_a_full_pipe")
async def async_full_pipe(job: Job) -> None:
    async def awaits_beside_a_full_pipe() -> None:
        code = "import sys; sys.stdout.write('x' * 1_000_000)"
        writer = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        await writer.wait()

    await awaits_beside_a_full_pipe()


@hang("a generator whose source never yields", "pulls_the_generator")
async def generator_never_yields(job: Job) -> None:
    async def source() -> object:
        await asyncio.Event().wait()
        yield 1  # type: ignore[misc]

    async def pulls_the_generator() -> None:
        async for _ in source():  # type: ignore[attr-defined]
            job.beat()

    await pulls_the_generator()


@hang("a task beside the work beats for it, on the same event loop", "the_work_waits", spins=True, short=True)
async def side_task_beats(job: Job) -> None:
    async def beats() -> None:
        while True:
            job.beat()
            await asyncio.sleep(0.2)

    async def the_work_waits() -> None:
        await asyncio.Event().wait()

    beating = asyncio.create_task(beats())
    try:
        await the_work_waits()
    finally:
        beating.cancel()


@hang("the answer of a server that never comes, without a timeout", "awaits_the_answer")
async def stream_without_timeout(job: Job) -> None:
    from corpus.servers import serve, silent

    reader, _ = await asyncio.open_connection(*serve(silent))

    async def awaits_the_answer() -> None:
        await reader.readline()

    await awaits_the_answer()

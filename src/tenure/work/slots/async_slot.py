"""A slot that runs several async workflows on one event loop, each in a record of its own.

Engine calls run in threads, so that only user code can block the loop. The supervisor sees a blocked loop, and which attempt blocks it:
every coroutine marks its record while it runs.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tenure.work.slots.claims import ClaimedMessage

if TYPE_CHECKING:
    from tenure.work.slots.slot_main import Slot


def serve_async(slot: Slot) -> None:
    with ThreadPoolExecutor(max_workers=slot.settings.concurrency + 2, thread_name_prefix="tenure-slot") as pool:
        asyncio.run(_serve(slot, pool))


async def _serve(slot: Slot, pool: ThreadPoolExecutor) -> None:
    loop = asyncio.get_running_loop()
    free: asyncio.Queue[int] = asyncio.Queue()
    for index in slot.records:
        free.put_nowait(index)
    running: set[asyncio.Task[None]] = set()
    while not slot.draining.is_set():
        # A record comes before a claim, so that every claim can start at once.
        index = await free.get()
        claim = await loop.run_in_executor(pool, slot.claim)
        if claim is None:
            free.put_nowait(index)
            continue
        task = asyncio.create_task(_run_one(slot, pool, claim, index, free))
        running.add(task)
        task.add_done_callback(running.discard)
    if running:
        await asyncio.wait(running)


async def _run_one(
    slot: Slot, pool: ThreadPoolExecutor, claim: ClaimedMessage, index: int, free: asyncio.Queue[int]
) -> None:
    loop = asyncio.get_running_loop()
    delivery = slot.delivery_of(claim)
    attempt = await loop.run_in_executor(pool, slot.begin, delivery, index)
    if attempt is None:
        free.put_nowait(index)
        return
    try:
        if slot.closed or attempt.handle.lease_is_over:
            await loop.run_in_executor(pool, slot.give_back, delivery)
            return
        failure = attempt.prepare()
        if failure is not None:
            result = attempt.result(failure)
        elif attempt.workflow is not None and attempt.workflow.is_async:
            result = await attempt.run_async()
        else:
            result = await loop.run_in_executor(pool, attempt.run_sync)
        await loop.run_in_executor(pool, slot.conclude, attempt, result)
    except Exception as error:
        await loop.run_in_executor(pool, slot.fail_alone, delivery, error)
    finally:
        slot.end(attempt)
        free.put_nowait(index)

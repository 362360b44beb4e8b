from __future__ import annotations

import asyncio
import math

import pytest
from tests.memory import kept_bytes

from tenure.errors import (
    SimulationDeadlockError,
    SimulationError,
    SimulationForbiddenError,
    SimulationRunawayError,
)
from tenure.sim import Limits, World, run


def test_a_day_of_sleep_takes_no_time_and_ends_exactly_then() -> None:
    async def day() -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.sleep(86_400)
        return loop.time() - begun

    assert run(day()) == 86_400.0


def test_ordinary_asyncio_runs_timeouts_queues_locks_groups_and_events() -> None:
    async def main() -> list[object]:
        seen: list[object] = []
        loop = asyncio.get_running_loop()
        begun = loop.time()
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)

        async def produce() -> None:
            for number in range(3):
                await queue.put(number)
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            for _ in range(3):
                seen.append(await queue.get())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.sleep(math.inf)
        lock = asyncio.Lock()
        async with lock:
            seen.append(await asyncio.gather(asyncio.sleep(1, "a"), asyncio.sleep(0.5, "b")))
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(n)) for n in (1, 9)], return_when=asyncio.FIRST_COMPLETED
        )
        seen.append((len(done), len(pending)))
        seen.append(loop.time() - begun)
        return seen

    assert run(main()) == [0, 1, 2, ["a", "b"], (1, 1), 12.0]


def test_it_serves_asyncio_runner_as_any_loop_does() -> None:
    from tenure.sim.kernel import Kernel
    from tenure.sim.loop import SimLoop

    async def hour() -> str:
        await asyncio.sleep(3_600)
        return "done"

    with asyncio.Runner(loop_factory=lambda: SimLoop(Kernel())) as runner:
        assert runner.run(hour()) == "done"


def test_timers_fire_in_the_order_in_which_they_are_due_and_then_in_which_they_were_set() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        for name, delay in (("c", 2), ("a", 1), ("d", 2), ("b", 1), ("e", 2)):
            loop.call_later(delay, seen.append, name)
        await asyncio.sleep(3)
        return seen

    assert run(main()) == ["a", "b", "c", "d", "e"]


def test_a_timer_never_fires_at_a_moment_that_reads_earlier_than_it_was_set_for() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for delay in (0.1, 1e-9, 1 / 3, 7.7, 1e-7, 0.2):
            when = loop.time() + delay
            fired = loop.create_future()
            loop.call_at(when, lambda fired=fired: fired.set_result(loop.time()))
            assert await fired >= when

    run(main())


def test_a_loop_that_waits_until_a_deadline_ends() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        turns, deadline = 0, loop.time() + 0.7
        while loop.time() < deadline:
            turns += 1
            await asyncio.sleep(deadline - loop.time())
        return turns

    assert run(main()) == 1


def test_a_deadlock_is_told_with_the_tasks_that_wait_and_where() -> None:
    async def starve(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        task = asyncio.create_task(starve(asyncio.Event()), name="the starving one")
        await task

    with pytest.raises(SimulationDeadlockError) as caught:
        run(main())
    assert "the starving one waits at" in str(caught.value)
    assert "test_loop.py" in str(caught.value)
    assert "starve" in str(caught.value)


def test_cancelled_timers_do_not_hide_a_deadlock_nor_move_time() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1_000, print).cancel()
        await asyncio.Event().wait()

    with World() as world, pytest.raises(SimulationDeadlockError):
        world.run(main())
    assert world.now == 0


def test_many_cancelled_timeouts_do_not_fill_the_heap() -> None:
    async def main(rounds: int) -> None:
        for _ in range(rounds):
            async with asyncio.timeout(3_600):
                await asyncio.sleep(0.001)

    with World() as world:
        world.run(main(1_000))
        assert kept_bytes(lambda: world.run(main(4_000))) < 500_000


def test_a_task_that_spins_without_waiting_is_stopped() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationRunawayError, match="1,000 callbacks while time stood still"):
        run(spin(), limits=Limits(steps_at_once=1_000))


def test_a_run_that_never_ends_is_stopped() -> None:
    async def forever() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(SimulationRunawayError, match="2,000 callbacks at"):
        run(forever(), limits=Limits(steps=2_000))


def test_a_run_that_leaps_beyond_all_time_is_stopped() -> None:
    async def wait_for_the_next_century() -> None:
        await asyncio.sleep(100 * 366 * 86_400)

    with pytest.raises(SimulationRunawayError, match=r"beyond 3\.16224e\+08 s of virtual time"):
        run(wait_for_the_next_century())


@pytest.mark.parametrize(
    ("ask", "remedy"),
    [
        (lambda: asyncio.to_thread(print), "one thread"),
        (lambda: asyncio.open_connection("127.0.0.1", 1), "transport"),
        (lambda: asyncio.create_subprocess_exec("true"), "runner"),
        (lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1), "transport"),
    ],
    ids=["to_thread", "open_connection", "create_subprocess_exec", "getaddrinfo"],
)
def test_what_needs_the_real_machine_is_refused_with_a_remedy(ask: object, remedy: str) -> None:
    async def main() -> None:
        await ask()  # type: ignore[operator]

    with pytest.raises(SimulationForbiddenError, match=remedy):
        run(main())


def test_an_error_that_nobody_awaits_fails_the_run() -> None:
    async def bad() -> None:
        raise ValueError("nobody looks")

    async def main() -> None:
        task = asyncio.create_task(bad())
        await asyncio.sleep(10)
        del task

    with pytest.raises(ValueError, match="nobody looks") as caught:
        run(main())
    assert "nobody awaited" in caught.value.__notes__[0]


def test_a_callback_that_raises_ends_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 / 0)
        await asyncio.sleep(10)

    with pytest.raises(ZeroDivisionError):
        run(main())


def test_a_simulation_inside_a_simulation_is_refused() -> None:
    async def inner() -> None: ...

    async def main() -> None:
        coroutine = inner()
        try:
            run(coroutine)
        finally:
            coroutine.close()

    with pytest.raises(SimulationError, match="while an event loop runs"):
        run(main())


def test_a_dropped_async_generator_still_runs_its_finally() -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def numbers() -> object:
            try:
                yield 1
                yield 2
            finally:
                await asyncio.sleep(1)
                seen.append("closed")

        async for _ in numbers():  # type: ignore[attr-defined]
            break
        await asyncio.sleep(5)
        return seen

    assert run(main()) == ["closed"]


def test_sets_of_tasks_are_walked_in_the_order_of_their_making() -> None:
    async def main() -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(0), name=str(number)) for number in range(8)}
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    assert run(main()) == sorted(run(main()), key=int)

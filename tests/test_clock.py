from __future__ import annotations

import asyncio
import threading

import pytest

from tenure.clock import ManualClock, SystemClock


def test_the_system_clock_tells_three_times_and_names_the_boot() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.boottime() <= clock.boottime()
    assert clock.wall() > 1_600_000_000
    assert clock.boot_id() == clock.boot_id() != ""


def test_a_sleeper_wakes_when_the_clock_is_advanced_and_not_before() -> None:
    clock = ManualClock()
    woken = threading.Event()
    thread = threading.Thread(target=lambda: (clock.sleep(60), woken.set()))
    thread.start()
    clock.until_waiting(1)
    clock.advance(59.9)
    assert not woken.wait(0.05)
    clock.until_waiting(1)
    clock.advance(0.2)
    assert woken.wait(60)
    thread.join(60)


def test_a_wait_on_a_condition_tells_a_notification_from_a_timeout() -> None:
    clock = ManualClock()
    condition = threading.Condition()
    answers: list[bool] = []

    def wait() -> None:
        with condition:
            answers.append(clock.wait(condition, 10))

    for act in (lambda: clock.advance(10), lambda: _notify(condition)):
        thread = threading.Thread(target=wait)
        thread.start()
        clock.until_waiting(1)
        act()
        thread.join(60)
    assert answers == [False, True]


def _notify(condition: threading.Condition) -> None:
    with condition:
        condition.notify_all()


def test_a_wait_without_time_left_does_not_block() -> None:
    clock = ManualClock()
    condition = threading.Condition()
    with condition:
        assert clock.wait(condition, 0) is False


def test_tasks_sleep_on_the_manual_clock_in_order() -> None:
    clock = ManualClock()

    async def main() -> list[str]:
        woken: list[str] = []

        async def nap(name: str, seconds: float) -> None:
            await clock.async_sleep(seconds)
            woken.append(name)

        tasks = [asyncio.create_task(nap("late", 20)), asyncio.create_task(nap("early", 10))]
        await asyncio.sleep(0)
        clock.advance(30)
        await asyncio.gather(*tasks)
        return woken

    assert asyncio.run(main()) == ["early", "late"]


def test_a_cancelled_sleeper_does_not_disturb_a_later_advance() -> None:
    clock = ManualClock()

    async def main() -> None:
        task = asyncio.create_task(clock.async_sleep(5))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        clock.advance(10)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert clock.monotonic() == 1_010.0


def test_stepping_the_wall_clock_moves_no_span() -> None:
    clock = ManualClock(start=100, wall=5_000)
    clock.step_wall(-3_600)
    assert (clock.monotonic(), clock.boottime(), clock.wall()) == (100, 100, 1_400)


def test_a_reboot_starts_the_boot_time_anew_under_a_new_id() -> None:
    clock = ManualClock(start=100, wall=5_000)
    clock.reboot("boot-2")
    assert (clock.boottime(), clock.wall(), clock.boot_id()) == (0, 5_000, "boot-2")


def test_a_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot be advanced by -1"):
        ManualClock().advance(-1)


@pytest.mark.parametrize("made", [ManualClock, SystemClock])
def test_a_task_waits_for_an_event_or_for_its_time_whichever_is_first(made: type[ManualClock | SystemClock]) -> None:
    clock = made()

    async def main() -> None:
        event = asyncio.Event()
        patient = asyncio.create_task(clock.async_wait(event, 3_600))
        await asyncio.sleep(0)
        event.set()
        assert await patient is True
        assert await clock.async_wait(event, 3_600) is True, "it is set already"
        event.clear()
        brief = asyncio.create_task(clock.async_wait(event, 0.001))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if isinstance(clock, ManualClock):
            clock.advance(0.001)
        assert await brief is False

    asyncio.run(main())


def test_a_cancelled_wait_for_an_event_is_over() -> None:
    async def main() -> None:
        waiting = asyncio.create_task(SystemClock().async_wait(asyncio.Event(), 3_600))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())

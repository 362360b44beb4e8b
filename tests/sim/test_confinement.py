from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import threading
import time

import pytest

from tenure.errors import SimulationForbiddenError
from tenure.sim import run


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: time.sleep(1), "time.sleep"),
        (lambda: threading.Thread(target=print).start(), "a thread"),
        (lambda: socket.socket(), "a socket"),
        (lambda: subprocess.run(["true"], check=False), "a process"),
    ],
    ids=["sleep", "thread", "socket", "process"],
)
def test_asking_the_real_machine_is_refused_inside_and_allowed_again_afterwards(ask: object, what: str) -> None:
    async def main() -> None:
        ask()  # type: ignore[operator]

    with pytest.raises(SimulationForbiddenError, match=what):
        run(main())
    socket.socket().close()
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    time.sleep(0)


def test_other_threads_of_the_process_go_on_as_ever() -> None:
    slept, begin = threading.Event(), threading.Event()

    def elsewhere() -> None:
        begin.wait(60)
        time.sleep(0.001)
        slept.set()

    thread = threading.Thread(target=elsewhere)
    thread.start()

    async def main() -> bool:
        begin.set()
        return slept.wait(60)

    assert run(main())
    thread.join()


def test_the_collector_and_wait_for_are_as_before_when_a_run_is_over() -> None:
    before = asyncio.wait_for

    async def main() -> bool:
        return gc.isenabled()

    assert run(main()) is False
    assert gc.isenabled()
    assert asyncio.wait_for is before


def test_wait_for_of_a_result_that_is_there_returns_it_even_with_no_time() -> None:
    async def main() -> tuple[str, str]:
        ready = asyncio.get_running_loop().create_future()
        ready.set_result("there")
        first = await asyncio.wait_for(ready, 0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(1), 0)
        return first, await asyncio.wait_for(asyncio.sleep(1, "slept"), None)

    assert run(main()) == ("there", "slept")

"""The threads of sync workflows in the kit: the one that computes holds time, and the one that hangs does not."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tenure.clock import ManualClock
from tenure.testing.virtual import LOOK_S, WatchedThreads

HUNG_AFTER_S = 1.0


@pytest.fixture
def let_go() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_machine_that_stood_still_makes_no_thread_hang_and_a_silent_one_hangs_after_its_time(
    let_go: threading.Event,
) -> None:
    real = ManualClock()
    threads = WatchedThreads(ManualClock(), HUNG_AFTER_S, real=real)
    threads.start(let_go.wait)
    for _ in range(10):
        real.advance(60.0)  # nobody ran meanwhile: neither this process nor the thread
        assert threads.busy
    threads.stood_still()
    looks = 0
    while threads.busy:
        real.advance(LOOK_S)
        looks += 1
    assert HUNG_AFTER_S <= looks * LOOK_S < 1.1 * HUNG_AFTER_S

from __future__ import annotations

import threading

import pytest

from tenure.work.batch import CallThread


def test_calls_are_made_in_order_elsewhere_and_whoever_asks_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    go, ended = threading.Event(), threading.Event()
    made: list[object] = []

    def fails() -> None:
        raise ValueError("no disk")

    with CallThread("test") as thread:
        thread.take(lambda: made.append(go.wait(30)))
        thread.take(fails)
        thread.take(lambda: made.append(threading.current_thread().name))
        thread.take(ended.set)
        assert made == []
        go.set()
    assert ended.wait(30), "what was taken before the end is made"
    assert made == [True, "tenure-calls-test"]
    assert "no disk" in caplog.text

from __future__ import annotations

import threading

import pytest

from tenure.work.call_thread import Courier


def test_calls_are_made_in_order_elsewhere_and_whoever_asks_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    go, ended = threading.Event(), threading.Event()
    made: list[object] = []

    def fails() -> None:
        raise ValueError("no disk")

    with Courier("test") as courier:
        courier.take(lambda: made.append(go.wait(30)))
        courier.take(fails)
        courier.take(lambda: made.append(threading.current_thread().name))
        courier.take(ended.set)
        assert made == []
        go.set()
    assert ended.wait(30), "what was taken before the end is made"
    assert made == [True, "tenure-courier-test"]
    assert "no disk" in caplog.text

"""What tests of waiting share: a long poll in a thread, and waiting for something to come true."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


class Poll:
    """A long poll in a thread."""

    def __init__(self, receive: Callable[[], Any]) -> None:
        self.got: Any = None
        self._thread = threading.Thread(target=self._run, args=(receive,))
        self._thread.start()

    def _run(self, receive: Callable[[], Any]) -> None:
        self.got = receive()

    def result(self) -> Any:
        self._thread.join(70)
        assert not self._thread.is_alive()
        return self.got

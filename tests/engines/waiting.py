"""What tests of waiting share: a long poll in a thread, and waiting for something to come true."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


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

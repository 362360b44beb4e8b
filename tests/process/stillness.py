"""Whether the machine itself stood still while a test ran: then what the test takes for granted did not hold."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

TICK_S = 0.02


class Stillness:
    """Notes the longest time for which this process did not get to run: `with Stillness() as machine: ...; machine.longest_s`."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stillness")

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(TICK_S):
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last), now
        self.longest_s = max(self.longest_s, time.monotonic() - last)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

"""Tells whether the machine itself stood still while a test ran: then the test took something for granted that did not hold."""

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

    def excuses(self, limit_s: float) -> bool:
        """Returns True when nobody ran here for `limit_s` or longer: a promise that is about shorter times was then not put to the test.

        Use it as `assert promise or machine.excuses(limit_s)`, after the `with` block. A test runs once, and neither tries again nor skips.
        """
        if self.longest_s >= limit_s:
            print(f"the machine stood still for {self.longest_s:.2f} s; the promise holds for less than {limit_s:g} s")
        return self.longest_s >= limit_s

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

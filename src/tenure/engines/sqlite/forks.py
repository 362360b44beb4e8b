"""Calls every open database before a fork, and after it on both sides.

A fork in C code that does not tell Python is found out by the process id: see `Lane`.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Protocol
from weakref import WeakValueDictionary


class Forkable(Protocol):
    """The interface of an object that takes part in a fork."""

    @property
    def is_open(self) -> bool: ...

    def hold_for_fork(self) -> None: ...

    def release_after_fork(self, *, child: bool) -> None: ...


class _Watch:
    """Which databases this process has open. Hooks of a fork cannot be removed again, so there is one set for all."""

    def __init__(self) -> None:
        self._open: WeakValueDictionary[int, Forkable] = WeakValueDictionary()
        self._numbers = itertools.count()
        self._held: list[Forkable] = []
        self._one_at_a_time = threading.Lock()
        os.register_at_fork(
            before=self._before,
            after_in_parent=lambda: self._after(child=False),
            after_in_child=lambda: self._after(child=True),
        )

    def add(self, database: Forkable) -> None:
        self._open[next(self._numbers)] = database

    def _before(self) -> None:
        self._one_at_a_time.acquire()
        self._held = [database for _, database in sorted(self._open.items()) if database.is_open]
        for database in self._held:
            database.hold_for_fork()

    def _after(self, *, child: bool) -> None:
        held, self._held = self._held, []
        for database in held:
            database.release_after_fork(child=child)
        self._one_at_a_time.release()


_watch: _Watch | None = None


def watch(database: Forkable) -> None:
    global _watch
    if _watch is None:
        _watch = _Watch()
    _watch.add(database)

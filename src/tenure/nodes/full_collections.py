"""Keeps Python's full garbage collections from walking through all that a node knows, each time anew.

A full collection follows every reference of every container, and the node answers nobody meanwhile. While a book alone took 400,000 jobs there was one
for each 5,000 of them, 0.07 s on average and longer each time (decision 0950). The records of a book have no cycles, so these walks find nothing.
"""

from __future__ import annotations

import gc

WHOLE_EVERY = 64
"""One full collection in so many walks through everything, and finds the cycles that died after they had been set aside."""

YOUNG_OBJECTS = 20_000
"""The new objects after which the collector looks at them. Python's 700 are those of 47 jobs, and a leader frees them later, when it packs the jobs (decision 1003)."""


class NewObjectsOnly:
    """Sets aside what a full collection has left alive, so that the next one walks only through what came since.

    What was set aside is freed as ever when its last reference goes. Only a cycle that is in there waits for the next walk through everything.
    """

    def __init__(self) -> None:
        self._left = WHOLE_EVERY

    def __call__(self, phase: str, about: dict[str, int]) -> None:
        """The collector calls this before and after each collection."""
        if about["generation"] != 2:
            return
        if phase == "stop":
            gc.freeze()  # now, because nothing that is alive after a full collection is garbage
            return
        self._left -= 1
        if self._left <= 0:
            self._left = WHOLE_EVERY
            gc.unfreeze()


def collect_new_objects_only() -> None:
    """Changes how the garbage of this process is collected, for good. Only the commands call it that have a process of their own."""
    if not any(isinstance(one, NewObjectsOnly) for one in gc.callbacks):
        gc.callbacks.append(NewObjectsOnly())
        gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])  # most are gone by then, with their last reference

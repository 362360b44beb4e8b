"""The sizes of the tests that prove more the longer they run: short in `make test`, long in `make soak`.

`make test` reads the calls of `sized` in the sources and says in its last lines what it left to `make soak`; so `short` and `long` are written
there as numbers.
"""

from __future__ import annotations

import os
from typing import TypeVar

SOAK = os.environ.get("TENURE_SOAK") == "1"
SizeT = TypeVar("SizeT", int, float)


def sized(what: str, *, short: SizeT, long: SizeT) -> SizeT:
    """Returns the size of this run. `what` names the things that are counted, as the last lines of `make test` show them."""
    if not what:
        raise ValueError("what is empty: name the things that are counted, such as 'schedules of one datacenter'")
    return long if SOAK else short

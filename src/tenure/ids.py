"""Names for things that never had one: the only file that makes ids up.

What needs ids takes an `IdSource`, so that a simulation gets the same ones from the same seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

IdSource = Callable[[], str]
"""Each call gives an id that nobody else has."""


def new_id() -> str:
    """128 unguessable bits in 32 hexadecimal digits."""
    return os.urandom(16).hex()


def secret_bytes(count: int) -> bytes:
    """Unguessable bytes, for keys and for nonces that must never repeat."""
    return os.urandom(count)


def seeded_ids(random: Random) -> IdSource:
    """Ids that a seed decides, for simulations and tests."""
    return lambda: f"{random.getrandbits(128):032x}"

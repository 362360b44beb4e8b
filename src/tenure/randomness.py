"""Where chance and names come from: the only file that seeds a generator from the machine, and that makes ids up.

Whatever draws (jitter, shuffles, probe order) takes a `random.Random` from its caller, and whatever needs ids takes an `IdSource`, so that
one seed replays a run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from random import Random, SystemRandom
from weakref import WeakSet

__all__ = [
    "DIFFERS_AFTER_FORK",
    "FreshRandom",
    "IdSource",
    "Random",
    "fresh_random",
    "new_id",
    "reseed_after_fork",
    "secret_bytes",
    "seeded_ids",
]

IdSource = Callable[[], str]
"""Each call gives an id that nobody else has."""


_MADE_AT_ONCE = 64
_made: list[str] = []
"""Ids for the next calls: one question to the operating system brings many. A forked child begins with none of its parent's."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_made.clear)


def new_id() -> str:
    """128 unguessable bits in 32 hexadecimal digits."""
    try:
        return _made.pop()  # one step, so two threads never get the same
    except IndexError:
        digits = os.urandom(16 * _MADE_AT_ONCE).hex()
        _made.extend(digits[at : at + 32] for at in range(32, len(digits), 32))
        return digits[:32]


def secret_bytes(count: int) -> bytes:
    """Unguessable bytes, for keys and for nonces that must never repeat."""
    return os.urandom(count)


def seeded_ids(random: Random) -> IdSource:
    """Ids that a seed decides, for simulations and tests."""
    return lambda: f"{random.getrandbits(128):032x}"


class FreshRandom(Random):
    """A generator that a forked slot seeds anew."""


DIFFERS_AFTER_FORK = (SystemRandom, FreshRandom)
"""The generators that two forked slots cannot share: the first has no state, the second gets another seed."""
_fresh: WeakSet[FreshRandom] = WeakSet()


def fresh_random() -> Random:
    """Returns a fast generator with an unpredictable seed, for jitter and shuffling; secrets come from `secret_bytes`."""
    made = FreshRandom(SystemRandom().getrandbits(128))
    _fresh.add(made)
    return made


def reseed_after_fork() -> None:
    """Gives our generators and numpy's shared one other seeds than their parent's. Python's own does so by itself, and `os.urandom` has none."""
    for one in list(_fresh):
        one.seed(SystemRandom().getrandbits(128))
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()

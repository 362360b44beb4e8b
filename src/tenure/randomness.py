"""Where chance comes from: the only file that seeds a generator from the machine.

Whatever draws (jitter, shuffles, probe order) takes a `random.Random` from its caller, so that one seed replays a run.
"""

from __future__ import annotations

from random import Random, SystemRandom

__all__ = ["Random", "fresh_random"]


def fresh_random() -> Random:
    """A fast generator with an unpredictable seed, for jitter and shuffling; secrets come from `tenure.ids`."""
    return Random(SystemRandom().getrandbits(128))  # noqa: S311  not for secrets

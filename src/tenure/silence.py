"""Defines the silences of one attempt as plain data: its worker measures them, its result carries them, a leader learns from them (decision 0485)."""

from __future__ import annotations

import msgspec

from tenure import bounds as b


class AttemptSilence(msgspec.Struct, frozen=True, array_like=True):
    """Tells how long one attempt was silent between proofs, by its stall clock: a declared silence, or one under a hold, is none."""

    longest_s: b.ElapsedSeconds = 0.0
    """The longest silence after which it went on."""
    last_s: b.ElapsedSeconds = 0.0
    """The silence in which it ended."""
    allowed_s: b.ElapsedSeconds = 0.0
    """The threshold that held for it."""
    version: b.AnyNameOrNone = ""
    """The version that ran."""
    learned: bool = False
    """True when a learned threshold held, and not the set one."""

"""Compares the marks of saved work: one number that names the checkpoint and counts the recorded steps (decisions 0356, 0400)."""

from __future__ import annotations

_CHECKPOINT = (1 << 32) - 1
"""The bits of a mark that name the checkpoint; those above count the recorded steps (`work.delivery.mark_of`)."""


def is_new_mark(mark: int | None, before: int) -> bool:
    """Returns True when a mark tells of saved work that the one before does not know: another checkpoint, or more steps."""
    checkpoint = (mark or 0) & _CHECKPOINT
    return (mark or 0) >> 32 > before >> 32 or (checkpoint != 0 and checkpoint != before & _CHECKPOINT)


def joined_marks(mark: int | None, before: int) -> int:
    """Returns the mark of all saved work that is known. An attempt that did not read the steps says nothing about them."""
    found = mark or 0
    steps, checkpoint = max(found >> 32, before >> 32), found & _CHECKPOINT or before & _CHECKPOINT
    return steps << 32 | checkpoint

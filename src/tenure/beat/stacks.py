"""Where every thread of this process is, as text: the evidence that is taken before a stuck process is ended."""

from __future__ import annotations

import sys
import threading
import traceback
from types import FrameType


def thread_stacks(*, skip: frozenset[int] = frozenset()) -> str:
    """The stack of each thread, by name; those in `skip` (by ident) are left out."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"Thread {names.get(ident, 'unknown to Python')!s} ({ident}):\n{_stack(frame)}"
        for ident, frame in sorted(sys._current_frames().items())
        if ident not in skip
    ]
    return "\n".join(parts)


def thread_stack(ident: int) -> str:
    """The stack of one thread; empty when it is gone."""
    frame = sys._current_frames().get(ident)
    return "" if frame is None else _stack(frame)


def _stack(frame: FrameType) -> str:
    return "".join(traceback.format_stack(frame))

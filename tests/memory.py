"""Measures how much memory something keeps: a bound on what is remembered is a bound on bytes, whatever attribute holds them."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable


def kept_bytes(fill: Callable[[], object]) -> int:
    """Returns the bytes that are allocated by `fill` and still there when it has returned, with its result still alive."""
    gc.collect()
    already = tracemalloc.is_tracing()
    if not already:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        result = fill()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        del result
    finally:
        if not already:
            tracemalloc.stop()
    return after - before

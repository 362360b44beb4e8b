"""SIGTERM and SIGINT while something runs: handed to it, and put back as they were."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Call this for each stop signal meanwhile. Python allows that in the main thread only; elsewhere it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda got, _frame: on_signal(got)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: it was set by C code, which Python cannot put back; the default is the nearest thing.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

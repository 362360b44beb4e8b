"""`tenure worker`, with one process of it struck at a given moment of its work: by SIGKILL, or by SIGSTOP.

    TENURE_TEST_STRIKE=POINT:SIGNAL:FILE python struck_worker.py worker ...

The file is made at the moment of the strike, with the pid of the struck process in it, so that each run has one strike. The supervisor is struck
in this program; a slot is struck because the module that it serves (`struck_app.py`) imports this one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from tenure.work.slots.claim_page import ClaimPage
from tenure.work.slots.engine_exchange import EngineExchange, ExchangePlan
from tenure.work.slots.frames import FrameChannel, HandOver
from tenure.work.slots.slot_channel import ChannelDelivery

POINT, SIGNAL, FILE = os.environ.get("TENURE_TEST_STRIKE", "::").split(":", 2)
AFTER = 8 if POINT in ("start", "result") else 3
"""The strike comes after so many passes, when durations are learned and items are claimed ahead: then an exchange brings many."""
_passes = [0]


def strike() -> None:
    _passes[0] += 1
    if _passes[0] < AFTER:
        return
    try:
        descriptor = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    os.write(descriptor, str(os.getpid()).encode())
    os.close(descriptor)
    os.kill(os.getpid(), signal.Signals[SIGNAL])


def struck(function: Callable[..., Any], *, first: bool, when: Callable[..., bool] = lambda *args: True) -> Any:
    """Returns the function with a strike before or after it."""

    def struck_function(*args: Any, **options: Any) -> Any:
        if first and when(*args):
            strike()
        found = function(*args, **options)
        if not first and when(*args):
            strike()
        return found

    return struck_function


def settles(exchange: EngineExchange, plan: ExchangePlan) -> bool:
    return bool(plan.outcomes)


def hands_over(channel: FrameChannel, *frames: Any) -> bool:
    return any(isinstance(frame, HandOver) for frame in frames)


if POINT == "claim":  # after the engine gave the items, before anybody else knows
    EngineExchange.take_in = struck(EngineExchange.take_in, first=True)  # type: ignore[method-assign]
elif POINT == "hand-over":
    FrameChannel.send = struck(FrameChannel.send, first=False, when=hands_over)  # type: ignore[method-assign]
elif POINT == "start":  # after the slot said that it starts it
    ClaimPage.start = struck(ClaimPage.start, first=False)  # type: ignore[method-assign]
elif POINT == "result":  # the outcome is ready, and the supervisor does not have it
    ChannelDelivery.finish = struck(ChannelDelivery.finish, first=True)  # type: ignore[method-assign]
elif POINT == "settle":  # the supervisor has outcomes, and the engine does not
    EngineExchange.exchange = struck(EngineExchange.exchange, first=True, when=settles)  # type: ignore[method-assign]

if __name__ == "__main__":
    from tenure.cli import main

    main()

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

from tenure.engines.contracts import Exchanged
from tenure.work.slots.claim_page import ClaimPage
from tenure.work.slots.engine_exchange import EngineExchange, ExchangePlan
from tenure.work.slots.frames import FrameChannel, HandOver
from tenure.work.slots.slot_channel import SlotChannel

POINT, SIGNAL, FILE = os.environ.get("TENURE_TEST_STRIKE", "::").split(":", 2)
AFTER = 8 if POINT in ("start", "result") else 3
"""The strike comes after so many passes, when durations are learned and items are claimed ahead: then an exchange brings many."""
MANY = 20
"""Items after which it comes in any case: on a busy machine two exchanges may bring all that there are."""
_passes, _items = [0], [0]


def strike(items: int = 1) -> None:
    _passes[0] += 1
    _items[0] += items
    if _passes[0] < AFTER and _items[0] < MANY:
        return
    try:
        descriptor = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    os.write(descriptor, str(os.getpid()).encode())
    os.close(descriptor)
    os.kill(os.getpid(), signal.Signals[SIGNAL])


def struck(function: Callable[..., Any], *, first: bool, items: Callable[..., int] = lambda *args: 1) -> Any:
    """Returns the function with a strike before or after it. `items` says how many a call is about; one about none is no pass."""

    def struck_function(*args: Any, **options: Any) -> Any:
        if first and (count := items(*args)):
            strike(count)
        found = function(*args, **options)
        if not first and (count := items(*args)):
            strike(count)
        return found

    return struck_function


def taken_in(exchange: EngineExchange, plan: ExchangePlan, exchanged: Exchanged[Any, Any]) -> int:
    return max(1, len(exchanged.messages))


def settled(exchange: EngineExchange, plan: ExchangePlan) -> int:
    return len(plan.outcomes)


def handed_over(channel: FrameChannel, *frames: Any) -> int:
    return sum(isinstance(frame, HandOver) for frame in frames)


if POINT == "claim":  # after the engine gave the items, before anybody else knows
    EngineExchange.take_in = struck(EngineExchange.take_in, first=True, items=taken_in)  # type: ignore[method-assign]
elif POINT == "hand-over":
    FrameChannel.send = struck(FrameChannel.send, first=False, items=handed_over)  # type: ignore[method-assign]
elif POINT == "start":  # after the slot said that it starts it
    ClaimPage.start = struck(ClaimPage.start, first=False)  # type: ignore[method-assign]
elif POINT == "result":  # the outcome is ready, and the supervisor does not have it
    SlotChannel.finish = struck(SlotChannel.finish, first=True)  # type: ignore[method-assign]
elif POINT == "settle":  # the supervisor has outcomes, and the engine does not
    EngineExchange.exchange = struck(EngineExchange.exchange, first=True, items=settled)  # type: ignore[method-assign]

if __name__ == "__main__":
    from tenure.cli import main

    main()

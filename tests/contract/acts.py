"""Everything that can be done with a delivery, for tests that say "every call is refused"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.engines.contracts import Message
from tenure.errors import ReceiptHandleExpiredError

ACTS: dict[str, Callable[[Message[Any, Any]], None]] = {
    "acknowledge": lambda message: message.acknowledge(),
    "nack": lambda message: message.nack(),
    "nack with a delay": lambda message: message.nack(5),
    "release": lambda message: message.release(),
    "extend": lambda message: message.extend_visibility(60),
    "extend with a checkpoint": lambda message: message.extend_visibility(60, b"stale"),
    "reply": lambda message: message.reply("stale"),
    "settle": lambda message: message.settle("stale"),
    "dead_letter": lambda message: message.dead_letter("stale"),
}


def assert_every_act_is_refused(message: Message[Any, Any]) -> None:
    for name, act in ACTS.items():
        if message.reply_to is None and name in ("reply", "settle"):
            continue  # refused for another reason
        with pytest.raises(ReceiptHandleExpiredError) as refused:
            act(message)
        assert refused.value.message_id == message.id, name

"""Keeps the steps of suspended work in the store, because an engine forgets a key a day after its message ended (RULINGS 6)."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.engines.contracts import Engine, Message
from tenure.engines.contracts.engine import MAX_KEY_CHARS

SUSPENDED_STEPS = "suspended"
"""The name of the store."""


def steps_key(job_id: str, workflow_id: str) -> str:
    return f"{job_id}/{workflow_id}"[-MAX_KEY_CHARS:]


class KeptSteps:
    """The worker that suspends work keeps its steps before it settles; the leader deletes them when the job has ended."""

    def __init__(self, engine: Engine) -> None:
        self._store = engine.store(SUSPENDED_STEPS)

    def read(self, message: Message[Any, Any], job_id: str, workflow_id: str) -> list[bytes]:
        """Returns the recorded steps of work: those that were kept when it was suspended, and those that its key has in the engine."""
        own = message.steps()
        kept = self._store.get(steps_key(job_id, workflow_id)) if message.generation > 1 else None
        if kept is None:
            return own
        found: list[bytes] = msgspec.msgpack.decode(kept, type=list[bytes])
        known = set(found)
        return found + [one for one in own if one not in known]

    def keep(self, message: Message[Any, Any], job_id: str, workflow_id: str) -> None:
        message.extend_visibility(0)  # the engine has to count the delivery before its fence is used (RULINGS 7)
        steps = self.read(message, job_id, workflow_id)
        self._store.put(steps_key(job_id, workflow_id), msgspec.msgpack.encode(steps), fence=message.fence)

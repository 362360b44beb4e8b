"""Keeps the steps of suspended and of failed work in the store: an engine forgets a key a day after its message ended (RULINGS 6), and shows its steps to the
holder of the message only."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.attempt_data import LIVE_TTL_S
from tenure.engines.contracts import Engine, Message
from tenure.engines.contracts.engine import MAX_KEY_CHARS
from tenure.work.delivery import MARK_BITS, WorkResult

SUSPENDED_STEPS = "suspended"
"""The name of the store."""


def steps_key(job_id: str, workflow_id: str) -> str:
    return f"{job_id}/{workflow_id}"[-MAX_KEY_CHARS:]


class KeptSteps:
    """The worker that suspends work, or fails it, keeps its steps before it settles. When the job has completed, the leader deletes them."""

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

    def keep(self, message: Message[Any, Any], job_id: str, workflow_id: str, *, ttl: float | None = None) -> None:
        message.extend_visibility(0)  # the engine has to count the delivery before its fence is used (RULINGS 7)
        steps = self.read(message, job_id, workflow_id)
        self._store.put(steps_key(job_id, workflow_id), msgspec.msgpack.encode(steps), fence=message.fence, ttl=ttl)

    def keep_failed(self, message: Message[Any, Any], result: WorkResult) -> None:
        """Keeps the steps of an attempt that failed, if it has any: another job may begin again from one of them."""
        if (result.mark or 0) >> MARK_BITS:
            self.keep(message, result.job_id, result.workflow_id, ttl=LIVE_TTL_S)

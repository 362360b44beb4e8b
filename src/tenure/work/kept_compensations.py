"""Keeps the compensations of a job in the engine's store: what its workflows registered, and which of that has been run.

The list of one workflow is written under the fence of its delivery. Which of its entries have been run is one mark each: a mark is a fact that only comes
to be, so whoever writes it needs no fence, and neither a second attempt nor a second undo job runs that entry again. This file knows no nodes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from tenure.attempt_data import LIVE_TTL_S
from tenure.engines.contracts import Engine, Fence, Message

COMPENSATIONS_STORE = "compensations"


def compensations_prefix(job_id: str) -> str:
    """Returns how the keys of a job's compensations begin. A digest, because a job's id may have slashes, and keys are found by their beginning."""
    return hashlib.blake2b(job_id.encode(), digest_size=16).hexdigest() + "/"


def registered_workflow(key: str) -> str:
    """Returns the workflow whose list a key is; nothing for the key of a mark. A workflow's name has no slash."""
    _, _, rest = key.partition("/")
    return "" if "/" in rest else rest


class KeptCompensations:
    """One store for registering workers and for those that run compensations. The leader reads it when a job has ended."""

    def __init__(self, engine: Engine) -> None:
        self._store = engine.store(COMPENSATIONS_STORE)

    def put(self, message: Message[Any, Any], job_id: str, workflow_id: str, data: bytes) -> None:
        """Writes the list of a workflow. When this returns, it will be found by whoever ends the job.

        The lease is asked for before, as the fence demands (RULINGS 7), and once more after it: a leader that ends the job revokes the message first and
        looks into the store then. So a list that was written while the lease held is there when the leader looks.
        """
        message.extend_visibility(0)
        self._store.put(compensations_prefix(job_id) + workflow_id, data, fence=Fence(*message.fence), ttl=LIVE_TTL_S)
        message.extend_visibility(0)

    def read(self, job_id: str, workflow_id: str) -> bytes:
        """Returns (the list, the places of those that were run), encoded."""
        own = compensations_prefix(job_id) + workflow_id
        done = [int(key.rpartition("/")[2]) for key in self._store.list(f"{own}/")]
        return msgspec.msgpack.encode((self._store.get(own) or b"", done))

    def done(self, message: Message[Any, Any], job_id: str, workflow_id: str, place: int) -> None:
        """Marks an entry as run."""
        self._store.put(f"{compensations_prefix(job_id)}{workflow_id}/{place:06}", b"done", ttl=LIVE_TTL_S)
        message.extend_visibility(0)

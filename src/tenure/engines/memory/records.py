"""One message as the memory engine keeps it, and what is remembered of a key."""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING

from tenure.engines.contracts import KEY_MEMORY_S
from tenure.errors import KeyRefusedError

if TYPE_CHECKING:
    from tenure.engines.memory.engine import MemoryEngine


class State(IntEnum):
    READY = 0
    DELAYED = 1
    LEASED = 2
    ENDED = 3


class Stage(IntEnum):
    """How far the delivery under lease has come; it decides whether the delivery counts."""

    CLAIMED = 0  # provisional: uncounted again when it is released, forgiven when it runs out
    HELD = 1  # uncounted again only when it is released
    STARTED = 2  # extended at least once: it may have had effects, so its fence is never given out again


READY, DELAYED, LEASED, ENDED = State
CLAIMED, HELD, STARTED = Stage


class Record:
    """A message. Only its box changes it, under the engine's lock."""

    __slots__ = (
        "armed",
        "base",
        "body",
        "checkpoint",
        "count",
        "due",
        "ended",
        "enqueued_at",
        "generation",
        "id",
        "is_failure",
        "key",
        "receipt",
        "reply_to",
        "route",
        "stage",
        "state",
        "suspect",
    )

    def __init__(self, id: str, body: bytes, enqueued_at: float) -> None:
        self.id = id
        self.body = body
        self.enqueued_at = enqueued_at
        self.reply_to: str | None = None
        self.route: tuple[MemoryEngine, str] | None = None  # when the reply goes to another memory engine
        self.key: str | None = None
        self.generation = 0
        self.checkpoint: bytes | None = None
        self.is_failure = False
        self.state = READY
        self.stage = HELD
        self.receipt = 0  # grows with every delivery, also with those that do not count
        self.count = 0
        self.base = 0  # deliveries that are forgiven: before the last replay, handed over, or never started
        self.suspect = False  # its last claim ran out, and no holder has settled, released or nacked it since
        self.due = 0.0  # when a lease runs out, or a delay ends
        self.armed = inf  # the time of its one valid timer: never later than `due` while leased or delayed
        self.ended = ""  # why a receipt is dead although its lease would still run


class Key:
    """The record of a key: its newest generation, and the message that carries it while that lives."""

    __slots__ = ("checkpoint", "ended_at", "generation", "live", "revoked")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.live: Record | None = None
        self.revoked = False
        self.ended_at = inf
        self.checkpoint: bytes | None = None


class KeyMemory:
    """The keys of one mailbox, each remembered for `KEY_MEMORY_S` after its message ended."""

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}
        self._ended: deque[tuple[float, str, Key]] = deque()  # in the order of ending, so pruning looks at one end

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, name: str) -> Key | None:
        return self._keys.get(name)

    def admit(self, name: str, generation: int, now: float) -> Key:
        """The key, if this generation may be sent; what to do with its live message is the caller's business."""
        self.prune(now)
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = Key(generation)
        elif key.revoked or generation <= key.generation:
            raise KeyRefusedError(name, generation, key.generation, revoked=key.revoked)
        return key

    def readmit(self, record: Record, now: float) -> None:
        """Let a dead letter be the live message of its key again."""
        if record.key is None:
            return
        self.prune(now)
        key = self._keys.get(record.key)
        if key is None:
            key = self._keys[record.key] = Key(record.generation)
        elif key.revoked or key.generation > record.generation or key.live is not None:
            raise KeyRefusedError(record.key, record.generation, key.generation, revoked=key.revoked)
        key.live, key.ended_at = record, inf

    def end(self, record: Record, now: float) -> None:
        """Its message is gone: remember the key from now on. The checkpoint waits for a next generation."""
        key = self._keys.get(record.key) if record.key is not None else None
        if key is not None and key.live is record and record.key is not None:
            key.live, key.checkpoint = None, record.checkpoint
            self._remember(record.key, key, now)

    def revoke(self, name: str, now: float) -> Record | None:
        """Leave a tombstone; the live message that it hits, if any."""
        self.prune(now)
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = Key(-1)
        hit, key.live, key.checkpoint, key.revoked = key.live, None, None, True
        self._remember(name, key, now)
        return hit

    def _remember(self, name: str, key: Key, now: float) -> None:
        key.ended_at = now
        self._ended.append((now, name, key))

    def prune(self, now: float) -> None:
        while self._ended and self._ended[0][0] + KEY_MEMORY_S <= now:
            ended_at, name, key = self._ended.popleft()
            # A key that lives again, or ended again later, has a newer entry further back.
            if key.live is None and key.ended_at == ended_at and self._keys.get(name) is key:
                del self._keys[name]

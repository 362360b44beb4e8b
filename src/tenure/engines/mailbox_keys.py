"""The keys of one mailbox: those that live, and those that ended within the last day. Pure, and part of the state machine of `mailbox_state`.

A key that ended long enough ago, and left neither checkpoint nor steps nor a tombstone, is packed (`ended_keys`). All others are records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tenure.engines.contracts import KEY_MEMORY_S
from tenure.engines.ended_keys import EndedKeys
from tenure.engines.mailbox_records import KeyRecord

Ends = deque[tuple[float, str]]


class MailboxKeys:
    """Callers pass times that never fall."""

    most_unpacked = 4_096
    """The ends that stay records: for a mailbox with little work nothing is packed. Every fold of a log must have the same."""

    def __init__(self) -> None:
        self.records: dict[str, KeyRecord] = {}
        """Counts before `packed`, which may have an older end of the same key."""
        self.ended: Ends = deque()
        """The newest ends, oldest first, so that pruning looks at one side. A key that lives again leaves its entry behind."""
        self.marked: Ends = deque()
        """The ends before those of keys that cannot be packed, oldest first."""
        self.packed = EndedKeys()

    @classmethod
    def restored(
        cls, records: dict[str, KeyRecord], ended: Iterable[tuple[float, str]], marked: Ends, packed: EndedKeys
    ) -> MailboxKeys:
        keys = cls()
        keys.records, keys.ended, keys.marked, keys.packed = records, deque(ended), marked, packed
        while len(keys.ended) > keys.most_unpacked:  # a snapshot of the time before keys were packed
            keys.pack_oldest(keys.ended[-1][0])
        return keys

    def find(self, name: str, now: float) -> KeyRecord | None:
        """Returns the record of a key. One that a caller changes must be given to `hold`."""
        self._prune(now)
        key = self.records.get(name)
        if key is None and (generation := self.packed.generation(name, now)) is not None:
            return KeyRecord(generation)
        return key

    def hold(self, name: str, key: KeyRecord) -> None:
        self.records[name] = key

    def end(self, name: str, key: KeyRecord, now: float) -> None:
        """Remembers the key for a day from now on."""
        key.live, key.ended_at = None, now
        self.ended.append((now, name))
        if len(self.ended) > self.most_unpacked:
            self.pack_oldest(now)

    def sweep(self, now: float) -> None:
        """Lets go of every key whose time is over, also in a mailbox that nobody uses any more. It changes no answer."""
        self._prune(now)
        self.packed.sweep(now)

    def pack_oldest(self, now: float) -> None:
        ended_at, name = self.ended.popleft()
        key = self.records.get(name)
        if key is None or not _is_of(key, ended_at):
            return
        if key.revoked or key.checkpoint is not None or key.steps or not EndedKeys.takes(key.generation):
            self.marked.append((ended_at, name))
            return
        del self.records[name]
        self.packed.put(name, key.generation, ended_at, now)

    def _prune(self, now: float) -> None:
        for ends in (self.marked, self.ended):
            while ends and ends[0][0] + KEY_MEMORY_S <= now:
                ended_at, name = ends.popleft()
                key = self.records.get(name)
                if key is not None and _is_of(key, ended_at):
                    del self.records[name]


def _is_of(key: KeyRecord, ended_at: float) -> bool:
    """Returns False for a key that lives again, or ended again later: it has a newer entry further back."""
    return key.live is None and key.ended_at == ended_at

"""The queue of messages that this node passes on to the pool: the least transmitted first, and one rumour for each node.

It is bounded: a newer rumour about a node replaces the older one, and other messages have a fixed number of places. Filling a packet costs no
more than the packet is large, however many messages wait.
"""

from __future__ import annotations

from tenure.gossip.settings import retransmit_limit

PART_OVERHEAD_BYTES = 2
"""The length that a compound message writes before each part."""
MAX_UNNAMED = 256
SMALLEST_BYTES = 8
"""No message is smaller: a suspicion between two nodes with names of one letter has 30 bytes."""


class _QueuedMessage:
    __slots__ = ("about", "body", "transmits")

    def __init__(self, about: str, body: bytes) -> None:
        self.about, self.body = about, body
        self.transmits = 0


class BroadcastQueue:
    """Holds rumours about nodes and messages of Serf's layer. Each is passed on a limited number of times."""

    def __init__(self, retransmit_mult: int) -> None:
        self._mult = retransmit_mult
        self._by_name: dict[str, _QueuedMessage] = {}
        self._unnamed: list[_QueuedMessage] = []
        # Maps the number of transmissions, then the size, to the messages that wait, oldest first.
        self._tiers: dict[int, dict[int, list[_QueuedMessage]]] = {}
        self._count = 0
        self.dropped = 0  # unnamed messages that made room for newer ones

    def __len__(self) -> int:
        return self._count

    def put(self, about: str, body: bytes) -> None:
        """Queues a rumour about a node. An older rumour about the same node is out of date, and goes."""
        older = self._by_name.get(about)
        if older is not None:
            self._drop(older)
        self._by_name[about] = waiting = _QueuedMessage(about, body)
        self._insert(waiting)

    def put_unnamed(self, body: bytes) -> None:
        """Queues a message that replaces no other. Beyond the bound the oldest one goes."""
        if len(self._unnamed) >= MAX_UNNAMED:
            self._drop(self._unnamed[0])
            self.dropped += 1
        waiting = _QueuedMessage("", body)
        self._unnamed.append(waiting)
        self._insert(waiting)

    def waits(self, about: str) -> bool:
        """Returns True while a rumour about this node waits."""
        return about in self._by_name

    def take(self, room: int, nodes: int) -> list[bytes]:
        """Returns messages that fit into `room` bytes together: the least transmitted first, then the largest. `nodes` is the size of the pool."""
        if not self._count:
            return []
        limit = retransmit_limit(self._mult, nodes)
        taken: list[_QueuedMessage] = []
        for transmits in sorted(self._tiers):
            if room < SMALLEST_BYTES:
                break
            tier = self._tiers[transmits]
            for size in sorted(tier, reverse=True):
                stack = tier[size]
                # The newest of a size goes first, as in memberlist: fewest nodes know it.
                while stack and size + PART_OVERHEAD_BYTES <= room:
                    taken.append(stack.pop())
                    room -= size + PART_OVERHEAD_BYTES
                if not stack:
                    del tier[size]
            if not tier:
                del self._tiers[transmits]
        for waiting in taken:
            self._count -= 1
            waiting.transmits += 1
            if waiting.transmits < limit:
                self._insert(waiting)
            else:
                self._forget(waiting)
        return [waiting.body for waiting in taken]

    def clear(self) -> None:
        """Drops all messages."""
        self._by_name.clear()
        self._unnamed.clear()
        self._tiers.clear()
        self._count = 0

    def _insert(self, waiting: _QueuedMessage) -> None:
        self._tiers.setdefault(waiting.transmits, {}).setdefault(len(waiting.body), []).append(waiting)
        self._count += 1

    def _drop(self, waiting: _QueuedMessage) -> None:
        tier = self._tiers[waiting.transmits]
        stack = tier[len(waiting.body)]
        stack.remove(waiting)
        if not stack:
            del tier[len(waiting.body)]
        self._count -= 1
        self._forget(waiting)

    def _forget(self, waiting: _QueuedMessage) -> None:
        if not waiting.about:
            self._unnamed.remove(waiting)
        elif self._by_name.get(waiting.about) is waiting:
            del self._by_name[waiting.about]

"""What is still to be passed on: the least passed first, a newer rumour about a node in place of the older.

Bounded: one rumour for each node, a fixed number of other messages. Taking what fits into a packet costs no more than the
packet is large, however much waits.
"""

from __future__ import annotations

from tenure.gossip.scaling import retransmit_limit

PART_OVERHEAD_BYTES = 2
MAX_UNNAMED = 256
# A suspicion about a node with a name of one letter, by another such, has 30.
SMALLEST_BYTES = 8


class _Waiting:
    __slots__ = ("about", "body", "transmits")

    def __init__(self, about: str, body: bytes) -> None:
        self.about, self.body = about, body
        self.transmits = 0


class BroadcastQueue:
    """Rumours about nodes, and messages of the layer above, each passed on a limited number of times."""

    def __init__(self, retransmit_mult: int) -> None:
        self._mult = retransmit_mult
        self._by_name: dict[str, _Waiting] = {}
        self._unnamed: list[_Waiting] = []
        # transmits -> size -> those waiting, oldest first.
        self._tiers: dict[int, dict[int, list[_Waiting]]] = {}
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def put(self, about: str, body: bytes) -> None:
        """A rumour about a node; what waited about the same node is out of date."""
        older = self._by_name.get(about)
        if older is not None:
            self._drop(older)
        self._by_name[about] = waiting = _Waiting(about, body)
        self._insert(waiting)

    def put_unnamed(self, body: bytes) -> None:
        """Something that nothing replaces; beyond the bound the oldest goes."""
        if len(self._unnamed) >= MAX_UNNAMED:
            self._drop(self._unnamed[0])
            self.dropped += 1
        waiting = _Waiting("", body)
        self._unnamed.append(waiting)
        self._insert(waiting)

    def waits(self, about: str) -> bool:
        """Whether something about this node is still to be passed on."""
        return about in self._by_name

    def take(self, room: int, nodes: int) -> list[bytes]:
        """As much as fits into `room` bytes: the least transmitted first, then the largest."""
        if not self._count:
            return []
        limit = retransmit_limit(self._mult, nodes)
        taken: list[_Waiting] = []
        for transmits in sorted(self._tiers):
            if room < SMALLEST_BYTES:
                break
            tier = self._tiers[transmits]
            for size in sorted(tier, reverse=True):
                stack = tier[size]
                # The newest of a size first, as memberlist does: it is the one that fewest know of.
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
        """Forget everything."""
        self._by_name.clear()
        self._unnamed.clear()
        self._tiers.clear()
        self._count = 0

    def _insert(self, waiting: _Waiting) -> None:
        self._tiers.setdefault(waiting.transmits, {}).setdefault(len(waiting.body), []).append(waiting)
        self._count += 1

    def _drop(self, waiting: _Waiting) -> None:
        tier = self._tiers[waiting.transmits]
        stack = tier[len(waiting.body)]
        stack.remove(waiting)
        if not stack:
            del tier[len(waiting.body)]
        self._count -= 1
        self._forget(waiting)

    def _forget(self, waiting: _Waiting) -> None:
        if not waiting.about:
            self._unnamed.remove(waiting)
        elif self._by_name.get(waiting.about) is waiting:
            del self._by_name[waiting.about]

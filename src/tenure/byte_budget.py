"""A bound on the bytes that unfinished requests and streams hold together. Pure: told who holds how much, it names who gives way.

Strangers decide how much they send before we know whether it is worth anything, so no limit per request bounds the sum. When the sum
exceeds the bound, the owner (an address) that holds the most gives way, with its oldest unfinished holder. An honest request is
complete within milliseconds, so it is never the oldest for long; a flood from one address costs that address only.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

HolderT = TypeVar("HolderT", bound=Hashable)


class ByteBudget(Generic[HolderT]):
    """Counts bytes by holder and by owner. `total` is at most `most` after each call, apart from holders that may not give way."""

    def __init__(self, most: int) -> None:
        self.most, self.total = most, 0
        # For each holder its owner and its bytes.
        self._held: dict[HolderT, tuple[str, int]] = {}
        # For each owner the sum of its holders. Only owners that hold bytes are in it.
        self._by_owner: dict[str, int] = {}
        # For each owner those of its holders that may give way, oldest first.
        self._yielding: dict[str, dict[HolderT, None]] = {}

    def hold(self, holder: HolderT, owner: str, size: int) -> list[HolderT]:
        """Sets what `holder` holds to `size` bytes. Returns the holders that must give way; they hold nothing any more.

        `holder` itself is among them where nobody else can give way.
        """
        known = self._held.get(holder)
        if known is None:
            self._yielding.setdefault(owner, {})[holder] = None
        before = known[1] if known is not None else 0
        self._held[holder] = (owner, size)
        self._by_owner[owner] = self._by_owner.get(owner, 0) + size - before
        self.total += size - before
        losers: list[HolderT] = []
        while self.total > self.most and (loser := self._loser()) is not None:
            self.release(loser)
            losers.append(loser)
        return losers

    def keep(self, holder: HolderT) -> None:
        """`holder` is complete and is being served: it still counts, and no longer gives way."""
        owner, _ = self._held[holder]
        self._forget_yielding(holder, owner)

    def release(self, holder: HolderT) -> None:
        """`holder` holds nothing any more. A holder that is not known is ignored: it gave way before."""
        known = self._held.pop(holder, None)
        if known is None:
            return
        owner, size = known
        self.total -= size
        self._forget_yielding(holder, owner)
        # An owner may be gone while holders of it that hold 0 bytes, as of an empty body, are still there.
        left = self._by_owner.pop(owner, 0) - size
        if left:
            self._by_owner[owner] = left

    def _forget_yielding(self, holder: HolderT, owner: str) -> None:
        yielding = self._yielding.get(owner, {})
        yielding.pop(holder, None)
        if not yielding:
            self._yielding.pop(owner, None)

    def _loser(self) -> HolderT | None:
        if not self._yielding:
            return None
        owner = max(self._yielding, key=lambda one: self._by_owner.get(one, 0))
        return next(iter(self._yielding[owner]))

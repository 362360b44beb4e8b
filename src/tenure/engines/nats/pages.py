"""The records of the ledger beside mailboxes: terms, places of stored values, and ids of commands that have come already. Pure."""

from __future__ import annotations

from math import inf

import msgspec

_MISSING = 256  # commands of one process that are under way at once, at most


class Seat(msgspec.Struct):
    epoch: int = 0
    candidate: str = ""
    expires: float = 0.0

    def taken(self, now: float) -> bool:
        return self.candidate != "" and now < self.expires


class Value(msgspec.Struct):
    """A stored value's place; after it went, its fence for another while."""

    blob: str = ""  # empty: there is none
    chunks: int = 0
    fence: tuple[int, int] | None = None
    expires: float = inf

    def there(self, now: float) -> bool:
        return self.blob != "" and now < self.expires


class Heard(msgspec.Struct):
    """Which commands of one process have come: all up to `top`, but for those `missing`."""

    top: int = 0
    missing: list[int] = []
    at: float = 0.0

    def is_new(self, number: int, now: float) -> bool:
        self.at = now
        if number > self.top:
            self.missing += range(max(self.top + 1, number - _MISSING), number)
            if len(self.missing) > _MISSING:
                del self.missing[:-_MISSING]
            self.top = number
            return True
        if number in self.missing:
            self.missing.remove(number)
            return True
        return False

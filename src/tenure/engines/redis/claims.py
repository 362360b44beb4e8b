"""Claims whose answer never came: whatever they leased is nobody's, and is given back before the next claim."""

from __future__ import annotations

import threading


class LostClaims:
    """The tokens of such claims of one mailbox. Safe to share between threads."""

    def __init__(self) -> None:
        self._tokens: list[str] = []
        self._lock = threading.Lock()

    def add(self, *tokens: str) -> None:
        with self._lock:
            self._tokens.extend(tokens)

    def take(self) -> list[str]:
        if not self._tokens:
            return []
        with self._lock:
            tokens, self._tokens = self._tokens, []
            return tokens

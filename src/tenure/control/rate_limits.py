"""Limits how much one caller, and all callers together, may ask of a node at once. Pure: callers pass the time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tenure.errors import LimitError

_MOST_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of one node's port. A caller is a token's name at an address."""

    requests_per_s: float = 2_000.0
    """The requests a second of one caller, on average."""
    burst: float = 4_000.0
    """The requests of one caller at once, after a rest."""
    wrong_tokens_per_s: float = 5.0
    """The failed authentications a second of one address. Beyond that, the node answers "too many", and no longer "wrong token"."""
    wrong_tokens_burst: float = 20.0
    in_flight: int = 1_000
    """The requests that are being answered at once, for all callers."""
    waiting: int = 4_000
    """The requests that are held because they ask for it, and the streams; for all callers."""
    waiting_each: int = 500
    connections: int = 4_096
    """The connections of all callers; fewer, where the process may open fewer files. Beyond that, the one that is idle for longest is closed."""
    connections_each: int = 2_048
    """The connections of one address, so that no address can take all of them."""
    handshakes: int = 256
    """The unfinished TLS handshakes at once; each takes about 70 KB."""
    idle_s: float = 75.0
    """The seconds for which a connection without a request stays open."""
    head_bytes: int = 32 << 10
    """The bytes of the head of one request. Browsers and proxies send 1 to 8 KB."""
    head_bytes_total: int = 8 << 20
    """The bytes of all unfinished heads together. A head costs about three times its bytes once it is parsed."""
    head_s: float = 15.0
    """The seconds from the first byte of a head to its last, however slowly the client sends."""
    body_bytes_total: int = 32 << 20
    """The bytes of all bodies that are being read or answered: four of the largest that an operation takes."""
    body_s: float = 20.0
    """The seconds for the body of a request, however slowly the client sends."""
    answer_s: float = 30.0
    """The seconds for the answer to a request, beyond the wait that the request asks for. Clients give up after 5."""
    send_s: float = 60.0
    """The seconds until an answer that the client does not read is given up."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise LimitError(field.name, getattr(self, field.name), "above 0")


class Buckets:
    """One token bucket for each caller: `rate` a second on average, `burst` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._filled: dict[object, tuple[float, float]] = {}

    def take(self, caller: object, now: float) -> float:
        """Takes one token. Returns 0 when the caller may go on, else the seconds until it may."""
        left, at = self._filled.get(caller, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - at) * self._rate)
        if left < 1.0:
            self._filled[caller] = (left, now)
            return (1.0 - left) / self._rate
        if caller not in self._filled and len(self._filled) >= _MOST_BUCKETS:
            self._make_room(now)
        self._filled[caller] = (left - 1.0, now)
        return 0.0

    def _make_room(self, now: float) -> None:
        """Drops full buckets, which limit nothing. If none is full, drops all of them: a bound on memory comes before the limit of a caller."""
        kept = {
            caller: (left, at)
            for caller, (left, at) in self._filled.items()
            if left + (now - at) * self._rate < self._burst
        }
        self._filled = kept if len(kept) < _MOST_BUCKETS else {}


class Turnstile:
    """Counts the requests inside, for all callers and for each. `enter` returns False where there is no room; `leave` makes room."""

    def __init__(self, most: int, most_each: int | None = None) -> None:
        self._most, self._most_each = most, most_each
        self._each: dict[object, int] = {}
        self.inside = 0

    def enter(self, caller: object) -> bool:
        if self.inside >= self._most:
            return False
        if self._most_each is not None:
            mine = self._each.get(caller, 0)
            if mine >= self._most_each:
                return False
            self._each[caller] = mine + 1
        self.inside += 1
        return True

    def leave(self, caller: object) -> None:
        self.inside -= 1
        if self._most_each is not None:
            mine = self._each.get(caller, 0) - 1
            if mine > 0:
                self._each[caller] = mine
            else:
                self._each.pop(caller, None)

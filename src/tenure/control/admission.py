"""Decides which callers are let in, and how often: tokens, certificates, pages of other sites, rates and places.

It knows neither requests nor HTTP's bytes, and callers pass the time to what counts.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

from tenure.clock import Clock
from tenure.control.claims import (
    Scope,
    scope_of,
    why_not_a_gates,
    why_not_forwarded,
    why_not_that_worker,
    why_not_within,
)
from tenure.control.messages.gates import Forward
from tenure.control.messages.operations import BY_NAME, Operation
from tenure.control.messages.wire import Problem, ProblemKind, Request
from tenure.control.problems import problem
from tenure.control.request_decoding import read_body
from tenure.control.tokens import ANYBODY, CallerIdentity, TokenBook
from tenure.errors import ConfigurationError, LimitError

_MOST_BUCKETS = 10_000
NAMESPACE_HEADER = "X-Tenure-Namespace"
"""A later release will have namespaces. A node that ignored the header would do what was asked in the wrong one, so it is refused (0332)."""


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
    """Wrong tokens of one address at once, before it must wait: a deploy with an old token is no attack."""
    in_flight: int = 1_000
    """The requests that are being answered at once, for all callers."""
    waiting: int = 4_000
    """The requests that are held because they ask for it, and the streams; for all callers."""
    waiting_each: int = 500
    """Long polls of one caller, so that one caller cannot take all of them."""
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


class Visitor(NamedTuple):
    """The facts that a connection and the head of its request show."""

    address: str
    authorization: str = ""
    host: str = ""
    origin: str = ""
    certificate: str = ""
    """The common name of a certificate that our CA signed."""
    namespace: str = ""


class AdmittedCaller(NamedTuple):
    """A caller that was let in: limits are kept for a name at an address."""

    identity: CallerIdentity
    address: str

    @property
    def key(self) -> tuple[str, str]:
        return self.identity.name, self.address

    def __str__(self) -> str:
        return f"{self.identity.name}@{self.address}" if self.identity.name else self.address


def check_bind(host: str, token: str, *, tokens: bool = False, mutual_tls: bool = False) -> None:
    """Raises `ConfigurationError` for a port that other machines reach without a token: any caller could run workflows. A certificate alone
    says who a caller is, and not what it may do."""
    if token or tokens:
        return
    if mutual_tls:
        raise ConfigurationError(
            "certificates of clients are asked for (--tls-client-ca), and none of them has a role",
            remedy="Give --tokens FILE, with [[certificates]] name and role for each common name; or a token (TENURE_TOKEN)",
        )
    if is_loopback(host):
        return
    raise ConfigurationError(
        f"host {host!r} can be reached from other machines, and no token is set",
        remedy="Set a token (TENURE_TOKEN or --tokens) for this node, its workers and its clients, or listen on 127.0.0.1",
    )


@lru_cache(maxsize=16)  # every request names the host that it asks
def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Admission:
    """Decides for one port which callers are let in."""

    def __init__(self, tokens: TokenBook, limits: HttpLimits, clock: Clock, here: str = "") -> None:
        """`here` is the datacenter of this node; empty for a gate."""
        self.tokens, self._clock, self._here = tokens, clock, here
        self._requests = Buckets(limits.requests_per_s, limits.burst)
        self._wrong = Buckets(limits.wrong_tokens_per_s, limits.wrong_tokens_burst)
        self.answering = Turnstile(limits.in_flight)
        self.waiting = Turnstile(limits.waiting, limits.waiting_each)

    def admit(self, visitor: Visitor) -> AdmittedCaller | Problem:
        if visitor.origin and visitor.origin.partition("://")[2] != visitor.host:
            # A browser names the site of the page that asks. Pages of other sites are refused, whatever they ask for.
            return Problem(
                kind=ProblemKind.DENIED,
                fact=f"the page that asks is from {visitor.origin[:100]!r}",
                remedy="Ask from a program, or from a page that this node serves",
            )
        if visitor.namespace:
            return Problem(
                kind=ProblemKind.IMPOSSIBLE,
                fact=f"the request is for the namespace {visitor.namespace[:100]!r}, and this release has none",
                remedy=f"Leave {NAMESPACE_HEADER} out, or update this node",
            )
        identity = self._identify(visitor)
        if isinstance(identity, Problem):
            return identity
        caller = AdmittedCaller(identity, visitor.address)
        wait = self._requests.take(caller.key, self._clock.monotonic())
        return _too_many("requests", wait) if wait else caller

    def _identify(self, visitor: Visitor) -> CallerIdentity | Problem:
        if self.tokens.empty:
            if visitor.host and not is_loopback(_hostname(visitor.host)):
                # DNS rebinding: a stranger's DNS name may point at this machine, and then the browser takes their page for this node's.
                return Problem(
                    kind=ProblemKind.DENIED,
                    fact=f"this node has no token, and was asked as {visitor.host[:100]!r}",
                    remedy="Ask 127.0.0.1 or localhost, or set TENURE_TOKEN",
                )
            return ANYBODY
        scheme, _, given = visitor.authorization.partition(" ")
        found = self.tokens.identify(given.strip()) if scheme.lower() == "bearer" else None
        if found is not None and found.expires_at > self._clock.wall():
            return found
        if not visitor.authorization:
            certified = self.tokens.certified(visitor.certificate)
            if certified is not None and certified.expires_at > self._clock.wall():
                return certified
        wait = self._wrong.take(visitor.address, self._clock.monotonic())
        if wait:
            return _too_many("wrong tokens", wait)
        return Problem(
            kind=ProblemKind.FORBIDDEN,
            fact=self._lacks(visitor, found),
            remedy="Set TENURE_TOKEN, or send Authorization: Bearer TOKEN",
        )

    def _lacks(self, visitor: Visitor, expired: CallerIdentity | None) -> str:
        if expired is not None:
            return f"the token of {expired.name!r} has expired"
        if visitor.certificate and not visitor.authorization:
            return f"no token, and the certificate {visitor.certificate[:100]!r} has no role here"
        return "wrong or no token"

    def scope_of(self, request: Request, caller: CallerIdentity) -> Scope:
        """Returns the bounds under which a request of this caller is answered."""
        return scope_of(request, caller, self.tokens)

    def refuse(self, operation: Operation, request: Request, caller: CallerIdentity) -> Problem | None:
        """Returns the refusal of a request that claims more than its caller may; None where it claims nothing, or what is true."""
        return (
            why_not_a_gates(request, caller)
            or why_not_that_worker(request, caller)
            or why_not_forwarded(request, caller, self.tokens, self._clock.wall())
            or self._refuse_bound(operation, request, self.scope_of(request, caller))
        )

    def _refuse_bound(self, operation: Operation, request: Request, within: Scope) -> Problem | None:
        if within.bounds and isinstance(request, Forward) and request.name in BY_NAME:
            operation = BY_NAME[request.name]
            try:
                request = read_body(operation, bytes(request.body))
            except ConfigurationError as error:
                return problem(error)
        return why_not_within(operation, request, within, self._here) if within.bounds else None

    def admit_reader(self, address: str) -> Problem | None:
        """Checks the rate of an address for paths that every caller may read. Returns the refusal, or None."""
        wait = self._requests.take(("", address), self._clock.monotonic())
        return _too_many("requests", wait) if wait else None

    def still_knows(self, caller: AdmittedCaller) -> bool:
        """Returns True when a caller would be let in again, after tokens were read anew."""
        identity = caller.identity
        return self.tokens.empty or (identity.expires_at > self._clock.wall() and self.tokens.knows(identity))


def _hostname(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _too_many(what: str, wait: float) -> Problem:
    return Problem(
        kind=ProblemKind.TOO_MANY,
        fact=f"too many {what} from here",
        remedy=f"Wait {math.ceil(wait)} s, or raise the limit of the node",
        retryable=True,
        retry_after_s=wait,
    )

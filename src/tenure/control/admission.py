"""Decides which callers are let in, and how often: tokens, certificates, pages of other sites, rates. It knows neither requests nor HTTP's bytes."""

from __future__ import annotations

import ipaddress
import math
from typing import NamedTuple

from tenure.clock import Clock
from tenure.control.messages.jobs import Problem, ProblemKind
from tenure.control.rate_limits import Buckets, HttpLimits, Turnstile
from tenure.control.tokens import ANYBODY, EVERYTHING, Identity, TokenBook
from tenure.errors import ConfigurationError


class Visitor(NamedTuple):
    """The facts that a connection and the head of its request show."""

    address: str
    authorization: str = ""
    host: str = ""
    origin: str = ""
    certificate: str = ""
    """The common name of a certificate that our CA signed."""


class Caller(NamedTuple):
    """A caller that was let in: limits are kept for a name at an address."""

    identity: Identity
    address: str

    @property
    def key(self) -> tuple[str, str]:
        return self.identity.name, self.address

    def __str__(self) -> str:
        return f"{self.identity.name}@{self.address}" if self.identity.name else self.address


def check_bind(host: str, token: str, *, tokens: bool = False, mutual_tls: bool = False) -> None:
    """Raises `ConfigurationError` for a port that other machines reach without a token or a certificate: any caller could run workflows."""
    if token or tokens or mutual_tls or is_loopback(host):
        return
    raise ConfigurationError(
        f"host {host!r} can be reached from other machines, and neither a token nor a CA for clients is set",
        remedy="Set a token (TENURE_TOKEN or --tokens) for this node, its workers and its clients, "
        "or ask for client certificates (--tls-client-ca), or listen on 127.0.0.1",
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Admission:
    """Decides for one port which callers are let in."""

    def __init__(self, tokens: TokenBook, limits: HttpLimits, clock: Clock, *, mutual_tls: bool = False) -> None:
        self.tokens, self._clock, self._mutual_tls = tokens, clock, mutual_tls
        self._requests = Buckets(limits.requests_per_s, limits.burst)
        self._wrong = Buckets(limits.wrong_tokens_per_s, limits.wrong_tokens_burst)
        self.answering = Turnstile(limits.in_flight)
        self.waiting = Turnstile(limits.waiting, limits.waiting_each)

    def admit(self, visitor: Visitor) -> Caller | Problem:
        if visitor.origin and visitor.origin.partition("://")[2] != visitor.host:
            # A browser names the site of the page that asks. Pages of other sites are refused, whatever they ask for.
            return Problem(
                kind=ProblemKind.DENIED,
                fact=f"the page that asks is from {visitor.origin[:100]!r}",
                remedy="Ask from a program, or from a page that this node serves",
            )
        identity = self._identify(visitor)
        if isinstance(identity, Problem):
            return identity
        caller = Caller(identity, visitor.address)
        wait = self._requests.take(caller.key, self._clock.monotonic())
        return _too_many("requests", wait) if wait else caller

    def _identify(self, visitor: Visitor) -> Identity | Problem:
        if self.tokens.empty:
            if self._mutual_tls:
                return Identity(visitor.certificate, EVERYTHING)
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
        if found is not None:
            return found
        wait = self._wrong.take(visitor.address, self._clock.monotonic())
        if wait:
            return _too_many("wrong tokens", wait)
        return Problem(
            kind=ProblemKind.FORBIDDEN,
            fact="wrong or no token",
            remedy="Set TENURE_TOKEN, or send Authorization: Bearer TOKEN",
        )

    def admit_reader(self, address: str) -> Problem | None:
        """Checks the rate of an address for paths that every caller may read. Returns the refusal, or None."""
        wait = self._requests.take(("", address), self._clock.monotonic())
        return _too_many("requests", wait) if wait else None

    def still_knows(self, caller: Caller) -> bool:
        """Returns True when a caller would be let in again, after tokens were read anew."""
        return self.tokens.empty or self.tokens.knows(caller.identity)


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

"""Requests of operators about tokens, and the bounds that a token or a certificate may have.

A request holds the SHA-256 of a token, never the token: the operator's machine makes it, and shows it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from tenure import bounds as b
from tenure.control.messages.wire import Missing, Placed, Reply, Request

MOST_TOKENS = 1_000
"""The most tokens that an engine keeps, beside those of files."""
MOST_REVOKED = 10_000


class Role(StrEnum):
    """The role that a request needs. An operator may do whatever a client may, a reader only what a client may read; a worker's token is good for
    workers' words only, a node's for what managers and gates say to each other."""

    READER = "reader"
    CLIENT = "client"
    WORKER = "worker"
    NODE = "node"
    OPERATOR = "operator"


class CallerBounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of everything that a caller may reach. A field that is left out binds nothing."""

    worker: b.WorkerBound = ""
    """For the role worker: the worker that it speaks for: a name, or the beginning of names and `*`."""
    queues: Annotated[tuple[b.QueueBound, ...], b.items(0, 100)] = ()
    """The queues of the jobs that it sees, submits, cancels and signals: names, or beginnings of names and `*`."""
    labels: b.Labels = {}
    """The labels of those jobs. Its submissions get them."""
    datacenter: b.DatacenterOrNone = ""
    """The only datacenter in which it counts. At a gate, its requests name that datacenter."""
    max_jobs: b.PositiveCount | None = None
    """The jobs of its own that have not ended, at most."""
    max_bytes: b.PositiveCount | None = None
    """The bytes of the submissions of those jobs, at most."""
    jobs_per_s: b.Rate | None = None
    """The jobs that it submits in a second, on average; ten seconds' worth at once."""

    @property
    def scoped(self) -> bool:
        """True when it sees some jobs only."""
        return bool(self.queues or self.labels)

    @property
    def limited(self) -> bool:
        """True when it may submit so much and no more."""
        return self.max_jobs is not None or self.max_bytes is not None or self.jobs_per_s is not None

    def covers_queue(self, queue: str) -> bool:
        return not self.queues or any(fits(queue, pattern) for pattern in self.queues)

    def covers(self, queue: str, labels: Mapping[str, str]) -> bool:
        """Returns True for a job in this queue and with these labels that the caller may see and change."""
        return self.covers_queue(queue) and all(labels.get(key) == value for key, value in self.labels.items())


UNBOUND = CallerBounds()


def fits(name: str, pattern: str) -> bool:
    """Returns True when the name is the pattern's, or begins as a pattern that ends with `*`."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


class Subject(CallerBounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part that a token and a certificate have in common: whose it is, what it may do and reach, and until when."""

    name: b.AnyName
    role: Role
    expires: datetime | None = None

    @property
    def bounds(self) -> CallerBounds:
        return CallerBounds(**{field: getattr(self, field) for field in CallerBounds.__struct_fields__})


class Token(Subject, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One token: an entry of a file of tokens, or one that an operator created."""

    name: b.TokenName
    sha256: b.Sha256

    @property
    def id(self) -> str:
        """By which it is revoked: the same on every node that knows the token."""
        return self.sha256[:16]


class Certificate(Subject, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role of a client certificate, by its common name. A certificate without an entry has no role."""

    @property
    def id(self) -> str:
        return f"certificate/{self.name}"


class CreateToken(Placed, frozen=True, kw_only=True, tag="create_token"):
    """Let a token in, on all nodes of this engine, from now on. A gate passes it on to its datacenters."""

    token: Token
    by: b.Person = ""


class RevokeToken(Placed, frozen=True, kw_only=True, tag="revoke_token"):
    """Let a token or a certificate in nowhere any more, wherever it was written down. A gate tells its datacenters until they have heard."""

    id: b.TokenId
    by: b.Person = ""


class ListTokens(Placed, frozen=True, kw_only=True, tag="tokens"):
    """The tokens and certificates that this node knows, without their secrets."""


class TellRevoked(Request, frozen=True, kw_only=True, tag="tell_revoked"):
    """A gate's word to a datacenter: these ids are revoked. It is the whole list, so that one word that was lost does not matter."""

    ids: Annotated[tuple[b.TokenId, ...], b.items(0, MOST_REVOKED)]


class TokenDone(Reply, frozen=True, kw_only=True, tag="token_done"):
    id: str
    pending: tuple[Missing, ...] = ()
    """Where a gate answers: datacenters that have not done it."""


class TokenRow(CallerBounds, frozen=True, kw_only=True, omit_defaults=False):
    id: str
    name: str
    role: Role
    source: str
    """`file` or `engine`."""
    expires: datetime | None = None
    revoked: bool = False
    created_by: str = ""
    created_at: float = 0.0


class TokenList(Reply, frozen=True, kw_only=True, tag="token_list"):
    tokens: tuple[TokenRow, ...]
    revoked: tuple[str, ...] = ()
    """All ids that are revoked, also of tokens that this node does not know."""

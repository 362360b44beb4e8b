"""Identifies callers by their tokens and certificates: the entries of a file and those that operators created, without the ones that were revoked.

An entry holds the SHA-256 of its token, so that a reader of the entry cannot log in with it. One token without a file (`TENURE_TOKEN`) may do
everything. What a caller may do with its identity is in `claims`.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tenure.bound_checks import check
from tenure.bounds import TokenName
from tenure.control.messages.tokens import UNBOUND, CallerBounds, Certificate, Role, Subject, Token, TokenRow
from tenure.errors import ConfigurationError

EVERYTHING = frozenset(Role)
_MAY = {
    Role.READER: frozenset({Role.READER}),
    Role.CLIENT: frozenset({Role.CLIENT}),
    Role.WORKER: frozenset({Role.WORKER}),
    Role.NODE: frozenset({Role.NODE, Role.WORKER, Role.CLIENT}),
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.CLIENT}),
}


class CallerIdentity(NamedTuple):
    """The identity of a caller. Without a name, only the request's own words about its sender are known."""

    name: str = ""
    roles: frozenset[Role] = EVERYTHING
    bounds: CallerBounds = UNBOUND
    expires_at: float = math.inf
    """Unix time."""
    id: str = ""
    """By which its token or certificate is revoked; empty for the one token that may do everything."""


ANYBODY = CallerIdentity()


def identity_of(entry: Token | Certificate) -> CallerIdentity:
    expires_at = math.inf if entry.expires is None else entry.expires.timestamp()
    return CallerIdentity(entry.name, _MAY[entry.role], entry.bounds, expires_at, entry.id)


class TokenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a file of tokens."""

    tokens: tuple[Token, ...] = ()
    certificates: tuple[Certificate, ...] = ()


class TokenBook:
    """The tokens of a node, and the roles of certificates. Without any, every caller may do everything: such a node listens on loopback only."""

    def __init__(
        self,
        tokens: Iterable[Token] = (),
        certificates: Iterable[Certificate] = (),
        *,
        shared: str = "",
        revoked: Collection[str] = (),
    ) -> None:
        """`shared` is a token that may do everything, and has no name. `revoked` are ids that let nobody in, whoever has an entry for them."""
        self._tokens, self._certificates, self._shared = tuple(tokens), tuple(certificates), shared
        self._known: list[tuple[bytes, CallerIdentity]] = []
        self.revoked = frozenset(revoked)
        names: set[str] = set()
        for token in self._tokens:
            check_token(token)
            if token.name in names:
                raise ConfigurationError(f"two tokens are named {token.name!r}", remedy="Give each its own name")
            names.add(token.name)
            self._known.append((bytes.fromhex(token.sha256), identity_of(token)))
        self._certified: dict[str, CallerIdentity] = {}
        for certificate in self._certificates:
            check_subject(certificate)
            if not certificate.name or certificate.name in self._certified:
                raise ConfigurationError(
                    f"the common name {certificate.name!r} of a certificate is empty, or stands twice",
                    remedy="Write one entry for each common name",
                )
            self._certified[certificate.name] = identity_of(certificate)
        if shared:
            self._known.append((_digest(shared), ANYBODY))

    @property
    def empty(self) -> bool:
        return not self._known and not self._certified

    def joined(self, created: Iterable[Token], revoked: Collection[str]) -> TokenBook:
        """Returns this book with the tokens that operators created, and without those that they revoked.

        A token of the file stands where both have the name. A book without any token stays so: a node that lets everybody in has no secret that
        a created token could add to, and would lock out its own workers.
        """
        if self.empty:
            return self
        mine = {one.name for one in self._tokens}
        tokens = (*self._tokens, *(one for one in created if one.name not in mine))
        return TokenBook(tokens, self._certificates, shared=self._shared, revoked=revoked)

    def identify(self, given: str) -> CallerIdentity | None:
        """Returns the identity of a token; None for an unknown token. It compares all tokens, so that its duration tells nothing about them."""
        digest, found = _digest(given), None
        for known, identity in self._known:
            if hmac.compare_digest(known, digest) and found is None:
                found = identity
        return found if found is None or found.id not in self.revoked else None

    def certified(self, common_name: str) -> CallerIdentity | None:
        """Returns the identity of a client certificate that our CA signed; None where no entry names it."""
        found = self._certified.get(common_name) if common_name else None
        return found if found is None or found.id not in self.revoked else None

    def knows(self, identity: CallerIdentity) -> bool:
        """Returns True while this identity's token or certificate is still in the book."""
        known = any(one == identity for _, one in self._known) or identity in self._certified.values()
        return known and identity.id not in self.revoked

    def named(self, name: str) -> Token | None:
        """Returns the token of this name that was not revoked."""
        return next((one for one in self._tokens if one.name == name and one.id not in self.revoked), None)

    def rows(self) -> list[TokenRow]:
        """Returns the entries for people, without their secrets."""
        entries: list[Token | Certificate] = [*self._tokens, *self._certificates]
        return [row_of(one, "file", revoked=one.id in self.revoked) for one in entries]


def row_of(
    entry: Token | Certificate, source: str, *, revoked: bool, created_by: str = "", created_at: float = 0.0
) -> TokenRow:
    return TokenRow(
        **msgspec.structs.asdict(entry.bounds),
        id=entry.id,
        name=entry.name,
        role=entry.role,
        source=source,
        expires=entry.expires,
        revoked=revoked,
        created_by=created_by,
        created_at=created_at,
    )


def read_tokens(path: str) -> TokenFile:
    """Reads a TOML or JSON file of tokens. Raises `ConfigurationError`."""
    try:
        data = Path(path).read_bytes()
        decode = msgspec.json.decode if path.endswith(".json") else msgspec.toml.decode
        return decode(data, type=TokenFile)
    except OSError as error:
        raise ConfigurationError(f"the tokens in {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} is no file of tokens: {error}",
            remedy='Write [[tokens]] with name, role ("reader", "client", "worker", "node" or "operator") and sha256 for each, or [[certificates]] with name and role',
        ) from error


def _digest(token: str) -> bytes:
    # A header may hold any bytes; those that are no UTF-8 come as surrogates.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def check_token(token: Token) -> None:
    """Raises `ConfigurationError` for an entry that cannot be used. The error quotes no secret."""
    check(token.name, TokenName, field="a token's name")
    if not re.fullmatch("[0-9a-f]{64}", token.sha256):
        raise ConfigurationError(
            f"the sha256 of token {token.name!r} is not 64 lowercase hexadecimal digits",
            remedy="printf %s TOKEN | sha256sum",
        )
    check_subject(token)


def check_subject(entry: Subject) -> None:
    name, role, bounds = entry.name, entry.role, entry.bounds
    if entry.expires is not None and entry.expires.tzinfo is None:
        raise ConfigurationError(
            f"token {name!r} expires at {entry.expires}, in no time zone",
            remedy=f"Write expires = {entry.expires.isoformat()}Z",
        )
    check(bounds, field=name)
    if bounds.worker and role is not Role.WORKER:
        raise ConfigurationError(
            f"{name!r} has the role {role.value} and speaks for the worker {bounds.worker!r}",
            remedy="Bind the role worker only, to a worker's name, or to the beginning of names and *",
        )
    if (bounds.scoped or bounds.limited) and role in (Role.WORKER, Role.NODE):
        raise ConfigurationError(
            f"{name!r} has the role {role.value} and is bound to queues, labels or quotas",
            remedy="Bind readers, clients and operators so; a worker is bound by `worker`, and all by `datacenter`",
        )

"""Identifies callers by their tokens, signs requests with the token's name, and tells a caller its own name and roles.

A file holds the SHA-256 of each token, so that a reader of the file cannot log in with it. One token without a file (`TENURE_TOKEN`) may do
everything. The name of a caller's token always stands first in `by`, so that no request can pass for another caller's.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from tenure import __version__
from tenure.control.messages.operations import OPERATIONS, Role
from tenure.control.messages.wire import Request
from tenure.errors import ConfigurationError

EVERYTHING = frozenset(Role)
_MAY = {
    Role.READER: frozenset({Role.READER}),
    Role.CLIENT: frozenset({Role.CLIENT}),
    Role.WORKER: frozenset({Role.WORKER}),
    Role.NODE: frozenset({Role.NODE, Role.WORKER, Role.CLIENT}),
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.CLIENT}),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

RequestT = TypeVar("RequestT", bound=Request)


class CallerIdentity(NamedTuple):
    """The identity of a caller. Without a name, only the request's own words about its sender are known."""

    name: str = ""
    roles: frozenset[Role] = EVERYTHING


ANYBODY = CallerIdentity()


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a file of tokens."""

    name: str
    role: Role
    sha256: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[Token, ...]


class TokenBook:
    """The tokens of a node. Without any, every caller may do everything: such a node listens on loopback only, or requires certificates."""

    def __init__(self, tokens: Iterable[Token] = (), *, shared: str = "") -> None:
        """`shared` is a token that may do everything, and has no name."""
        self._known: list[tuple[bytes, CallerIdentity]] = []
        names: set[str] = set()
        for token in tokens:
            _check(token, names)
            self._known.append((bytes.fromhex(token.sha256), CallerIdentity(token.name, _MAY[token.role])))
        if shared:
            self._known.append((_digest(shared), ANYBODY))

    @property
    def empty(self) -> bool:
        return not self._known

    def identify(self, given: str) -> CallerIdentity | None:
        """Returns the identity of a token; None for an unknown token. It compares all tokens, so that its duration tells nothing about them."""
        digest, found = _digest(given), None
        for known, identity in self._known:
            if hmac.compare_digest(known, digest) and found is None:
                found = identity
        return found

    def knows(self, identity: CallerIdentity) -> bool:
        """Returns True while this identity's token is still in the book."""
        return any(known == identity for _, known in self._known)


def read_tokens(path: str) -> tuple[Token, ...]:
    """Reads the tokens of a TOML or JSON file. Raises `ConfigurationError`."""
    try:
        data = Path(path).read_bytes()
        decode = msgspec.json.decode if path.endswith(".json") else msgspec.toml.decode
        return decode(data, type=_File).tokens
    except OSError as error:
        raise ConfigurationError(f"the tokens in {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path} is no file of tokens: {error}",
            remedy='Write [[tokens]] with name, role ("reader", "client", "worker", "node" or "operator") and sha256 for each',
        ) from error


def sign(request: RequestT, identity: CallerIdentity) -> RequestT:
    """Returns the request in the name of its caller: `by`, and `submitted_by` of its submissions, begin with the token's name."""
    if not identity.name:
        return request
    changes: dict[str, object] = {}
    given: str | None = getattr(request, "by", None)
    if given is not None:
        changes["by"] = _signature(identity, given)
    if (submission := getattr(request, "submission", None)) is not None:
        changes["submission"] = _sign_submission(submission, identity)
    if (submissions := getattr(request, "submissions", None)) is not None:
        changes["submissions"] = tuple(_sign_submission(one, identity) for one in submissions)
    return msgspec.structs.replace(request, **changes) if changes else request


def _sign_submission(submission: msgspec.Struct, identity: CallerIdentity) -> msgspec.Struct:
    given: str = getattr(submission, "submitted_by", "")
    return msgspec.structs.replace(submission, submitted_by=_signature(identity, given))


def _signature(identity: CallerIdentity, given: str) -> str:
    return f"{identity.name}: {given}" if given else identity.name


def _digest(token: str) -> bytes:
    # A header may hold any bytes; those that are no UTF-8 come as surrogates.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _check(token: Token, names: set[str]) -> None:
    if not _NAME.fullmatch(token.name):
        raise ConfigurationError(
            f"a token's name is {token.name!r}", remedy="Use letters, digits, '.', '_' and '-', at most 64"
        )
    if token.name in names:
        raise ConfigurationError(f"two tokens are named {token.name!r}", remedy="Give each its own name")
    if not _SHA256.fullmatch(token.sha256):
        raise ConfigurationError(
            f"the sha256 of token {token.name!r} is not 64 lowercase hexadecimal digits",
            remedy="printf %s TOKEN | sha256sum",
        )
    names.add(token.name)


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `GET /v1/me`."""

    name: str
    """The name of the token or the certificate; empty where neither has one."""
    roles: tuple[str, ...]
    may: tuple[str, ...]
    """The operations that would not be refused for who asks."""
    node: str = ""
    """`manager` or `gate`."""
    node_name: str = ""
    datacenter: str = ""
    version: str = __version__


def who(identity: CallerIdentity, about: dict[str, str]) -> Me:
    may = tuple(operation.name for operation in OPERATIONS if operation.open_to(identity.roles))
    return Me(name=identity.name, roles=tuple(sorted(identity.roles)), may=may, **about)

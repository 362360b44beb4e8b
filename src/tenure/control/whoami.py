"""Tells a caller its name and roles, so that a page offers no button that would be refused. Pure."""

from __future__ import annotations

import msgspec

from tenure import __version__
from tenure.control.messages.operations import OPERATIONS
from tenure.control.tokens import Identity


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


def who(identity: Identity, about: dict[str, str]) -> Me:
    may = tuple(operation.name for operation in OPERATIONS if operation.open_to(identity.roles))
    return Me(name=identity.name, roles=tuple(sorted(identity.roles)), may=may, **about)

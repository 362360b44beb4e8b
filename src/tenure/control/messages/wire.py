"""The two bases of everything on the control plane. A request's tag is its path: `Submit` is `POST /v1/submit`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from tenure import bounds as b


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a node. Each may be sent again: a lost answer costs a retry and nothing else."""


class Placed(Request, frozen=True, kw_only=True):
    """A request about what is in one datacenter. A gate passes it on to the one that is named; a manager refuses it for any but its own."""

    datacenter: b.DatacenterOrNone = ""
    """Which one, where a gate is asked. Left out, a manager means itself, and a gate what it knows of all of them."""


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A datacenter whose part of a gate's answer is not there."""

    datacenter: str
    reason: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a node."""


Handlers = Mapping[type[Request], Callable[[Any], Awaitable[Reply]]]
"""Maps each type of request that a part of a node answers to its handler."""

RequestT = TypeVar("RequestT", bound=Request)


def placed(request: RequestT, datacenter: str) -> RequestT:
    """Returns the request with this datacenter where it does not name one itself."""
    if not datacenter or not isinstance(request, Placed) or request.datacenter:
        return request
    return msgspec.structs.replace(request, datacenter=datacenter)


def path_of(request: Request) -> str:
    return f"/v1/{request.__struct_config__.tag}"

"""The two bases of everything on the control plane, and the grants of time that several views show.

A request's tag is its path: `Submit` is `POST /v1/submit`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
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


class GrantKind(StrEnum):
    """The kind of a grant, as DESIGN.md's table names it."""

    LEASE = "lease"  # one delivery: then others may take it
    STALL = "stall"  # one attempt without a beat: then its slot is killed
    HEALTHCHECK = "healthcheck"  # one worker without proof: then it is suspect, and evicted
    STUCK = "stuck"  # one job of which nothing advances: then it is timed out
    DEADLINE = "deadline"  # one job, whatever it does, with the extensions that it earned
    REST = "rest"  # not a grant but a wait: then the next attempt may begin


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Time that is left, unless somebody proves that they advance."""

    kind: GrantKind
    until: float
    """The engine's time at which it is over: compare it with the `now` of the same answer."""
    span_s: float = 0.0
    """How much there is of it when it was just earned; 0 where that is not known."""
    note: str = ""


def shifted(grants: tuple[Grant, ...], seconds: float) -> tuple[Grant, ...]:
    """Returns the grants with their times moved to a clock that is ahead of the reporter's by `seconds`."""
    return tuple(msgspec.structs.replace(one, until=one.until + seconds) for one in grants)

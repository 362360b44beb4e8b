"""The two bases of everything on the control plane, the replies that any request may get, and the grants of time that several views show.

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


class AskLeader(Request, frozen=True, kw_only=True, tag="leader"):
    """Asks who leads, as far as this node knows."""


class LeaderView(Reply, frozen=True, kw_only=True, tag="leader_view"):
    """The leader, and the sequence up to which this node has read."""

    leader: str
    address: str
    epoch: int
    leads: bool
    """True when the answering node leads."""
    seq: int


class Redirect(Reply, frozen=True, kw_only=True, tag="redirect"):
    """Only the leader can say: ask there."""

    address: str
    epoch: int


class ProblemKind(StrEnum):
    """Why a request was not done."""

    INVALID = "invalid"
    """It cannot be read, or a field is outside of its bounds."""
    IMPOSSIBLE = "impossible"
    """Each field is within its bounds, and together, or here, it cannot be done."""
    UNKNOWN = "unknown"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    FORBIDDEN = "forbidden"
    """Nobody knows who asks."""
    DENIED = "denied"
    """It is known who asks, and that one may not."""
    TOO_MANY = "too_many"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


class Problem(Reply, frozen=True, kw_only=True, tag="problem"):
    """It was not done, or nobody knows whether it was: then `retryable`, and asking again is safe."""

    kind: ProblemKind
    fact: str
    remedy: str = ""
    retryable: bool = False
    retry_after_s: float = 0.0
    """Seconds to wait before asking again, where they are known."""
    request_id: str = ""
    """Under which the node's log tells more."""
    page: str = ""
    """Where the documentation tells of this error, for the errors that it lists."""


MANAGER_ELECTION = "manager"
"""The engine's election in which a datacenter's managers stand. Whoever opens the engine finds the leader through it."""


GATE_ELECTION = "gate"
"""The election of gates, on an engine of their own."""


MANAGER_PORT = 8470
"""A manager listens here, and commands and clients ask here, unless they are told otherwise."""


GATE_PORT = 8480


def candidate_at(name: str, address: str) -> str:
    """Returns the words with which a manager stands for election: whoever reads the result knows where to find it."""
    return f"{name}@{address}"


def address_of(candidate: str) -> str:
    """Returns where a leader listens; empty when its candidate string does not say."""
    return candidate.rpartition("@")[2] if "@" in candidate else ""

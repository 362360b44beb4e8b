"""The requests that a loop of agents takes, its results, and its settings. Requests and results are plain JSON in every engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from tenure.agent.budget import Budget, Deadline, Prices
from tenure.agent.events import NO_USAGE, Usage
from tenure.agent.model_call import PromptResponse, StopReason
from tenure.agent.prompt import OutputT
from tenure.agent.session import Session
from tenure.agent.tools import ToolUse
from tenure.beat.lease import LeaseExtenderConfig
from tenure.errors import LimitError
from tenure.ids import new_id

UserRequestT = TypeVar("UserRequestT")


class MainLoopRequest(msgspec.Struct, Generic[UserRequestT], frozen=True):
    """A request, with its own deadline and budget where the loop's defaults do not do."""

    request: UserRequestT
    request_id: str = msgspec.field(default_factory=new_id)
    deadline: Deadline | None = None
    budget: Budget | None = None


def as_request(request: UserRequestT | MainLoopRequest[UserRequestT]) -> MainLoopRequest[UserRequestT]:
    return request if isinstance(request, MainLoopRequest) else MainLoopRequest(request)


class MainLoopResult(msgspec.Struct, Generic[OutputT], frozen=True, kw_only=True):
    """The outcome of a request: an output, or an error that says why there is none.

    `stop` tells a clear end without an output (budget, deadline, spinning, …) from a crash, where it is None. `lease_lost` says that the
    delivery was no longer ours when the work ended: such a result is never sent, and only the loop's own hooks see it.
    """

    request_id: str
    output: OutputT | None = None
    error: str | None = None
    session_id: str | None = None
    stop: StopReason | None = None
    usage: Usage = NO_USAGE
    tool_calls: int = 0
    tools: dict[str, ToolUse] = {}
    lease_lost: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and self.lease_lost is None


def result_of(request_id: str, response: PromptResponse[OutputT], session: Session) -> MainLoopResult[OutputT]:
    """The result that tells of a response."""
    return MainLoopResult(
        request_id=request_id,
        output=response.output,
        error=None if response.done else f"{response.stop}: {response.detail}",
        session_id=session.session_id,
        stop=response.stop,
        usage=response.usage,
        tool_calls=response.tool_calls,
        tools=dict(response.tools),
    )


@dataclass(frozen=True, slots=True)
class MainLoopConfig:
    """Configuration for MainLoop execution defaults.

    Attributes:
        deadline: Where a request has none of its own.
        budget: Where a request has none of its own.
        resources: What tools get by type.
        lease_extender: How beats renew the lease of the request in hand.
        prices: Of the model, for budgets of money; the adapter's, when None.
        checkpoint_sessions: Keep each request's session in its message, so that the next delivery goes on from it on any machine.
        max_expansions: How often one request may ask to see more of its prompt.
    """

    deadline: Deadline | None = None
    budget: Budget | None = None
    resources: Mapping[type[object], object] | None = None
    lease_extender: LeaseExtenderConfig = field(default_factory=LeaseExtenderConfig)
    prices: Prices | None = None
    checkpoint_sessions: bool = True
    max_expansions: int = 10

    def __post_init__(self) -> None:
        if self.max_expansions < 0:
            raise LimitError("MainLoopConfig.max_expansions", self.max_expansions, "0 or more")

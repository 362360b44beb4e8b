"""The part of a loop of agents that `MainLoop` and `AsyncMainLoop` share (document 003): its requests, results and settings, and the loop itself.

This file decides what the outcome of an agent means for its message. A result, good or bad, is the reply. An exception is a result with an error, as the
document has it, or a retry where the loop was given a dead-letter policy. When the lease was lost on the way, the result is not sent. Requests and results are
plain JSON in every engine.

An agent also runs inside a workflow, and so in a slot process. Then the context's beats are the agent's, and its checkpoint keeps the session:

    @workflow(stall=300)
    def review(ctx, change: int) -> MainLoopResult[str]:
        return Reviewer(adapter=adapter).execute_in(ctx, Ask(change))

The supervisor keeps the lease, holds the silence of a model call against the stall clock, and kills the process of an agent that hangs; the next attempt goes
on from the session. Everything here goes through the public side of the context.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from tenure.agent.budget import Budget, BudgetTracker, Deadline, Prices
from tenure.agent.events import NO_USAGE, SectionsExpanded, Usage
from tenure.agent.prompt import OutputT, Prompt, PromptResponse, StopReason
from tenure.agent.session import Keeper, Session, SessionKeeper
from tenure.agent.tools import Resources, ToolUse
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtenderConfig
from tenure.beat.record import Brake
from tenure.engines.contracts import BodyT, Mailbox, Message, ReplyT
from tenure.engines.memory import InMemoryMailbox
from tenure.errors import (
    AgentError,
    Cancelled,
    ConfigurationError,
    LeaseLostError,
    LimitError,
    RetryAfter,
    VisibilityExpansionRequired,
)
from tenure.randomness import new_id
from tenure.work.context import BaseContext
from tenure.work.loop_messages import call_thread_for
from tenure.work.mailbox_loop import MailboxLoop

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
    """Returns the result that tells of a response."""
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


_logger = logging.getLogger(__name__)

Prepared = tuple[Prompt[OutputT], Session]
Executed = tuple[PromptResponse[OutputT], Session]


def takes_resources(evaluate: Callable[..., Any]) -> bool:
    """Returns True when an adapter's `evaluate` has a parameter `resources`. The document's has none, and its adapters must work as they are."""
    parameters = inspect.signature(evaluate).parameters
    return "resources" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


class RequestExecution(Generic[OutputT]):
    """One request on its way: the deadline, budget and resources that its evaluations share."""

    def __init__(
        self,
        request: MainLoopRequest[Any],
        config: MainLoopConfig,
        prices: Prices | None,
        resources: Resources,
        heartbeat: Heartbeat,
    ) -> None:
        self._expansions, self._most = 0, config.max_expansions
        self._deadline = request.deadline if request.deadline is not None else config.deadline
        budget = request.budget if request.budget is not None else config.budget
        self._tracker = BudgetTracker(budget, config.prices or prices)
        self._resources, self._heartbeat = resources, heartbeat

    def arguments(self, session: Session, *, resources: bool) -> dict[str, Any]:
        """Returns the arguments of `evaluate` beside the prompt: the document's, and `resources` for an adapter that takes them."""
        given = {
            "session": session,
            "deadline": self._deadline,
            "budget_tracker": self._tracker,
            "heartbeat": self._heartbeat,
        }
        return {**given, "resources": self._resources} if resources else given

    def expand(self, session: Session, asked: VisibilityExpansionRequired) -> None:
        """Notes the sections that the model wants to see, for the next evaluation; at most `max_expansions` times."""
        self._expansions += 1
        if self._expansions > self._most:
            raise AgentError(
                f"the model asked {self._expansions} times to see more of its prompt",
                remedy="Show those sections in full, or raise MainLoopConfig.max_expansions",
            ) from asked
        if not session.expanded.issuperset(asked.keys):  # our own inner loop has noted it already
            session.append(SectionsExpanded(asked.keys, asked.why))
            session.commit()


class AwaitingLoop(MailboxLoop[BodyT, ReplyT], ABC, Generic[BodyT, ReplyT]):
    """A loop whose work may be async: then `run` has an event loop, and beats hand renewals to a thread instead of waiting for the engine."""

    awaits: bool = False
    _events: asyncio.Runner | None = None
    """Only while `run` runs, and where `awaits` is True."""

    @contextmanager
    def _while_it_runs(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self.awaits:
                self._events = stack.enter_context(asyncio.Runner())
                self._hand_over = stack.enter_context(call_thread_for(self.requests, self.name))
            yield

    def outcome_of(self, executed: Executed[OutputT] | Coroutine[Any, Any, Executed[OutputT]]) -> Executed[OutputT]:
        """Returns what `execute` returned, or runs its coroutine in the event loop to its end."""
        if isinstance(executed, tuple):
            return executed
        assert self._events is not None, "run() calls handle()"
        return self._events.run(executed)


class AgentLoop(
    AwaitingLoop[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]], ABC, Generic[UserRequestT, OutputT]
):
    """Takes requests from a mailbox and evaluates them. A subclass writes `execute`, blocking or async."""

    _prices: Prices | None

    def __init__(
        self,
        requests: Mailbox[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]] | None,
        config: MainLoopConfig | None,
        settings: dict[str, Any],
    ) -> None:
        self._config = config or MainLoopConfig()
        self._resources = Resources(self._config.resources)
        self._takes_requests = requests is not None
        if requests is None:
            requests = InMemoryMailbox(type(self).__name__)
        super().__init__(requests, lease_extender=self._config.lease_extender, **settings)

    @property
    def config(self) -> MainLoopConfig:
        return self._config

    @contextmanager
    def _while_it_runs(self) -> Iterator[None]:
        if not self._takes_requests:
            raise ConfigurationError(
                f"{type(self).__name__} has no mailbox to take requests from",
                remedy="Give it requests=engine.mailbox(...), or call execute() or execute_in(ctx, request)",
            )
        with super()._while_it_runs():
            yield

    def handle(
        self, message: Message[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]]
    ) -> MainLoopResult[OutputT]:
        request = message.body
        if not isinstance(request, MainLoopRequest):
            raise ConfigurationError(
                f"mailbox {self.requests.name!r} gave a {type(request).__name__}, not a MainLoopRequest",
                remedy="Open it with body=MainLoopRequest[YourRequest], reply=MainLoopResult[YourOutput]",
            )
        keeper = SessionKeeper(message, self.lease_lost) if self._config.checkpoint_sessions else None
        try:
            response, session = self.outcome_of(self.execute(request, keeper=keeper))
            result = result_of(request.request_id, response, session)
        except (LeaseLostError, Cancelled):
            raise
        except Exception as error:
            if self._dead_letters is not None or isinstance(error, RetryAfter):
                raise  # it comes again, from its session, until the policy gives it up
            _logger.exception("%s: request %s failed", self.name, request.request_id)
            result = MainLoopResult(request_id=request.request_id, error=str(error) or type(error).__name__)
        lease = self.lease
        if lease is not None and lease.lost:
            lost = msgspec.structs.replace(result, lease_lost=lease.lost_reason or "the lease was lost")
            self.discarded(message, lost)
        return result

    @abstractmethod
    def execute(
        self,
        request: UserRequestT | MainLoopRequest[UserRequestT],
        *,
        heartbeat: Heartbeat | None = None,
        keeper: Keeper | None = None,
    ) -> Executed[OutputT] | Coroutine[Any, Any, Executed[OutputT]]:
        """Evaluates one request here and now, without a mailbox. Raises what the adapter raises."""

    def discarded(
        self, message: Message[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]], result: MainLoopResult[OutputT]
    ) -> None:
        """The loop calls this when the work ended after its lease was lost: the result is neither sent nor acknowledged. Override it to keep it."""
        _logger.warning(
            "%s: the result of request %s is discarded: %s", self.name, result.request_id, result.lease_lost
        )

    def _execution(
        self, request: MainLoopRequest[UserRequestT], heartbeat: Heartbeat | None
    ) -> RequestExecution[OutputT]:
        return RequestExecution(request, self._config, self._prices, self._resources, heartbeat or self.heartbeat)


_logger = logging.getLogger(__name__)

_SESSIONS = "sessions"
# An agent that knows its deadline ends with a result; it has to be there before the supervisor ends the attempt without one.
_MARGIN = 0.05
_MOST_MARGIN_S = 5.0


class ContextHeartbeat(Heartbeat):
    """Beats on the context of a workflow. A beat raises `Cancelled` when the time of the attempt is over."""

    __slots__ = ("_context",)

    def __init__(self, context: BaseContext) -> None:
        super().__init__(name=context.job, clock=context.clock)
        self._context = context

    def beat(self, progress: float | None = None, note: str | None = None) -> None:
        # An agent beats for new content and new tool results only, and it watches the threads of its tools itself.
        self._context.beat_with_news(progress, note)
        super().beat(progress, note)

    def raise_if_interrupted(self) -> None:
        self._context.raise_if_cancelled()
        super().raise_if_interrupted()

    @contextmanager
    def silence(self, max_s: float, why: str) -> Iterator[None]:
        """Declared to the supervisor too: it holds the stall clock and goes on extending, once."""
        with self._context.silence(max_s, why), super().silence(max_s, why):
            yield

    def depends(self, name: str, *, errors: bool = True) -> AbstractContextManager[None]:
        return self._context.depends(name, errors=errors)

    def call_failed(self) -> None:
        self._context.call_failed()

    @property
    def brake(self) -> Brake:
        return self._context.brake


class ContextKeeper(Keeper):
    """In the checkpoint of a workflow, under a name: a workflow may run several agents, one after another.

    Other keys of a checkpoint that is an object stay as they are. Saving is no beat: an agent that repeats itself saves as well.
    """

    def __init__(self, context: BaseContext, name: str = "agent") -> None:
        super().__init__()
        self.where = f"Agent {name!r} of job {context.job}"
        self._context, self._name = context, name

    def saved(self) -> bytes | None:
        text = self._sessions().get(self._name)
        return text.encode() if isinstance(text, str) else None

    def save(self, data: bytes) -> None:
        sessions = {**self._sessions(), self._name: data.decode()}
        self._context.save({**self._checkpoint(), _SESSIONS: sessions})

    def lost(self, reason: str) -> None:
        _logger.info("%s is no longer ours: %s", self.where, reason)  # the context knows, and its next beat raises

    def _checkpoint(self) -> dict[str, Any]:
        saved = self._context.saved
        return saved if isinstance(saved, dict) else {}

    def _sessions(self) -> dict[str, Any]:
        sessions = self._checkpoint().get(_SESSIONS)
        return sessions if isinstance(sessions, dict) else {}


def request_in(
    context: BaseContext, request: UserRequestT | MainLoopRequest[UserRequestT], name: str
) -> MainLoopRequest[UserRequestT]:
    """Returns the request as every attempt at this work has to see it: with an id that is the work's, and a deadline within the attempt's."""
    asked = as_request(request)
    deadline = asked.deadline
    if context.deadline is not None:
        left = context.deadline - min(context.deadline * _MARGIN, _MOST_MARGIN_S)
        deadline = Deadline.after(left, context.clock).earlier(deadline)
    return msgspec.structs.replace(asked, request_id=f"{context.job}/{name}", deadline=deadline)

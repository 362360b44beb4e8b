"""The part of a loop of agents that `MainLoop` and `AsyncMainLoop` share (document 003).

This file decides what the outcome of an agent means for its message. A result, good or bad, is the reply. An exception is a result with an error, as the
document has it, or a retry where the loop was given a dead-letter policy. When the lease was lost on the way, the result is not sent.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, ClassVar, Generic

import msgspec

from tenure.agent.budget import BudgetTracker, Prices
from tenure.agent.events import SectionsExpanded
from tenure.agent.model_call import PromptResponse
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.requests import MainLoopConfig, MainLoopRequest, MainLoopResult, UserRequestT, result_of
from tenure.agent.session import Keeper, Session, SessionKeeper
from tenure.agent.tools import Resources
from tenure.beat.heartbeat import Heartbeat
from tenure.engines.contracts import Mailbox, Message
from tenure.engines.memory import InMemoryMailbox
from tenure.errors import AgentError, Cancelled, ConfigurationError, LeaseLostError, VisibilityExpansionRequired
from tenure.work.batch import call_thread_for
from tenure.work.mailbox_loop import MailboxLoop

_logger = logging.getLogger(__name__)

Prepared = tuple[Prompt[OutputT], Session]
Executed = tuple[PromptResponse[OutputT], Session]


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

    def arguments(self, session: Session) -> dict[str, Any]:
        """Returns the arguments of `evaluate` beside the prompt."""
        return {
            "session": session,
            "deadline": self._deadline,
            "budget_tracker": self._tracker,
            "heartbeat": self._heartbeat,
            "resources": self._resources,
        }

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


class AgentLoop(
    MailboxLoop[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]], ABC, Generic[UserRequestT, OutputT]
):
    """Takes requests from a mailbox and evaluates them. A subclass writes `execute`, blocking or async."""

    awaits: ClassVar[bool] = False
    """True where `execute` is async: then `run` has an event loop, and beats hand renewals to a thread instead of waiting for the engine."""
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
        self._events: asyncio.Runner | None = None
        if requests is None:
            requests = InMemoryMailbox(type(self).__name__)
        super().__init__(requests, lease_extender=self._config.lease_extender, **settings)

    @property
    def config(self) -> MainLoopConfig:
        return self._config

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 30,
    ) -> None:
        if not self._takes_requests:
            raise ConfigurationError(
                f"{type(self).__name__} has no mailbox to take requests from",
                remedy="Give it requests=engine.mailbox(...), or call execute() or execute_in(ctx, request)",
            )
        with ExitStack() as stack:
            if self.awaits:
                self._events = stack.enter_context(asyncio.Runner())
                self._hand_over = stack.enter_context(call_thread_for(self.requests, self.name))
            super().run(
                max_iterations=max_iterations,
                visibility_timeout=visibility_timeout,
                wait_time_seconds=wait_time_seconds,
            )

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
            response, session = self._run(request, keeper)
            result = result_of(request.request_id, response, session)
        except (LeaseLostError, Cancelled):
            raise
        except Exception as error:
            if self._dead_letters is not None:
                raise  # it comes again, from its session, until the policy gives it up
            _logger.exception("%s: request %s failed", self.name, request.request_id)
            result = MainLoopResult(request_id=request.request_id, error=str(error) or type(error).__name__)
        lease = self.lease
        if lease is not None and lease.lost:
            self.discarded(message, _lost(result, lease.lost_reason or "the lease was lost"))
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

    def _run(self, request: MainLoopRequest[UserRequestT], keeper: Keeper | None) -> Executed[OutputT]:
        executed = self.execute(request, keeper=keeper)
        if isinstance(executed, tuple):
            return executed
        assert self._events is not None, "run() calls handle()"
        return self._events.run(executed)

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


def _lost(result: MainLoopResult[OutputT], reason: str) -> MainLoopResult[OutputT]:
    return msgspec.structs.replace(result, lease_lost=reason)

"""Agents as workers: take a request, evaluate its prompt with tools, reply (document 003).

This file decides what an agent's outcome means for its message. A result, good or bad, is the reply; an exception is a result with an error, as the
document has it, or a retry where the loop was given a dead-letter policy. A lease that was lost on the way makes the result nobody's.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, Generic

import msgspec

from tenure.agent.adapter import AsyncProviderAdapter, PromptResponse, ProviderAdapter
from tenure.agent.budget import BudgetTracker, Prices
from tenure.agent.events import SectionsExpanded
from tenure.agent.in_workflow import ContextHeartbeat, ContextKeeper, request_in
from tenure.agent.keeper import Keeper, SessionKeeper
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.requests import MainLoopConfig, MainLoopRequest, MainLoopResult, UserRequestT, as_request, result_of
from tenure.agent.session import Session
from tenure.agent.tools import Resources
from tenure.beat.heartbeat import Heartbeat
from tenure.engines.contracts import Mailbox, Message
from tenure.engines.memory import InMemoryMailbox
from tenure.errors import AgentError, Cancelled, ConfigurationError, LeaseLostError, VisibilityExpansionRequired
from tenure.work.context import AsyncContext, Context
from tenure.work.courier import courier_for
from tenure.work.mailbox_loop import MailboxLoop

_logger = logging.getLogger(__name__)

Prepared = tuple[Prompt[OutputT], Session]


class _Execution(Generic[OutputT]):
    """One request on its way: what its evaluations share."""

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
        """What `evaluate` gets beside the prompt."""
        return {
            "session": session,
            "deadline": self._deadline,
            "budget_tracker": self._tracker,
            "heartbeat": self._heartbeat,
            "resources": self._resources,
        }

    def expand(self, session: Session, asked: VisibilityExpansionRequired) -> None:
        """Note what the model wants to see, for the next evaluation; at most so often."""
        self._expansions += 1
        if self._expansions > self._most:
            raise AgentError(
                f"the model asked {self._expansions} times to see more of its prompt",
                remedy="Show those sections in full, or raise MainLoopConfig.max_expansions",
            ) from asked
        if not session.expanded.issuperset(asked.keys):  # our own inner loop has noted it already
            session.append(SectionsExpanded(asked.keys, asked.why))
            session.commit()


class _AgentLoop(
    MailboxLoop[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]], ABC, Generic[UserRequestT, OutputT]
):
    """What the sync and the async loop share."""

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
        super().run(
            max_iterations=max_iterations, visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds
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
    def _run(
        self, request: MainLoopRequest[UserRequestT], keeper: Keeper | None
    ) -> tuple[PromptResponse[OutputT], Session]: ...

    def discarded(
        self, message: Message[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]], result: MainLoopResult[OutputT]
    ) -> None:
        """The work ended after its lease was lost: the result is neither sent nor acknowledged. Override it to keep it."""
        _logger.warning("%s: the result of request %s is nobody's: %s", self.name, result.request_id, result.lease_lost)

    def _execution(self, request: MainLoopRequest[UserRequestT], heartbeat: Heartbeat | None) -> _Execution[OutputT]:
        return _Execution(request, self._config, self._prices, self._resources, heartbeat or self.heartbeat)


class MainLoop(_AgentLoop[UserRequestT, OutputT], ABC, Generic[UserRequestT, OutputT]):
    """Evaluates requests from a mailbox. Write `prepare`, and `finalize` where something is to be done at the end.

    Without `requests` it is run by `execute` here and now, or by `execute_in` inside a workflow.

    Other settings (`name`, `dead_letters`, `retry`, `on_lease_lost`, `clock`, …) are those of `MailboxLoop`.
    """

    def __init__(
        self,
        *,
        adapter: ProviderAdapter[OutputT],
        requests: Mailbox[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]] | None = None,
        config: MainLoopConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(requests, config, settings)
        self._adapter = adapter
        self._prices = adapter.prices

    @abstractmethod
    def prepare(self, request: UserRequestT) -> Prepared[OutputT]:
        """The prompt that answers this request, and the session it runs in."""

    def finalize(self, prompt: Prompt[OutputT], session: Session) -> None:
        """After a good or a clearly ended evaluation, before the reply."""
        del prompt, session

    def execute(
        self,
        request: UserRequestT | MainLoopRequest[UserRequestT],
        *,
        heartbeat: Heartbeat | None = None,
        keeper: Keeper | None = None,
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Evaluate one request here and now, without a mailbox. Raises what the adapter raises."""
        request_event = as_request(request)
        execution = self._execution(request_event, heartbeat)
        prompt, session = self.prepare(request_event.request)
        if keeper is not None:
            keeper.resume(session)
        session.request_id = request_event.request_id
        try:
            return self._evaluate(execution, prompt, session), session
        finally:
            if keeper is not None:
                keeper.release(session)

    def execute_in(
        self, context: Context, request: UserRequestT | MainLoopRequest[UserRequestT], *, name: str = "agent"
    ) -> MainLoopResult[OutputT]:
        """Evaluate one request inside a workflow, and go on from the session that an earlier attempt left.

        A workflow that runs several agents gives each a `name`. Raises what the adapter raises: the workflow's own retries decide.
        """
        asked = request_in(context, request, name)
        response, session = self.execute(
            asked, heartbeat=ContextHeartbeat(context), keeper=ContextKeeper(context, name)
        )
        return result_of(asked.request_id, response, session)

    def _evaluate(
        self, execution: _Execution[OutputT], prompt: Prompt[OutputT], session: Session
    ) -> PromptResponse[OutputT]:
        while True:
            try:
                response = self._adapter.evaluate(prompt, **execution.arguments(session))
            except VisibilityExpansionRequired as asked:
                execution.expand(session, asked)
            else:
                self.finalize(prompt, session)
                return response

    def _run(
        self, request: MainLoopRequest[UserRequestT], keeper: Keeper | None
    ) -> tuple[PromptResponse[OutputT], Session]:
        return self.execute(request, keeper=keeper)


class AsyncMainLoop(_AgentLoop[UserRequestT, OutputT], ABC, Generic[UserRequestT, OutputT]):
    """The same with an async adapter and async tools; `prepare` and `finalize` may be async.

    It takes one request at a time, in a thread like every loop, with an event loop of its own. For several at a time, run several. Beats and commits in there
    never wait for the engine: renewals are handed to a thread, one at a time, and the session is kept in another.
    """

    def __init__(
        self,
        *,
        adapter: AsyncProviderAdapter[OutputT],
        requests: Mailbox[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]] | None = None,
        config: MainLoopConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(requests, config, settings)
        self._adapter = adapter
        self._prices = adapter.prices
        self._events: asyncio.Runner | None = None

    @abstractmethod
    def prepare(self, request: UserRequestT) -> Prepared[OutputT] | Awaitable[Prepared[OutputT]]:
        """The prompt that answers this request, and the session it runs in."""

    def finalize(self, prompt: Prompt[OutputT], session: Session) -> Awaitable[None] | None:
        """After a good or a clearly ended evaluation, before the reply."""
        del prompt, session
        return None

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 30,
    ) -> None:
        with asyncio.Runner() as self._events, courier_for(self.requests, self.name) as self._hand_over:
            super().run(
                max_iterations=max_iterations,
                visibility_timeout=visibility_timeout,
                wait_time_seconds=wait_time_seconds,
            )

    async def execute(
        self,
        request: UserRequestT | MainLoopRequest[UserRequestT],
        *,
        heartbeat: Heartbeat | None = None,
        keeper: Keeper | None = None,
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Evaluate one request here and now, without a mailbox. Raises what the adapter raises."""
        request_event = as_request(request)
        execution = self._execution(request_event, heartbeat)
        prepared = self.prepare(request_event.request)
        prompt, session = await prepared if inspect.isawaitable(prepared) else prepared
        if keeper is not None:
            await asyncio.to_thread(keeper.resume, session)
        session.request_id = request_event.request_id
        try:
            return await self._evaluate(execution, prompt, session), session
        finally:
            if keeper is not None:
                keeper.release(session)

    async def execute_in(
        self, context: AsyncContext, request: UserRequestT | MainLoopRequest[UserRequestT], *, name: str = "agent"
    ) -> MainLoopResult[OutputT]:
        """Evaluate one request inside a workflow, and go on from the session that an earlier attempt left.

        A workflow that runs several agents gives each a `name`. Raises what the adapter raises: the workflow's own retries decide.
        """
        asked = request_in(context, request, name)
        response, session = await self.execute(
            asked, heartbeat=ContextHeartbeat(context), keeper=ContextKeeper(context, name)
        )
        return result_of(asked.request_id, response, session)

    async def _evaluate(
        self, execution: _Execution[OutputT], prompt: Prompt[OutputT], session: Session
    ) -> PromptResponse[OutputT]:
        while True:
            try:
                response = await self._adapter.evaluate(prompt, **execution.arguments(session))
            except VisibilityExpansionRequired as asked:
                await asyncio.to_thread(execution.expand, session, asked)
            else:
                finalized = self.finalize(prompt, session)
                if finalized is not None:
                    await finalized
                return response

    def _run(
        self, request: MainLoopRequest[UserRequestT], keeper: Keeper | None
    ) -> tuple[PromptResponse[OutputT], Session]:
        assert self._events is not None, "handle() is called by run()"
        return self._events.run(self.execute(request, keeper=keeper))


def _lost(result: MainLoopResult[OutputT], reason: str) -> MainLoopResult[OutputT]:
    return msgspec.structs.replace(result, lease_lost=reason)

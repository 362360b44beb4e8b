"""Agents inside workflows, and so in slot processes: the context's beats are the agent's, its checkpoint keeps the session.

    @workflow(stall=300)
    def review(ctx, change: int) -> MainLoopResult[str]:
        return Reviewer(adapter=adapter).execute_in(ctx, Ask(change))

The supervisor keeps the lease, holds the silence of a model call against the stall clock, and kills the process of an agent that hangs; the next attempt goes on from the
session. Everything here goes through the public side of the context.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tenure.agent.budget import Deadline
from tenure.agent.requests import MainLoopRequest, UserRequestT, as_request
from tenure.agent.session import Keeper
from tenure.beat.heartbeat import Heartbeat
from tenure.work.context import BaseContext

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
        self._context.beat(progress, note)
        super().beat(progress, note)

    def raise_if_interrupted(self) -> None:
        self._context.raise_if_cancelled()
        super().raise_if_interrupted()

    @contextmanager
    def silence(self, max_s: float, why: str) -> Iterator[None]:
        """Declared to the supervisor too: it holds the stall clock and goes on extending, once."""
        with self._context.silence(max_s, why), super().silence(max_s, why):
            yield


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
    """The request as every attempt at this work has to see it: with an id that is the work's, and a deadline within the attempt's."""
    asked = as_request(request)
    deadline = asked.deadline
    if context.deadline is not None:
        left = context.deadline - min(context.deadline * _MARGIN, _MOST_MARGIN_S)
        deadline = Deadline.after(left, context.clock).earlier(deadline)
    return msgspec.structs.replace(asked, request_id=f"{context.job}/{name}", deadline=deadline)

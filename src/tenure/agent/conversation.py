"""Decides the next step of an evaluation: a model call, a tool call, or the end. It does no I/O: the inner loop performs the step and reports its outcome.

Everything it decides is a fold over the session, so an evaluation that was cut off in any place goes on from there: a tool call without an answer
is made again, an answer without a reader is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from tenure.agent.budget import BudgetTracker, Countdown
from tenure.agent.events import (
    UNREADABLE,
    Corrected,
    Event,
    Finish,
    ModelSaid,
    SectionsExpanded,
    Stopped,
    ToolAnswered,
    ToolCall,
    UserSaid,
)
from tenure.agent.progress import ProgressJudge
from tenure.agent.prompt import ModelRequest, OutputT, Prompt, PromptResponse, StopReason, Turn
from tenure.agent.session import Session
from tenure.agent.tools import ToolResult, tools_used
from tenure.errors import VisibilityExpansionRequired

_EMPTY = "Your last answer was empty. Answer the request, or use a tool."
_TURNS = (UserSaid, Corrected, ModelSaid, ToolAnswered)


class Conversation(Generic[OutputT]):
    """One evaluation of one prompt on one session."""

    def __init__(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        budget: BudgetTracker,
        countdown: Countdown,
        progress: ProgressJudge,
        max_turns: int,
        output_retries: int,
        commit: Callable[[], None] | None = None,
    ) -> None:
        """`commit` makes the session durable after each step; by default here and now."""
        self.prompt, self.session = prompt, session
        self.progress = progress
        self.rendered = prompt.render(session.expanded)
        self._budget, self._countdown = budget, countdown
        self._max_turns, self._output_retries = max_turns, output_retries
        self._response: PromptResponse[OutputT] | None = None
        self._commit = commit or session.commit
        self._begin()

    def _begin(self) -> None:
        ours = self._since_request()
        if ours is None:
            self.session.append(self._request())
            self._commit()
            ours = []
        elif self.session.resumed:
            # Otherwise it was interrupted in this process, by an expansion: then the tracker has counted all this.
            self._budget.recount(ours)
        self.session.resumed = False
        self._at = len(self.session.events) - len(ours)
        self._open = _open_calls(ours)
        self.progress.replay(ours)
        if ours:
            self._conclude(ours[-1])

    def _since_request(self) -> list[Event] | None:
        """Returns the events since our request when the session ends in it, or None when the request must be made first."""
        events = self.session.events
        for index in range(len(events) - 1, -1, -1):
            event = events[index]
            if isinstance(event, Stopped) and not (self.session.resumed and index == len(events) - 1):
                return None  # that evaluation was ended; asking the same again is a new one
            if isinstance(event, UserSaid):
                ours = list(events[index + 1 :])
                same = event == self._request()
                return ours if same and (not _answered(ours) or self.session.resumed) else None
        return None

    def _request(self) -> UserSaid:
        return UserSaid(self.prompt.name, self.prompt.request, self.session.request_id)

    # What is next

    def next_step(self) -> ModelRequest | ToolCall | None:
        """Returns the model call or the tool call to make next. Returns None when it is over; then `response` says how."""
        if self._response is None:
            reason = self._reason_to_stop()
            if reason is not None:
                self._stop(*reason)
        if self._response is not None:
            return None
        if self._open:
            return self._open[0]
        return ModelRequest(
            system=self.rendered.system,
            turns=self.turns(),
            tools=self.rendered.tools,
            output_schema=self.rendered.output_schema,
            output_name=self.prompt.name,
            remaining_s=self._countdown.remaining_s,
        )

    @property
    def response(self) -> PromptResponse[OutputT]:
        assert self._response is not None, "the conversation is not over"
        return self._response

    def turns(self) -> list[Turn]:
        """Returns the transcript as a model reads it."""
        return [event for event in self.session.events if isinstance(event, _TURNS)]

    def _count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.session.events[self._at :])

    def _reason_to_stop(self) -> tuple[StopReason, str] | None:
        if self._countdown.over:
            return StopReason.DEADLINE, "the deadline is over"
        refused = self._budget.refuses_tool_call() if self._open else self._budget.exhausted()
        if refused is not None:
            return StopReason.BUDGET, f"the budget is used up: {refused}"
        if self._open:
            return None
        evidence = self.progress.spinning()
        if evidence is not None:
            return StopReason.SPINNING, evidence
        made = self._count(ModelSaid)
        if made >= self._max_turns:
            return StopReason.TURNS, f"{made} model calls, and no answer"
        return None

    # What happened

    def model_said(self, said: ModelSaid) -> None:
        """Notes the answer to the model call that was asked for."""
        self._budget.charge(said.usage)
        self.session.append(said)
        self._open = list(said.tool_calls)
        self.progress.model_said(said)
        if not said.tool_calls:
            self.progress.turn_over()
            self._conclude(said)
        self._commit()

    def tool_answered(self, call: ToolCall, result: ToolResult[Any]) -> None:
        """Notes that the tool call that was asked for was made. The executor has told the judge of it."""
        self._answer(call, result)

    def sections_opened(self, call: ToolCall, asked: VisibilityExpansionRequired) -> None:
        """Notes that the model wants to see more: the next evaluation shows it."""
        self.session.append(SectionsExpanded(asked.keys, asked.why))
        self.progress.tool_answered(call, ",".join(asked.keys))
        self._answer(call, ToolResult.ok(f"The instructions now show these sections in full: {', '.join(asked.keys)}"))

    def _answer(self, call: ToolCall, result: ToolResult[Any]) -> None:
        self._budget.count_tool_call()
        effort = result.effort
        self.session.append(ToolAnswered(call, result.text(), result.success, effort.seconds, effort.beats))
        self._open.remove(call)
        if not self._open:
            self.progress.turn_over()
        self._commit()

    def _conclude(self, last: Event) -> None:
        """Read the last answer, if it is one: it may be the end, or need a correction."""
        if isinstance(last, Stopped):
            self._response = self._summary("", None, StopReason(last.reason), last.detail)
            return
        if not isinstance(last, ModelSaid) or last.tool_calls:
            return
        if last.finish is Finish.REFUSED:
            self._end(StopReason.REFUSED, last.text or "the model refused to answer", last.text)
        elif last.finish is Finish.LENGTH:
            self._end(StopReason.LENGTH, "the model's answer was cut off at its limit of tokens", last.text)
        elif not last.text.strip():
            self.session.append(Corrected(_EMPTY))
        else:
            self._read(last.text)

    def _read(self, text: str) -> None:
        try:
            output = self.prompt.parse(text)
        except UNREADABLE as error:
            corrections = self._count(Corrected)
            if corrections >= self._output_retries:
                self._end(StopReason.OUTPUT, f"after {corrections} corrections the answer does not fit: {error}", text)
            else:
                self.session.append(
                    Corrected(f"Your answer does not fit the schema: {error}. Answer again, only with JSON.")
                )
        else:
            self._response = self._summary(text, output)

    def _stop(self, reason: StopReason, detail: str) -> None:
        for call in self._open:
            # A transcript with open calls is refused by providers, and somebody may go on with this session.
            self.session.append(ToolAnswered(call, f"Not run: {detail}", success=False, made=False))
        self._open = []
        self._end(reason, detail, "")

    def _end(self, reason: StopReason, detail: str, text: str) -> None:
        self._response = self._summary(text, None, reason, detail)
        self.session.append(Stopped(reason, detail))
        self._commit()

    def _summary(
        self, text: str, output: OutputT | None, stop: StopReason = StopReason.DONE, detail: str = ""
    ) -> PromptResponse[OutputT]:
        spent = self._budget.spent
        tools = tools_used(self.session.events[self._at :])
        return PromptResponse(self.prompt.name, text, output, stop, detail, spent.usage, spent.tool_calls, tools)


def _open_calls(events: list[Event]) -> list[ToolCall]:
    """Calls of the last answer that nobody has answered."""
    answered: set[str] = set()
    for event in reversed(events):
        if isinstance(event, ToolAnswered):
            answered.add(event.call.id)
        elif isinstance(event, ModelSaid):
            return [call for call in event.tool_calls if call.id not in answered]
    return []


def _answered(events: list[Event]) -> bool:
    """Returns True when these events end in an answer without open tool calls, or in a stop."""
    last = events[-1] if events else None
    return isinstance(last, Stopped) or (isinstance(last, ModelSaid) and not last.tool_calls)

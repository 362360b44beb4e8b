from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tenure.agent import (
    Budget,
    BudgetTracker,
    Deadline,
    Finish,
    InnerLoopConfig,
    ModelRetry,
    ModelSaid,
    Prompt,
    PromptResponse,
    Section,
    Session,
    StopReason,
    ToolContext,
    ToolResult,
    Usage,
    Visibility,
    tool,
)
from tenure.agent.events import Corrected, ToolAnswered, UserSaid
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import ManualClock
from tenure.errors import (
    LimitError,
    ProviderRateLimitedError,
    ProviderRefusedError,
    ProviderStalledError,
    VisibilityExpansionRequired,
)
from tenure.testing.model import AsyncScriptedAdapter, ScriptedAdapter, calls, says


@dataclass(frozen=True)
class Number:
    n: int


@tool
def double(params: Number, *, context: ToolContext) -> ToolResult[int]:
    """Double a number."""
    return ToolResult.ok(2 * params.n)


PROMPT = Prompt[str]("sum", "Double 4.", tools=(double,))


@pytest.fixture(params=["sync", "async"])
def evaluate(request: pytest.FixtureRequest) -> Any:
    """Evaluates with a script; the response and the adapter."""

    def run(lines: Any, prompt: Prompt[Any] = PROMPT, session: Session | None = None, **given: Any) -> Any:
        loop = given.pop("loop", None)
        session = session or Session()
        if request.param == "sync":
            adapter = ScriptedAdapter(lines, loop=loop)
            return adapter.evaluate(prompt, session=session, **given), adapter
        async_adapter = AsyncScriptedAdapter(lines, loop=loop)
        return asyncio.run(async_adapter.evaluate(prompt, session=session, **given)), async_adapter

    return run


def test_a_tool_is_called_and_its_result_is_read_by_the_model(evaluate: Any) -> None:
    session = Session()
    response, adapter = evaluate([calls(("double", {"n": 4})), "It is 8."], session=session)
    assert response == PromptResponse("sum", "It is 8.", "It is 8.", usage=Usage(20, 10), tool_calls=1)
    assert [type(turn).__name__ for turn in adapter.requests[1].turns] == ["UserSaid", "ModelSaid", "ToolAnswered"]
    assert adapter.requests[1].turns[2].text == "8"


def test_several_calls_of_one_answer_are_made_in_order(evaluate: Any) -> None:
    _, adapter = evaluate([calls(("double", {"n": 1}), ("double", {"n": 2})), "ok"])
    assert [turn.text for turn in adapter.requests[1].turns if isinstance(turn, ToolAnswered)] == ["2", "4"]


@dataclass(frozen=True)
class Answer:
    value: int


def test_structured_output_is_parsed_and_a_wrong_one_is_corrected(evaluate: Any) -> None:
    prompt = Prompt[Answer]("sum", "Double 4.", output=Answer)
    response, adapter = evaluate(["eight", '{"value": 8}'], prompt)
    assert response.output == Answer(8)
    assert isinstance(adapter.requests[1].turns[-1], Corrected)
    assert adapter.requests[0].output_schema["properties"] == {"value": {"type": "integer"}}


def test_an_answer_that_never_fits_is_a_clear_result(evaluate: Any) -> None:
    response, _ = evaluate(["a", "b", "c"], Prompt[Answer]("sum", "x", output=Answer))
    assert (response.output, response.stop) == (None, StopReason.OUTPUT)
    assert response.detail.startswith("after 2 corrections the answer does not fit: JSON is malformed")


def test_a_used_up_budget_is_a_result_and_no_further_model_call_is_made(evaluate: Any) -> None:
    tracker = BudgetTracker(Budget(max_total_tokens=15))
    response, adapter = evaluate([calls(("double", {"n": 4}))], budget_tracker=tracker)
    assert (response.stop, response.detail) == (StopReason.BUDGET, "the budget is used up: tokens 15 of 15")
    assert len(adapter.requests) == 1


def test_an_answer_that_used_up_the_budget_is_still_an_answer(evaluate: Any) -> None:
    response, _ = evaluate(["done"], budget_tracker=BudgetTracker(Budget(max_total_tokens=1)))
    assert response.done


def test_tool_calls_over_the_budget_are_not_made_and_are_answered_in_the_transcript(evaluate: Any) -> None:
    session = Session()
    tracker = BudgetTracker(Budget(max_tool_calls=1))
    response, _ = evaluate([calls(("double", {"n": 1}), ("double", {"n": 2}))], session=session, budget_tracker=tracker)
    assert (response.stop, response.tool_calls) == (StopReason.BUDGET, 1)
    answers = [event.text for event in session.events if isinstance(event, ToolAnswered)]
    assert answers == ["2", "Not run: the budget is used up: tool calls 1 of 1"]


def test_the_deadline_ends_it_between_two_steps(evaluate: Any) -> None:
    clock = ManualClock()

    def slow(request: Any) -> ModelSaid:
        assert request.remaining_s == 60
        clock.advance(61)
        return calls(("double", {"n": 1}))

    loop = InnerLoopConfig(clock=clock)
    response, _ = evaluate([slow], loop=loop, deadline=Deadline.after(60, clock))
    assert (response.stop, response.tool_calls) == (StopReason.DEADLINE, 0)


def test_a_spinning_agent_is_stopped_with_the_evidence_and_gets_no_beats_for_it(evaluate: Any) -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(clock=clock)
    at: list[int] = []

    def same(request: Any) -> ModelSaid:
        at.append(heartbeat.count)
        return calls(("double", {"n": 4}))

    response, adapter = evaluate([same] * 50, heartbeat=heartbeat, loop=InnerLoopConfig(clock=clock))
    assert response.stop is StopReason.SPINNING
    assert response.detail.startswith('5 turns in a row without progress: double({"n":4}) -> 8, 5 times again')
    assert len(adapter.requests) == 6
    assert len(set(at[2:])) == 1, "no beat from the first turn that repeated the one before"


def test_an_agent_that_says_nothing_is_stopped(evaluate: Any) -> None:
    response, _ = evaluate([ModelSaid("")] * 10)
    assert (response.stop, "said nothing" in response.detail) == (StopReason.SPINNING, True)


def test_an_evaluation_has_a_limit_of_model_calls(evaluate: Any) -> None:
    lines = [calls(("double", {"n": number})) for number in range(10)]
    response, adapter = evaluate(lines, loop=InnerLoopConfig(max_turns=4))
    assert (response.stop, len(adapter.requests)) == (StopReason.TURNS, 4)


@pytest.mark.parametrize(("finish", "stop"), [(Finish.LENGTH, StopReason.LENGTH), (Finish.REFUSED, StopReason.REFUSED)])
def test_a_cut_off_or_refused_answer_is_told_apart(evaluate: Any, finish: Finish, stop: StopReason) -> None:
    response, _ = evaluate([ModelSaid("half an ans", finish=finish)])
    assert (response.stop, response.output, response.text) == (stop, None, "half an ans")


def test_the_wait_for_the_model_is_a_declared_silence_with_a_bound(evaluate: Any) -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(clock=clock)

    def slow(request: Any) -> ModelSaid:
        assert heartbeat.silent is not None
        assert heartbeat.silent.until == clock.monotonic() + 600
        clock.advance(500)
        assert heartbeat.unexplained() == 0
        return says("at last")

    evaluate([slow], heartbeat=heartbeat, loop=InnerLoopConfig(clock=clock, model_silence_s=600))
    assert heartbeat.silent is None


def test_streamed_pieces_beat_but_only_a_few_times_a_second(evaluate: Any) -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(clock=clock)
    evaluate(["x" * 8_000], heartbeat=heartbeat, loop=InnerLoopConfig(clock=clock))
    assert heartbeat.count == 2, "the iteration, and one for all chunks of this moment: a silence is no beat"


DETAILS = Section("details", "Details", "The answer is 8.", summary="More.", visibility=Visibility.SUMMARY)


def test_the_model_opens_a_section_and_the_next_evaluation_shows_it(evaluate: Any) -> None:
    prompt = Prompt[str]("sum", "Double 4.", sections=(DETAILS,))
    session = Session()
    with pytest.raises(VisibilityExpansionRequired) as asked:
        evaluate([calls(("open_sections", {"keys": ["details"], "why": "need it"}))], prompt, session)
    assert (asked.value.keys, asked.value.why) == (("details",), "need it")
    response, adapter = evaluate(["8"], prompt, session)
    assert response.done
    assert "The answer is 8." in adapter.requests[0].system
    assert sum(isinstance(event, UserSaid) for event in session.events) == 1, "the same evaluation goes on"


def test_unknown_sections_are_told_to_the_model(evaluate: Any) -> None:
    prompt = Prompt[str]("sum", "x", sections=(DETAILS,))
    _, adapter = evaluate([calls(("open_sections", {"keys": ["nope"]})), "8"], prompt)
    assert adapter.requests[1].turns[-1].text == "Error: no such sections: ['nope']; there are ['details']"


def test_an_evaluation_that_was_cut_off_goes_on_where_it_was(evaluate: Any) -> None:
    session = Session()
    with pytest.raises(ConnectionError):
        evaluate([calls(("double", {"n": 1}), usage=Usage(7, 7)), ConnectionError()], session=session)
    again = Session()
    again.restore(session.encode())
    tracker = BudgetTracker()
    response, adapter = evaluate(["2"], session=again, budget_tracker=tracker)
    assert len(adapter.requests[0].turns) == 3
    assert (response.usage, response.tool_calls) == (Usage(17, 12), 1), "what was spent before the crash counts"


def test_a_tool_call_that_was_cut_off_is_made_again(evaluate: Any) -> None:
    session = Session()
    session.append(UserSaid("sum", "Double 4."))
    session.append(calls(("double", {"n": 4})))
    again = Session()
    again.restore(session.encode())
    response, adapter = evaluate(["8"], session=again)
    assert adapter.requests[0].turns[-1].text == "8"
    assert response.done


def test_an_answer_that_was_recorded_before_the_crash_is_not_asked_for_again(evaluate: Any) -> None:
    session = Session()
    evaluate(["It is 8."], session=session)
    again = Session()
    again.restore(session.encode())
    response, adapter = evaluate([], session=again)
    assert (response.output, adapter.requests) == ("It is 8.", [])


def test_asking_the_same_again_in_a_live_session_is_a_new_request(evaluate: Any) -> None:
    session = Session()
    evaluate(["It is 8."], session=session)
    response, adapter = evaluate(["Still 8."], session=session)
    assert (response.output, len(adapter.requests[0].turns)) == ("Still 8.", 3)


def test_settings_out_of_range_name_their_field() -> None:
    with pytest.raises(LimitError, match=r"InnerLoopConfig.max_turns is 0"):
        InnerLoopConfig(max_turns=0)
    with pytest.raises(LimitError, match="model_silence_s"):
        InnerLoopConfig(model_silence_s=0)


def test_a_call_that_failed_is_made_again_after_a_declared_wait() -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(clock=clock)
    loop = InnerLoopConfig(clock=clock)
    adapter = ScriptedAdapter([ProviderRateLimitedError(60), "done"], loop=loop)
    answer: list[Any] = []
    session = Session()
    runner = threading.Thread(
        target=lambda: answer.append(adapter.evaluate(PROMPT, session=session, heartbeat=heartbeat))
    )
    runner.start()
    clock.until_waiting()
    clock.advance(59)
    assert (heartbeat.unexplained(), heartbeat.note) == (0, "waiting to call the model again")
    assert len(adapter.requests) == 1
    clock.advance(1)
    runner.join(60)
    assert answer[0].done


@pytest.mark.parametrize(
    ("error", "failures", "remaining_s", "waits"),
    [
        (ProviderRateLimitedError(60), 1, 100, True),
        (ProviderRateLimitedError(60), 1, 60, False),
        (ProviderRateLimitedError(301), 1, 1e9, False),
        (ProviderRateLimitedError(None), 4, 100, True),
        (ProviderRateLimitedError(None), 5, 100, False),
        (ProviderStalledError("x"), 1, 100, True),
        (ProviderRefusedError(400, "x"), 1, 100, False),
    ],
)
def test_which_failures_are_worth_another_call(error: Any, failures: int, remaining_s: float, waits: bool) -> None:
    wait = ModelRetry().wait_s(error, failures, remaining_s, Random(1))
    assert (wait is not None) == waits
    if waits and getattr(error, "retry_after_s", None):
        assert wait == error.retry_after_s

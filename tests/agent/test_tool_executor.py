from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tenure.agent import (
    AsyncToolExecutor,
    Deadline,
    Prompt,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionContext,
    ToolExecutor,
    ToolResult,
)
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import ManualClock, SystemClock
from tenure.errors import ConfigurationError, LeaseLostError, Permanent, ResourceMissingError, RetryAfter


@dataclass(frozen=True)
class Args:
    n: int = 0


def a_tool(handler: Callable[..., Any], **settings: Any) -> Tool[Any, Any]:
    return Tool("it", "Does it.", Args, handler, **settings)


CALL = ToolCall("c1", "it", '{"n": 1}')


def a_context(clock: Any = None, heartbeat: Heartbeat | None = None) -> ToolExecutionContext:
    clock = clock or ManualClock()
    heartbeat = heartbeat or Heartbeat(clock=clock)
    return ToolExecutionContext(Prompt[str]("p", "x"), Session(), heartbeat=heartbeat, clock=clock)


def run(
    handler: Callable[..., Any], context: ToolExecutionContext, call: ToolCall = CALL, **settings: Any
) -> ToolResult[Any]:
    return ToolExecutor([a_tool(handler, **settings)]).execute(call, context=context)


def beats(context: ToolExecutionContext) -> int:
    assert context.heartbeat is not None
    return context.heartbeat.count


def test_it_beats_before_and_after() -> None:
    context = a_context()
    seen: list[int] = []

    def handler(params: Args, *, context: ToolContext) -> ToolResult[int]:
        assert context.heartbeat is not None
        seen.append(context.heartbeat.count)
        return ToolResult.ok(params.n)

    assert run(handler, context) == ToolResult.ok(1)
    assert (seen, beats(context)) == ([1], 2)


def test_the_same_call_with_the_same_result_again_is_no_beat_and_a_new_result_is_one() -> None:
    context = a_context()
    results = iter([1, 1, 2])
    handler = lambda params, *, context: ToolResult.ok(next(results))  # noqa: E731
    run(handler, context)
    assert beats(context) == 2
    run(handler, context, ToolCall("c2", "it", '{ "n":1 }'))
    assert beats(context) == 2
    run(handler, context, ToolCall("c3", "it", '{"n":1}'))
    assert beats(context) == 3


def failing(how: str) -> Callable[..., Any]:
    def handler(params: Args, *, context: ToolContext) -> Any:
        context.session.set("half", "done")
        if how == "raises":
            raise KeyError("gone")
        return ToolResult.error("no") if how == "says so" else 5 if how == "wrong type" else ToolResult.ok(object())

    return handler


@pytest.mark.parametrize("promise", [None, 5.0])
@pytest.mark.parametrize("error", [Permanent("no such order"), RetryAfter(60)])
def test_a_tool_that_knows_about_retries_ends_the_work_and_the_model_is_not_asked(
    error: Exception, promise: float | None
) -> None:
    def handler(params: Args, *, context: ToolContext) -> Any:
        context.session.set("half", "done")
        raise error

    context = a_context(SystemClock())
    with pytest.raises(type(error)):
        run(handler, context, beat_every_s=promise)
    with pytest.raises(type(error)):
        asyncio.run(AsyncToolExecutor([a_tool(handler, beat_every_s=promise)]).execute(CALL, context=context))
    assert context.session.state == {}


@pytest.mark.parametrize("promise", [None, 5.0])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "KeyError: 'gone'"),
        ("says so", "no"),
        ("wrong type", "tool 'it' returned a int, not a ToolResult"),
        (
            "not JSON",
            "what tool 'it' returned cannot be written as JSON: Encoding objects of type object is unsupported",
        ),
    ],
)
def test_a_failed_tool_is_an_answer_and_the_session_is_as_before(how: str, message: str, promise: float | None) -> None:
    context = a_context(SystemClock())
    context.session.set("before", 1)
    result = run(failing(how), context, beat_every_s=promise)
    assert (result.success, result.message) == (False, message)
    assert context.session.state == {"before": 1}
    again = asyncio.run(AsyncToolExecutor([a_tool(failing(how), beat_every_s=promise)]).execute(CALL, context=context))
    assert (again.success, again.message, context.session.state) == (False, message, {"before": 1})


@pytest.mark.parametrize("promise", [None, 5.0])
def test_what_a_good_tool_keeps_in_the_session_stays(promise: float | None) -> None:
    context = a_context(SystemClock())

    def handler(params: Args, *, context: ToolContext) -> ToolResult[int]:
        context.session.set("n", params.n)
        return ToolResult.ok(0)

    run(handler, context, beat_every_s=promise)
    assert context.session.state == {"n": 1}


def test_unknown_tools_and_arguments_that_do_not_fit_are_told_to_the_model() -> None:
    context = a_context()
    handler = lambda params, *, context: ToolResult.ok(0)  # noqa: E731
    assert run(handler, context, ToolCall("c", "else")).message == "there is no tool 'else'; there are ['it']"
    assert "`int`" in run(handler, context, ToolCall("c", "it", '{"n":"x"}')).message
    assert "truncated" in run(handler, context, ToolCall("c", "it", '{"n":')).message


def test_a_lost_lease_ends_the_work_and_is_no_answer() -> None:
    context = a_context()
    assert context.heartbeat is not None
    heartbeat = context.heartbeat

    def handler(params: Args, *, context: ToolContext) -> ToolResult[int]:
        context.session.set("half", "done")
        heartbeat.interrupt(LeaseLostError("m", "gone"))
        context.beat()
        return ToolResult.ok(0)

    with pytest.raises(LeaseLostError):
        run(handler, context)
    assert context.session.state == {}


def test_a_lost_lease_reaches_a_tool_on_its_leash_too() -> None:
    context = a_context(SystemClock())
    heartbeat = context.heartbeat
    assert heartbeat is not None

    def handler(params: Args, *, context: ToolContext) -> ToolResult[int]:
        heartbeat.interrupt(LeaseLostError("m", "gone"))
        context.beat()
        return ToolResult.ok(0)

    with pytest.raises(LeaseLostError):
        ToolExecutor([a_tool(handler, beat_every_s=5)]).execute(CALL, context=context)


def test_a_tool_that_beats_less_often_than_it_declared_is_given_up_and_cut_off() -> None:
    clock = ManualClock()
    context = a_context(clock)
    let_go, after = threading.Event(), list[BaseException]()

    def handler(params: Args, *, context: ToolContext) -> ToolResult[int]:
        context.beat()
        let_go.wait(60)
        context.session.set("too", "late")
        try:
            context.beat()
        except Exception as error:
            after.append(error)
            raise
        return ToolResult.ok(0)

    answer: list[ToolResult[Any]] = []
    waiting = threading.Thread(target=lambda: answer.append(run(handler, context, beat_every_s=30)))
    waiting.start()
    clock.until_waiting()
    clock.advance(30)
    waiting.join(60)
    assert answer[0].message == (
        "ToolSilentError: tool 'it' was silent for 30.0 s and had declared a beat every 30 s. "
        "Beat more often inside the tool, or declare a longer beat_every_s"
    )
    counted = beats(context)
    let_go.set()
    _until(lambda: bool(after))
    assert "was silent" in str(after[0])
    assert (beats(context), context.session.state) == (counted, {})


def test_a_tool_that_keeps_its_promise_may_run_for_as_long_as_it_likes() -> None:
    clock = ManualClock()
    context = a_context(clock)
    turn, done = threading.Semaphore(0), threading.Semaphore(0)

    def handler(params: Args, *, context: ToolContext) -> ToolResult[int]:
        for _ in range(10):
            turn.acquire(timeout=60)
            context.beat()
            done.release()
        return ToolResult.ok(7)

    answer: list[ToolResult[Any]] = []
    waiting = threading.Thread(target=lambda: answer.append(run(handler, context, beat_every_s=30)))
    waiting.start()
    for _ in range(10):
        clock.until_waiting()
        clock.advance(20)
        turn.release()
        assert done.acquire(timeout=60)
    waiting.join(60)
    assert (answer[0].value, beats(context)) == (7, 12)


def test_a_leashed_tool_is_given_up_at_the_deadline() -> None:
    clock = ManualClock()
    context = replace(a_context(clock), deadline=Deadline.after(10, clock))
    let_go = threading.Event()
    handler = lambda params, *, context: let_go.wait(60)  # noqa: E731
    answer: list[ToolResult[Any]] = []
    waiting = threading.Thread(target=lambda: answer.append(run(handler, context, beat_every_s=30)))
    waiting.start()
    clock.until_waiting()
    clock.advance(10)
    waiting.join(60)
    let_go.set()
    assert answer[0].message == "AgentError: tool 'it' was given up: the deadline is over"


def test_an_async_tool_that_breaks_its_promise_is_cancelled() -> None:
    context = a_context(SystemClock())
    ended: list[str] = []

    async def handler(params: Args, *, context: ToolContext) -> ToolResult[int]:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return ToolResult.ok(0)

    async def main() -> ToolResult[Any]:
        result = await AsyncToolExecutor([a_tool(handler, beat_every_s=0.05)]).execute(CALL, context=context)
        await asyncio.sleep(0)
        return result

    assert "ToolSilentError" in asyncio.run(main()).message
    assert ended == ["cancelled"]


def test_a_sync_tool_does_not_hold_up_the_event_loop() -> None:
    context = a_context(SystemClock())
    go = threading.Event()
    handler = lambda params, *, context: ToolResult.ok(go.wait(60))  # noqa: E731

    async def main() -> ToolResult[Any]:
        call = asyncio.ensure_future(AsyncToolExecutor([a_tool(handler)]).execute(CALL, context=context))
        await asyncio.sleep(0.01)
        go.set()  # the loop runs while the tool waits
        return await call

    assert asyncio.run(main()).value is True


def test_an_async_tool_needs_an_async_adapter() -> None:
    async def handler(params: Args, *, context: ToolContext) -> ToolResult[int]:
        return ToolResult.ok(params.n)

    with pytest.raises(ConfigurationError, match="is async"):
        run(handler, a_context())
    assert asyncio.run(AsyncToolExecutor([a_tool(handler)]).execute(CALL, context=a_context(SystemClock()))).value == 1


def test_a_resource_that_nobody_provided_is_named() -> None:
    handler = lambda params, *, context: context.resources.get(Args)  # noqa: E731
    result = run(handler, a_context())
    assert result.message.startswith(
        f"{ResourceMissingError.__name__}: no Args was provided. Put it into the resources"
    )


def _until(done: Callable[[], bool]) -> None:
    clock = SystemClock()
    until = clock.monotonic() + 10
    while not done():
        assert clock.monotonic() < until
        clock.sleep(0.001)


@pytest.mark.parametrize(
    "arguments", ['{"x": ' + "[" * 100_000, '{"n": "\ud800"}', '{"n": 1'], ids=["without end", "half", "cut off"]
)
def test_arguments_that_no_parser_reads_are_told_to_the_model(arguments: str) -> None:
    """A model wrote them, so they end neither its turn nor its job."""
    told = run(lambda params, *, context: ToolResult.ok(params.n), a_context(), ToolCall("c1", "it", arguments))
    assert "the arguments do not fit" in told.text()

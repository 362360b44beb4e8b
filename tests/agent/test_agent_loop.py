from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenure.agent import (
    AsyncMainLoop,
    Budget,
    Deadline,
    InnerLoopConfig,
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    Prices,
    Prompt,
    Section,
    Session,
    StopReason,
    Tool,
    ToolContext,
    ToolResult,
    Visibility,
    open_session,
    tool,
)
from tenure.clock import ManualClock
from tenure.engines import Engine
from tenure.engines.urls import open_engine
from tenure.errors import LimitError, RetryAfter
from tenure.testing import AsyncScriptedAdapter, FakeMailbox, ScriptedAdapter
from tenure.testing.model import calls, says
from tenure.work import DeadLetterPolicy, Ending, OnLeaseLost


@dataclass(frozen=True)
class Ask:
    text: str


@dataclass(frozen=True)
class Step:
    n: int


def numbered(handler: Callable[[int, ToolContext], Any]) -> Tool[Any, Any]:
    def run(params: Step, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(handler(params.n, context))

    return Tool("step", "Do a step.", Step, run)


class Agent(MainLoop[Ask, str]):
    tools: tuple[Tool[Any, Any], ...] = ()
    script: ScriptedAdapter
    sections: tuple[Section, ...] = ()
    folder: Path | None = None
    kept: MainLoopResult[str] | None = None

    def prepare(self, request: Ask) -> tuple[Prompt[str], Session]:
        session = Session() if self.folder is None else open_session(self.folder / "session.jsonl", durable=False)
        if not session.resumed:
            session.set("asked", request.text)
        return Prompt("agent", request.text, tools=self.tools, sections=self.sections), session

    def finalize(self, prompt: Prompt[str], session: Session) -> None:
        self.final_state = dict(session.state)

    def discarded(self, message: Any, result: MainLoopResult[str]) -> None:
        super().discarded(message, result)
        self.kept = result


class Rig:
    """An engine on a manual clock, with requests and replies."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.engine: Engine = open_engine(url, self.clock)
        self.requests = self.engine.mailbox("requests", MainLoopRequest[Ask], MainLoopResult[str])
        self.replies = self.engine.mailbox("replies", MainLoopResult[str])

    def loop(self, lines: Any, *tools: Tool[Any, Any], config: MainLoopConfig | None = None, **settings: Any) -> Agent:
        adapter = ScriptedAdapter(
            lines, loop=InnerLoopConfig(clock=self.clock, model_silence_s=10), prices=settings.pop("prices", None)
        )
        loop = Agent(adapter=adapter, requests=self.requests, config=config, clock=self.clock, **settings)
        loop.tools, loop.script = tools, adapter
        return loop

    def ask(self, **given: Any) -> None:
        self.requests.send(MainLoopRequest(Ask("go"), "r1", **given), reply_to=self.replies)

    def reply(self) -> MainLoopResult[str]:
        (message,) = self.replies.receive()
        assert isinstance(message.body, MainLoopResult)
        return message.body


@pytest.fixture(params=["memory", "sqlite"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/work.db")
    yield rig
    rig.engine.close()


def test_an_agent_of_30_tool_calls_on_a_lease_a_tenth_of_its_length_is_delivered_once(rig: Rig) -> None:
    others = rig.engine.mailbox("requests", MainLoopRequest[Ask], MainLoopResult[str])
    stolen: list[Any] = []

    def ten_seconds(n: int, context: ToolContext) -> int:
        rig.clock.advance(10)
        stolen.extend(others.receive())  # somebody else is always ready to take it
        return n

    lines = [calls(("step", {"n": n})) for n in range(30)]
    loop = rig.loop([*lines, "done"], numbered(ten_seconds))
    rig.ask()
    begun = rig.clock.monotonic()
    loop.run(max_iterations=1, visibility_timeout=30, wait_time_seconds=0)
    assert rig.clock.monotonic() - begun == 300
    reply = rig.reply()
    assert (stolen, reply.output, reply.tool_calls) == ([], "done", 30)
    assert loop.endings[Ending.DONE] == 1
    assert rig.requests.approximate_count() == 0


def test_one_that_hangs_is_redelivered_resumed_from_its_session_and_finished_once(rig: Rig) -> None:
    hung, let_go = threading.Event(), threading.Event()
    ran: list[tuple[str, int]] = []

    def hangs_at_3(n: int, context: ToolContext) -> int:
        ran.append(("first", n))
        if n == 3:
            hung.set()
            let_go.wait(30)
        rig.clock.advance(5)
        return n

    lines = [calls(("step", {"n": n})) for n in range(5)]
    first = rig.loop([*lines, "done by the first"], numbered(hangs_at_3))
    second_requests: list[Any] = []

    def well(n: int, context: ToolContext) -> int:
        ran.append(("second", n))
        return n

    second = rig.loop([lines[4], "done by the second"], numbered(well))
    second_requests = second.script.requests
    rig.ask()
    worker = threading.Thread(target=lambda: first.run(max_iterations=1, visibility_timeout=30, wait_time_seconds=0))
    worker.start()
    assert hung.wait(30)
    assert rig.requests.depth().leased == 1
    rig.clock.advance(30)
    second.run(max_iterations=1, visibility_timeout=30, wait_time_seconds=0)
    let_go.set()
    worker.join(30)
    assert ran == [("first", 0), ("first", 1), ("first", 2), ("first", 3), ("second", 3), ("second", 4)] + (
        [("first", 4)] if ("first", 4) in ran else []
    )
    assert len(second_requests[0].turns) == 9, "the request, and four calls with their answers"
    reply = rig.reply()
    assert (reply.output, reply.tool_calls) == ("done by the second", 5)
    assert (first.endings[Ending.LOST], second.endings[Ending.DONE]) == (1, 1)
    assert first.kept is not None, "the result of the lost delivery is told apart"
    assert (first.kept.ok, first.kept.lease_lost is not None) == (False, True)
    assert rig.replies.receive() == []


def test_one_that_spins_is_stopped_with_the_reason(rig: Rig) -> None:
    loop = rig.loop([calls(("step", {"n": 1}))] * 50, numbered(lambda n, context: "still pending"))
    rig.ask()
    loop.run(max_iterations=1, wait_time_seconds=0)
    reply = rig.reply()
    assert reply.stop is StopReason.SPINNING
    assert reply.error == ('spinning: 5 turns in a row without progress: step({"n":1}) -> still pending, 5 times again')
    assert reply.tool_calls == 6


def test_a_spinning_agent_loses_a_short_lease_even_before_it_is_stopped(rig: Rig) -> None:
    def slow(n: int, context: ToolContext) -> str:
        rig.clock.advance(20)
        return "still pending"

    loop = rig.loop([calls(("step", {"n": 1}))] * 50, numbered(slow))
    rig.ask()
    loop.run(max_iterations=1, visibility_timeout=30, wait_time_seconds=0)
    assert loop.endings[Ending.LOST] == 1
    assert rig.requests.depth().ready == 1


def test_a_request_with_deadline_and_budget_survives_the_engine(rig: Rig) -> None:
    sent = MainLoopRequest(Ask("go"), "r1", Deadline(1_700_000_123.5), Budget(max_total_tokens=5, max_cost=0.5))
    rig.requests.send(sent)
    (message,) = rig.requests.receive()
    assert message.body == sent


def test_a_budget_of_the_request_is_kept_over_a_redelivery(rig: Rig) -> None:
    rig.ask(budget=Budget(max_total_tokens=30))
    failing = rig.loop(
        [calls(("step", {"n": 1})), ConnectionError("gone")],
        numbered(lambda n, context: n),
        dead_letters=DeadLetterPolicy(),
    )
    failing.run(max_iterations=1, wait_time_seconds=0)
    rig.clock.advance(10)
    again = rig.loop([calls(("step", {"n": 2}))], numbered(lambda n, context: n))
    again.run(max_iterations=1, wait_time_seconds=0)
    assert rig.reply().error == "budget: the budget is used up: tokens 30 of 30"


def test_the_deadline_of_the_request_wins_over_the_loops(rig: Rig) -> None:
    config = MainLoopConfig(deadline=Deadline.after(0, rig.clock))
    rig.ask(deadline=Deadline.after(60, rig.clock))
    rig.loop(["done"], config=config).run(max_iterations=1, wait_time_seconds=0)
    assert rig.reply().output == "done"
    rig.ask()
    rig.loop([], config=config).run(max_iterations=1, wait_time_seconds=0)
    assert rig.reply().stop is StopReason.DEADLINE


def test_a_budget_of_money_uses_the_prices_of_the_adapter(rig: Rig) -> None:
    rig.ask(budget=Budget(max_cost=0.0001))
    loop = rig.loop([calls(("step", {"n": 1}))], numbered(lambda n, context: n), prices=Prices(input=10, output=10))
    loop.run(max_iterations=1, wait_time_seconds=0)
    assert rig.reply().error == "budget: the budget is used up: cost 0.00015 of 0.0001"


def test_with_a_dead_letter_policy_a_failure_is_tried_again_and_then_given_up(rig: Rig) -> None:
    rig.ask()
    loop = rig.loop([OSError("a"), OSError("b")], dead_letters=DeadLetterPolicy(max_delivery_count=2))
    loop.run(max_iterations=1, wait_time_seconds=0)
    rig.clock.advance(10)
    loop.run(max_iterations=1, wait_time_seconds=0)
    (message,) = rig.replies.receive()
    assert message.failure is not None
    assert "failed in attempt 2 of 2: OSError: b" in message.failure.reason


def test_a_tool_that_asks_for_a_rest_has_the_request_come_again_from_its_session(rig: Rig) -> None:
    def busy_once(n: int, context: ToolContext) -> int:
        if not asked:
            asked.append(n)
            raise RetryAfter(300)
        return n

    asked: list[int] = []
    rig.ask()
    rig.loop([calls(("step", {"n": 1}))], numbered(busy_once)).run(max_iterations=1, wait_time_seconds=0)
    assert rig.replies.receive() == []
    rig.clock.advance(299)
    assert rig.requests.receive() == []
    rig.clock.advance(2)
    rig.loop(["done"], numbered(busy_once)).run(max_iterations=1, wait_time_seconds=0)
    reply = rig.reply()
    assert (reply.output, reply.tool_calls) == ("done", 1)


DETAILS = Section("details", "Details", "The secret is 7.", summary="Ask.", visibility=Visibility.SUMMARY)


def test_sections_that_the_model_asks_for_are_opened_within_one_request(rig: Rig) -> None:
    loop = rig.loop([calls(("open_sections", {"keys": ["details"]})), "7"])
    loop.sections = (DETAILS,)
    rig.ask()
    loop.run(max_iterations=1, wait_time_seconds=0)
    assert rig.reply().output == "7"
    assert "The secret is 7." in loop.script.requests[1].system


def test_expansions_have_a_limit(rig: Rig) -> None:
    loop = rig.loop([calls(("open_sections", {"keys": ["details"]}))], config=MainLoopConfig(max_expansions=0))
    loop.sections = (DETAILS,)
    rig.ask()
    loop.run(max_iterations=1, wait_time_seconds=0)
    error = rig.reply().error
    assert error is not None
    assert error.startswith("the model asked 1 times to see more of its prompt")


def test_with_cancel_a_lost_lease_ends_the_work_at_its_next_beat(rig: Rig) -> None:
    def slow(n: int, context: ToolContext) -> int:
        rig.clock.advance(31)
        context.beat()
        raise AssertionError("the beat should have raised")

    loop = rig.loop([calls(("step", {"n": 1}))], numbered(slow), on_lease_lost=OnLeaseLost.CANCEL)
    rig.ask()
    loop.run(max_iterations=1, visibility_timeout=30, wait_time_seconds=0)
    assert loop.endings[Ending.LOST] == 1
    assert rig.replies.receive() == []


def test_a_session_on_disk_that_is_ahead_of_the_checkpoint_is_used(rig: Rig, tmp_path: Path) -> None:
    rig.ask()
    step = numbered(lambda n, context: n)
    failing = rig.loop([calls(("step", {"n": 1})), OSError("x")], step, dead_letters=DeadLetterPolicy())
    failing.folder = tmp_path
    failing.run(max_iterations=1, wait_time_seconds=0)
    rig.clock.advance(10)
    again = rig.loop(["done"], step)
    again.folder = tmp_path
    again.run(max_iterations=1, wait_time_seconds=0)
    assert (rig.reply().tool_calls, again.final_state) == (1, {"asked": "go"})


def test_the_same_words_in_another_request_on_a_session_on_disk_are_asked_again(rig: Rig, tmp_path: Path) -> None:
    for request_id, answer in (("r1", "first"), ("r2", "second")):
        rig.requests.send(MainLoopRequest(Ask("go on"), request_id), reply_to=rig.replies)
        loop = rig.loop([answer])
        loop.folder = tmp_path
        loop.run(max_iterations=1, wait_time_seconds=0)
        assert rig.reply().output == answer
        rig.clock.advance(400)  # the reply that was read comes again: it was not acknowledged
        rig.replies.purge()


def test_a_session_that_outgrows_a_checkpoint_is_said_so_and_the_work_goes_on(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    loop = rig.loop([calls(("step", {"n": 1})), "done"], numbered(lambda n, context: "x" * 600_000))
    rig.ask()
    loop.run(max_iterations=1, wait_time_seconds=0)
    assert rig.reply().output == "done"
    assert [record for record in caplog.records if "more than a checkpoint may have" in record.getMessage()]


def test_execute_needs_no_mailbox(rig: Rig) -> None:
    response, session = rig.loop(["hello"]).execute(Ask("hi"))
    assert (response.output, session.get("asked")) == ("hello", "hi")


def test_a_mailbox_of_another_type_is_said_so() -> None:
    clock = ManualClock()
    untyped: FakeMailbox[Any, Any] = FakeMailbox(clock=clock)
    untyped.send(MainLoopRequest(Ask("x")))
    loop = Agent(adapter=ScriptedAdapter([]), requests=untyped, clock=clock)
    caplog_handler: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = caplog_handler.append  # type: ignore[method-assign]
    logging.getLogger("tenure.work.mailbox_loop").addHandler(handler)
    try:
        loop.run(max_iterations=1, wait_time_seconds=0)
    finally:
        logging.getLogger("tenure.work.mailbox_loop").removeHandler(handler)
    assert "not a MainLoopRequest" in str(caplog_handler[0].exc_info)


def test_a_negative_limit_of_expansions_is_refused() -> None:
    with pytest.raises(LimitError, match="max_expansions"):
        MainLoopConfig(max_expansions=-1)


class AsyncAgent(AsyncMainLoop[Ask, str]):
    tools: tuple[Tool[Any, Any], ...] = ()

    async def prepare(self, request: Ask) -> tuple[Prompt[str], Session]:
        await asyncio.sleep(0)
        return Prompt("agent", request.text, tools=self.tools), Session()


@tool
async def step(params: Step, *, context: ToolContext) -> ToolResult[int]:
    """Do a step."""
    await asyncio.sleep(0)
    context.beat()
    return ToolResult.ok(params.n)


def test_an_async_loop_runs_async_tools_and_is_delivered_once(rig: Rig) -> None:
    lines = [calls(("step", {"n": n})) for n in range(3)]
    loop = AsyncAgent(adapter=AsyncScriptedAdapter([*lines, "done"]), requests=rig.requests, clock=rig.clock)
    loop.tools = (step,)
    rig.ask()
    loop.run(max_iterations=1, wait_time_seconds=0)
    reply = rig.reply()
    assert (reply.output, reply.tool_calls, loop.endings[Ending.DONE]) == ("done", 3, 1)


def test_an_async_loop_resumes_from_its_session(rig: Rig) -> None:
    rig.ask()
    adapter = AsyncScriptedAdapter([calls(("step", {"n": 1})), OSError("x")])
    failing = AsyncAgent(adapter=adapter, requests=rig.requests, clock=rig.clock, dead_letters=DeadLetterPolicy())
    failing.tools = (step,)
    failing.run(max_iterations=1, wait_time_seconds=0)
    rig.clock.advance(10)
    again = AsyncAgent(adapter=AsyncScriptedAdapter([says("done")]), requests=rig.requests, clock=rig.clock)
    again.run(max_iterations=1, wait_time_seconds=0)
    assert rig.reply().tool_calls == 1

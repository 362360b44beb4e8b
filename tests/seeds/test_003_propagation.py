"""Document 003, "Heartbeat Propagation", "MainLoop Integration", "Automatic Beating in Adapters", and the tests that need an adapter.

The manual clock stands where the document sleeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, fields
from inspect import signature
from typing import Any, cast

import pytest

from tenure.agent import (
    BudgetTracker,
    Deadline,
    InnerLoopConfig,
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    Prompt,
    PromptResponse,
    ProviderAdapter,
    Resources,
    Session,
    ToolContext,
    ToolResult,
    VisibilityExpansionRequired,
    tool,
)
from tenure.agent.prompt import OutputT
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtenderConfig
from tenure.clock import ManualClock
from tenure.engines.memory import InMemoryMailbox
from tenure.testing import FakeEngine, FakeMailbox, ScriptedAdapter
from tenure.testing.model import calls

mock_prompt = Prompt[str]("test", "Do it.")
mock_session = Session()


@dataclass(frozen=True)
class TestRequest:
    __test__ = False
    text: str = "Do it."


@dataclass(frozen=True)
class Step:
    number: int


clock = ManualClock()


@tool
def work(params: Step, *, context: ToolContext) -> ToolResult[int]:
    """Work for a while, with a beat in the middle."""
    clock.advance(0.2)
    context.beat()
    clock.advance(0.2)
    return ToolResult.ok(params.number)


class ToolHeavyLoop(MainLoop[TestRequest, str]):
    def prepare(self, request: TestRequest) -> tuple[Prompt[str], Session]:
        return Prompt("heavy", request.text, tools=(work,)), Session()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(clock)


@pytest.fixture
def mailbox(engine: FakeEngine) -> FakeMailbox[Any, Any]:
    box = engine.mailbox("requests", MainLoopRequest[TestRequest], MainLoopResult[str])
    assert isinstance(box, InMemoryMailbox)
    return box


# Testing


def test_tool_context_beat() -> None:
    """Verify ToolContext.beat() propagates to heartbeat."""
    clock = ManualClock()
    heartbeat = Heartbeat(clock=clock)
    context = ToolContext(
        prompt=mock_prompt,
        session=mock_session,
        heartbeat=heartbeat,
    )

    clock.advance(0.1)  # the document: time.sleep(0.1)
    assert heartbeat.elapsed() == pytest.approx(0.1)
    context.beat()

    assert heartbeat.elapsed() < 0.05  # Just beat, should be fresh


def test_mainloop_extends_during_tool_execution(mailbox: FakeMailbox[Any, Any]) -> None:
    """Verify MainLoop extends visibility when tools beat."""
    adapter_with_beating_tools = ScriptedAdapter([calls(("work", {"number": 1})), "done"])
    loop = ToolHeavyLoop(
        adapter=adapter_with_beating_tools,
        requests=mailbox,
        config=MainLoopConfig(
            lease_extender=LeaseExtenderConfig(interval=0.1),
            checkpoint_sessions=False,  # what the document counts are extensions by beats
        ),
        clock=clock,
    )

    mailbox.send(MainLoopRequest(request=TestRequest()))
    loop.run(max_iterations=1, visibility_timeout=2)

    # Extensions happened during tool execution
    assert mailbox.extend_visibility_call_count > 0
    assert mailbox.extend_visibility_call_count == 5, (
        "at once, in the middle of the tool, after it, and for two model calls"
    )
    assert mailbox.approximate_count() == 0


# ToolContext, ProviderAdapter, InnerLoopConfig, MainLoopConfig: the names, orders and defaults of the document


def test_a_tool_context_without_a_heartbeat_beats_into_the_void() -> None:
    ToolContext(prompt=mock_prompt, session=mock_session).beat()


def test_a_tool_context_is_frozen_and_has_the_documents_fields_first() -> None:
    context = ToolContext(mock_prompt, mock_session)
    assert [field.name for field in fields(context)][:4] == ["prompt", "session", "deadline", "heartbeat"]
    assert (context.deadline, context.heartbeat) == (None, None)
    with pytest.raises(FrozenInstanceError):
        context.heartbeat = Heartbeat()  # type: ignore[misc]


class DocumentsAdapter(ProviderAdapter[OutputT]):
    """An adapter with the document's signature, letter by letter."""

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,  # NEW
    ) -> PromptResponse[OutputT]:
        """Evaluate a prompt and return the response."""
        assert heartbeat is not None
        assert budget_tracker is not None
        return PromptResponse(prompt.name, "answered", cast(Any, "answered"))


def test_evaluate_is_the_documents_and_an_adapter_with_its_signature_answers_requests() -> None:
    assert signature(ProviderAdapter.evaluate) == signature(DocumentsAdapter.evaluate)
    mailbox: FakeMailbox[Any, Any] = FakeMailbox()
    loop = ToolHeavyLoop(adapter=DocumentsAdapter[str](), requests=mailbox, clock=clock)
    response, _ = loop.execute(TestRequest())
    assert response.output == "answered"


def test_the_inner_loops_config_has_the_documents_fields() -> None:
    config = InnerLoopConfig()
    assert [field.name for field in fields(config)][:3] == ["deadline", "budget_tracker", "heartbeat"]
    assert (config.deadline, config.budget_tracker, config.heartbeat) == (None, None, None)


def test_the_main_loops_config_has_the_documents_fields_and_defaults() -> None:
    config = MainLoopConfig()
    assert [field.name for field in fields(config)][:4] == ["deadline", "budget", "resources", "lease_extender"]
    assert (config.deadline, config.budget, config.resources) == (None, None, None)
    assert config.lease_extender == LeaseExtenderConfig()


def test_the_heartbeat_of_the_loop_reaches_the_adapter_and_the_tool(mailbox: FakeMailbox[Any, Any]) -> None:
    seen: list[Heartbeat | None] = []

    @tool
    def look(params: Step, *, context: ToolContext) -> ToolResult[str]:
        """Look at the heartbeat."""
        seen.append(context.heartbeat)
        return ToolResult.ok("")

    class Looking(ScriptedAdapter):
        def evaluate(self, *args: Any, **given: Any) -> Any:
            seen.append(given["heartbeat"])
            return super().evaluate(*args, **given)

    class Loop(ToolHeavyLoop):
        def prepare(self, request: TestRequest) -> tuple[Prompt[str], Session]:
            return Prompt("look", "x", tools=(look,)), Session()

    loop = Loop(adapter=Looking([calls(("look", {"number": 1})), "done"]), requests=mailbox, clock=clock)
    mailbox.send(MainLoopRequest(TestRequest()))
    loop.run(max_iterations=1)
    assert seen == [loop.heartbeat, loop.heartbeat]


@dataclass(frozen=True)
class ReadParams:
    path: str


@dataclass(frozen=True)
class ReadResult:
    content: str


@dataclass(frozen=True)
class ExecParams:
    command: str


@dataclass(frozen=True)
class ExecResult:
    output: str


class Filesystem:
    def read(self, path: str) -> str:
        return f"contents of {path}"


class PodmanContainer:
    def exec_stream(self, command: str) -> Iterator[str]:
        yield from (f"{command} says ", "hello")


def filesystem_read_handler(params: ReadParams, *, context: ToolContext) -> ToolResult[ReadResult]:
    """Read a file from the filesystem."""
    # Beat before potentially slow I/O
    context.beat()

    content = context.resources.get(Filesystem).read(params.path)

    return ToolResult.ok(ReadResult(content=content))


def podman_exec_handler(params: ExecParams, *, context: ToolContext) -> ToolResult[ExecResult]:
    """Execute a command in a container."""
    container = context.resources.get(PodmanContainer)
    output: list[str] = []  # the document leaves this line out

    # Beat periodically during long-running command
    for chunk in container.exec_stream(params.command):
        context.beat()
        output.append(chunk)

    return ToolResult.ok(ExecResult(output="".join(output)))


@pytest.mark.parametrize(
    ("handler", "params", "output", "beats"),
    [
        (filesystem_read_handler, ReadParams("a.txt"), ReadResult("contents of a.txt"), 1),
        (podman_exec_handler, ExecParams("ls"), ExecResult("ls says hello"), 2),
    ],
)
def test_the_documents_tool_handlers_run_as_printed(handler: Any, params: Any, output: object, beats: int) -> None:
    heartbeat = Heartbeat()
    resources = Resources({Filesystem: Filesystem(), PodmanContainer: PodmanContainer()})
    context = ToolContext(mock_prompt, mock_session, heartbeat=heartbeat, resources=resources)
    result = handler(params, context=context)
    assert (result.success, result.value, heartbeat.count) == (True, output, beats)


def test_run_has_the_lease_of_this_document_where_no_group_gives_it_another() -> None:
    """Document 003 has 300 s as the default of `MainLoop.run()`; document 004's 1800 s are the group's."""
    parameters = signature(MainLoop.run).parameters
    assert (parameters["visibility_timeout"].default, parameters["wait_time_seconds"].default) == (300, 30)
    assert LeaseExtenderConfig().extension == 300


class AsksToSeeMore(DocumentsAdapter[OutputT]):
    def __init__(self) -> None:
        self.seen: list[frozenset[str]] = []

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> PromptResponse[OutputT]:
        self.seen.append(frozenset(session.expanded))
        if len(self.seen) == 1:
            raise VisibilityExpansionRequired(("rules",), "it has to know them")
        return super().evaluate(prompt, session=session, budget_tracker=budget_tracker, heartbeat=heartbeat)


def test_a_wish_to_see_more_of_the_prompt_is_met_by_another_evaluation_and_finalize_comes_once() -> None:
    finalized: list[str] = []

    class Loop(ToolHeavyLoop):
        def finalize(self, prompt: Prompt[str], session: Session) -> None:
            finalized.append(prompt.name)

    adapter = AsksToSeeMore[str]()
    response, _ = Loop(adapter=adapter, requests=FakeMailbox(), clock=clock).execute(TestRequest())
    assert (response.output, adapter.seen, finalized) == ("answered", [frozenset(), frozenset({"rules"})], ["heavy"])


# MainLoop._handle_message: a result, an error as a result, and the extender detached in both


def test_an_exception_is_a_result_with_an_error_and_is_acknowledged(
    engine: FakeEngine, mailbox: FakeMailbox[Any, Any]
) -> None:
    replies: FakeMailbox[MainLoopResult[str], None] = engine.mailbox("replies", MainLoopResult[str])
    loop = ToolHeavyLoop(adapter=ScriptedAdapter([RuntimeError("no model")]), requests=mailbox, clock=clock)
    mailbox.send(MainLoopRequest(TestRequest(), "r1"), reply_to="replies")
    loop.run(max_iterations=1)
    (reply,) = replies.receive()
    assert (reply.body.request_id, reply.body.output, reply.body.error) == ("r1", None, "no model")
    assert mailbox.approximate_count() == 0


def test_a_result_has_request_output_and_session(engine: FakeEngine, mailbox: FakeMailbox[Any, Any]) -> None:
    replies: FakeMailbox[MainLoopResult[str], None] = engine.mailbox("replies", MainLoopResult[str])
    loop = ToolHeavyLoop(adapter=ScriptedAdapter(["the answer"]), requests=mailbox, clock=clock)
    mailbox.send(MainLoopRequest(TestRequest(), "r1"), reply_to="replies")
    loop.run(max_iterations=1)
    (reply,) = replies.receive()
    assert (reply.body.request_id, reply.body.output, reply.body.error) == ("r1", "the answer", None)
    assert reply.body.session_id is not None


def test_a_tool_that_does_not_beat_is_covered_by_the_executors_beats() -> None:
    """Migration path: automatic beating in ToolExecutor provides baseline coverage."""
    heartbeat = Heartbeat(clock=clock)

    @tool
    def quiet(params: Step, *, context: ToolContext) -> ToolResult[int]:
        """Never beats."""
        before.append(heartbeat.count)
        return ToolResult.ok(params.number)

    before: list[int] = []
    adapter = ScriptedAdapter([calls(("quiet", {"number": 1})), "done"])
    adapter.evaluate(Prompt[str]("q", "x", tools=(quiet,)), session=Session(), heartbeat=heartbeat)
    assert before[0] > 0
    assert heartbeat.count > before[0]

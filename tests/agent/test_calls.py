"""Model calls that a server never answers end in time: by the silence of their content, and from outside of the blocking read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.agent.unanswering_server import WAYS, UnansweringServer

from tenure.agent import (
    Deadline,
    InnerLoopConfig,
    ModelAdapter,
    ModelRequest,
    ModelRetry,
    ModelSaid,
    Prompt,
    Session,
    StopReason,
)
from tenure.agent.providers import AnthropicAdapter, AsyncAnthropicAdapter, AsyncOpenAIAdapter, OpenAIAdapter
from tenure.backoff import Retry
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import SystemClock
from tenure.errors import Cancelled, LeaseLostError, ProviderRateLimitedError, ProviderStalledError
from tenure.testing.model_server import ModelServer

ADAPTERS = {
    "openai": OpenAIAdapter,
    "openai-async": AsyncOpenAIAdapter,
    "anthropic": AnthropicAdapter,
    "anthropic-async": AsyncAnthropicAdapter,
}
PROMPT = Prompt[str]("p", "Say it.")
ONCE = ModelRetry(attempts=1)
AT_ONCE_S = 60.0
"""Under load a second may take longer. The calls here would otherwise last an hour."""


def evaluate(kind: str, url: str, *, silence_s: float, **given: Any) -> Any:
    loop = InnerLoopConfig(model_retry=ONCE, model_silence_s=silence_s)
    adapter: Any = ADAPTERS[kind]("m", base_url=url, api_key="none", loop=loop)
    if not kind.endswith("async"):
        return adapter.evaluate(PROMPT, session=Session(), **given)
    return asyncio.run(adapter.evaluate(PROMPT, session=Session(), **given))


@pytest.fixture(autouse=True, scope="module")
def loaded_sdks() -> None:
    """The first call of a process loads the SDK, which may take seconds under load: here, before anything is timed."""
    with ModelServer(["warm"] * len(ADAPTERS)) as server:
        for kind in ADAPTERS:
            evaluate(kind, server.url if kind.startswith("anthropic") else server.openai_url, silence_s=60)


def later(event: threading.Event, call: Callable[[], object]) -> threading.Thread:
    """Makes the call from another thread, after the event."""
    thread = threading.Thread(target=lambda: (event.wait(60), call()), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", list(ADAPTERS))
def test_a_call_without_content_ends_with_the_silence_whatever_keeps_its_connection_open(kind: str, way: str) -> None:
    clock = SystemClock()
    with UnansweringServer(way) as server:
        begun = clock.monotonic()
        with pytest.raises(ProviderStalledError):
            evaluate(kind, server.url, silence_s=0.5)
        assert 0.4 < clock.monotonic() - begun < AT_ONCE_S
        # Under load the silence may be over before the request is sent.
        assert not server.calls or server.hung_up.wait(AT_ONCE_S), "the provider must stop generating"


@pytest.mark.parametrize("way", ["comments", "pings", "silent after headers", "half-open"])
@pytest.mark.parametrize("kind", list(ADAPTERS))
@pytest.mark.parametrize("reason", [LeaseLostError("m", "gone"), Cancelled("cancelled")], ids=["lost", "cancelled"])
def test_an_interrupt_ends_the_call_from_outside_and_hangs_up(kind: str, way: str, reason: Exception) -> None:
    clock, heartbeat = SystemClock(), Heartbeat()
    with UnansweringServer(way) as server:
        later(server.asked, lambda: heartbeat.interrupt(reason))
        begun = clock.monotonic()
        with pytest.raises(type(reason)):
            evaluate(kind, server.url, silence_s=3_600, heartbeat=heartbeat)
        assert clock.monotonic() - begun < AT_ONCE_S
        assert server.hung_up.wait(AT_ONCE_S), "the provider must stop generating"
        assert server.calls == 1, "it is not made again"


@pytest.mark.parametrize("way", ["comments", "pings", "half-open"])
@pytest.mark.parametrize("kind", list(ADAPTERS))
def test_the_deadline_ends_the_call_from_outside_with_a_clear_result(kind: str, way: str) -> None:
    clock = SystemClock()
    with UnansweringServer(way) as server:
        begun = clock.monotonic()
        response = evaluate(kind, server.url, silence_s=3_600, deadline=Deadline.after(0.5))
        assert response.stop is StopReason.DEADLINE
        assert clock.monotonic() - begun < AT_ONCE_S
        assert not server.calls or server.hung_up.wait(AT_ONCE_S)


class Stuck(ModelAdapter[Any]):
    """An adapter whose call blocks in something that nobody can close."""

    def __init__(self, loop: InnerLoopConfig) -> None:
        super().__init__(loop=loop)
        self.called, self.release = threading.Event(), threading.Event()
        self.told: list[BaseException] = []

    def complete(self, request: ModelRequest, on_chunk: Any) -> ModelSaid:
        self.called.set()
        self.release.wait(60)
        try:
            on_chunk("too late")
        except BaseException as error:
            self.told.append(error)
            self.called.clear()
            raise
        return ModelSaid("too late")


def test_an_adapter_that_cannot_be_closed_is_left_behind_and_its_late_answer_counts_for_nothing() -> None:
    heartbeat = Heartbeat()
    adapter = Stuck(InnerLoopConfig(model_silence_s=3_600))
    later(adapter.called, lambda: heartbeat.interrupt(LeaseLostError("m", "gone")))
    with pytest.raises(LeaseLostError):
        adapter.evaluate(PROMPT, session=Session(), heartbeat=heartbeat)
    beats = heartbeat.count
    adapter.release.set()
    clock = SystemClock()
    while adapter.called.is_set():
        clock.sleep(0.01)
    assert isinstance(adapter.told[0], LeaseLostError), "its next piece is refused, so that it leaves its stream"
    assert heartbeat.count == beats


class Counting(Heartbeat):
    """Notes the threads that beat."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def beat(self, progress: float | None = None, note: str | None = None) -> None:
        self.threads.add(threading.get_ident())
        super().beat(progress, note)


class Talking(ModelAdapter[Any]):
    def complete(self, request: ModelRequest, on_chunk: Any) -> ModelSaid:
        for piece in ("one ", "two"):
            on_chunk(piece)
        return ModelSaid("one two")


def test_the_beats_of_a_streamed_answer_come_from_the_thread_of_the_work() -> None:
    heartbeat = Counting()
    assert Talking().evaluate(PROMPT, session=Session(), heartbeat=heartbeat).output == "one two"
    assert heartbeat.threads == {threading.get_ident()}


class Limited(ModelAdapter[Any]):
    def __init__(self, loop: InnerLoopConfig) -> None:
        super().__init__(loop=loop)
        self.called = threading.Event()

    def complete(self, request: ModelRequest, on_chunk: Any) -> ModelSaid:
        self.called.set()
        raise ProviderRateLimitedError(200)


def test_an_interrupt_ends_the_wait_before_the_next_call() -> None:
    heartbeat, clock = Heartbeat(), SystemClock()
    adapter = Limited(InnerLoopConfig(model_retry=ModelRetry(backoff=Retry(delay=0.01))))
    later(adapter.called, lambda: heartbeat.interrupt(LeaseLostError("m", "gone")))
    begun = clock.monotonic()
    with pytest.raises(LeaseLostError):
        adapter.evaluate(PROMPT, session=Session(), heartbeat=heartbeat)
    assert clock.monotonic() - begun < AT_ONCE_S

"""Makes one model call through a provider's official SDK.

A `Dialect` says how a provider's requests and streams look; the two adapters here make the call, sync and async, bound its waits, tell of each piece and
translate its failures. Leaving a stream, by its end or by an exception, closes its connection: the provider stops generating.

OpenAI and every server that speaks its chat format (vLLM, Ollama, llama.cpp by `base_url`), through the official SDK.

Anthropic, through the official SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Protocol

from tenure.agent.async_loops import AsyncModelAdapter
from tenure.agent.budget import Prices
from tenure.agent.evaluation import InnerLoopConfig, LoopSettings
from tenure.agent.events import ModelSaid
from tenure.agent.loops import ModelAdapter
from tenure.agent.model_call import ModelRequest, OnChunk
from tenure.agent.prompt import OutputT
from tenure.agent.providers.chat_format import ChatFold, chat_request
from tenure.agent.providers.failures import sdk, translated
from tenure.agent.providers.messages_format import MessagesFold, messages_request

_CONNECT_S = 10.0


class Fold(Protocol):
    """Puts an answer together from what is streamed."""

    def feed(self, event: Any) -> str:
        """Take one event; the new words in it, which are what is told of as progress."""

    def said(self) -> ModelSaid:
        """The whole answer. Raises `ProviderStreamError` when the stream ended before the answer did."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A provider: its SDK, and how it is spoken to."""

    sdk: str
    client: str
    async_client: str
    create: Callable[[Any], Callable[..., Any]]
    """Returns the method of a client that makes an answer."""
    arguments: Callable[[ModelRequest, str, dict[str, Any]], dict[str, Any]]
    fold: Callable[[], Fold]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Options that the provider demands, unless given."""


class _ThroughSdk(LoopSettings):
    """A client of the SDK, the model, and the options that go into every call."""

    dialect: ClassVar[Dialect]
    asynchronous: ClassVar[bool]

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        options: dict[str, Any] | None = None,
        loop: InnerLoopConfig | None = None,
        prices: Prices | None = None,
    ) -> None:
        super().__init__(loop=loop, prices=prices)
        self._sdk: ModuleType = sdk(self.dialect.sdk)
        self._client = client or self._connect({"base_url": base_url, "api_key": api_key})
        self._model, self._options = model, {**self.dialect.defaults, **(options or {})}

    def _connect(self, settings: dict[str, Any]) -> Any:
        kind = getattr(self._sdk, self.dialect.async_client if self.asynchronous else self.dialect.client)
        # Retries are ours: the SDK's own would neither beat nor know the deadline.
        return kind(max_retries=0, **{name: value for name, value in settings.items() if value is not None})

    def _call(self, request: ModelRequest) -> Any:
        """Begin the call; a stream, or what awaits one."""
        arguments = self.dialect.arguments(request, self._model, self._options)
        return self.dialect.create(self._client)(timeout=self._timeouts(request), **arguments)

    def _timeouts(self, request: ModelRequest) -> Any:
        """The longest wait for the next byte is what was declared as silence, and never beyond the deadline."""
        read = max(0.001, min(request.silence_s, request.remaining_s))
        return self._sdk.Timeout(connect=min(_CONNECT_S, read), read=read, write=read, pool=read)


class SdkAdapter(_ThroughSdk, ModelAdapter[OutputT]):
    """Streams answers through an SDK. `options` go into every call: temperature, limits of tokens, …"""

    asynchronous = False

    def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        fold = self.dialect.fold()
        with translated(), self._call(request) as stream:
            for event in stream:
                on_chunk(fold.feed(event))
        return fold.said()

    def close(self) -> None:
        self._client.close()


class AsyncSdkAdapter(_ThroughSdk, AsyncModelAdapter[OutputT]):
    """Streams answers from an event loop. Cancelling the task ends the call at once, also while nothing comes."""

    asynchronous = True

    async def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        fold = self.dialect.fold()
        with translated():
            async with await self._call(request) as stream:
                async for event in stream:
                    on_chunk(fold.feed(event))
        return fold.said()

    async def close(self) -> None:
        await self._client.close()


CHAT = Dialect(
    sdk="openai",
    client="OpenAI",
    async_client="AsyncOpenAI",
    create=lambda client: client.chat.completions.create,
    arguments=chat_request,
    fold=ChatFold,
)


class OpenAIAdapter(SdkAdapter[OutputT]):
    """Streams chat completions. `options` go into every call: temperature, max_completion_tokens, …"""

    dialect = CHAT


class AsyncOpenAIAdapter(AsyncSdkAdapter[OutputT]):
    """Streams chat completions from an event loop."""

    dialect = CHAT


MESSAGES = Dialect(
    sdk="anthropic",
    client="Anthropic",
    async_client="AsyncAnthropic",
    create=lambda client: client.messages.create,
    arguments=messages_request,
    fold=MessagesFold,
    defaults={"max_tokens": 8_192},
)


class AnthropicAdapter(SdkAdapter[OutputT]):
    """Streams messages. `options` go into every call; `max_tokens`, which the API demands, is 8,192 unless given."""

    dialect = MESSAGES


class AsyncAnthropicAdapter(AsyncSdkAdapter[OutputT]):
    """Streams messages from an event loop."""

    dialect = MESSAGES

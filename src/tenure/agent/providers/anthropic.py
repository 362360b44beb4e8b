"""Anthropic, through the official SDK."""

from __future__ import annotations

from typing import Any

from tenure.agent.adapter import ModelRequest, OnChunk
from tenure.agent.budget import Prices
from tenure.agent.events import ModelSaid
from tenure.agent.inner_loop import InnerLoopConfig
from tenure.agent.model_adapter import AsyncModelAdapter, ModelAdapter
from tenure.agent.prompt import OutputT
from tenure.agent.providers.clients import client_settings, timeouts
from tenure.agent.providers.failures import sdk, translated
from tenure.agent.providers.messages_format import MessagesFold, messages_request


class AnthropicAdapter(ModelAdapter[OutputT]):
    """Streams messages. `options` go into every call; `max_tokens`, which the API demands, is 8,192 unless given."""

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
        self._sdk = sdk("anthropic")
        self._client = client or self._sdk.Anthropic(**client_settings(base_url, api_key))
        self._model, self._options = model, {"max_tokens": 8_192, **(options or {})}

    def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        body = messages_request(request, self._model, self._options)
        fold = MessagesFold()
        with (
            translated(),
            self._client.messages.create(timeout=timeouts(self._sdk, request), **body) as stream,
        ):
            for chunk in stream:
                on_chunk(fold.feed(chunk))
        return fold.said()

    def close(self) -> None:
        self._client.close()


class AsyncAnthropicAdapter(AsyncModelAdapter[OutputT]):
    """The same in an event loop."""

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
        self._sdk = sdk("anthropic")
        self._client = client or self._sdk.AsyncAnthropic(**client_settings(base_url, api_key))
        self._model, self._options = model, {"max_tokens": 8_192, **(options or {})}

    async def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        body = messages_request(request, self._model, self._options)
        fold = MessagesFold()
        with translated():
            stream = await self._client.messages.create(timeout=timeouts(self._sdk, request), **body)
            async with stream:
                async for chunk in stream:
                    on_chunk(fold.feed(chunk))
        return fold.said()

    async def close(self) -> None:
        await self._client.close()

"""OpenAI and every server that speaks its chat format (vLLM, Ollama, llama.cpp by `base_url`), through the official SDK."""

from __future__ import annotations

from typing import Any

from tenure.agent.adapter import ModelRequest, OnChunk
from tenure.agent.budget import Prices
from tenure.agent.events import ModelSaid
from tenure.agent.inner_loop import InnerLoopConfig
from tenure.agent.model_adapter import AsyncModelAdapter, ModelAdapter
from tenure.agent.prompt import OutputT
from tenure.agent.providers.chat_format import ChatFold, chat_request
from tenure.agent.providers.clients import client_settings, timeouts
from tenure.agent.providers.failures import sdk, translated


class OpenAIAdapter(ModelAdapter[OutputT]):
    """Streams chat completions. `options` go into every call: temperature, max_completion_tokens, …"""

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
        self._sdk = sdk("openai")
        self._client = client or self._sdk.OpenAI(**client_settings(base_url, api_key))
        self._model, self._options = model, dict(options or {})

    def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        body = chat_request(request, self._model, self._options)
        fold = ChatFold()
        with (
            translated(),
            self._client.chat.completions.create(timeout=timeouts(self._sdk, request), **body) as stream,
        ):
            for chunk in stream:
                on_chunk(fold.feed(chunk))
        return fold.said()

    def close(self) -> None:
        self._client.close()


class AsyncOpenAIAdapter(AsyncModelAdapter[OutputT]):
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
        self._sdk = sdk("openai")
        self._client = client or self._sdk.AsyncOpenAI(**client_settings(base_url, api_key))
        self._model, self._options = model, dict(options or {})

    async def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        body = chat_request(request, self._model, self._options)
        fold = ChatFold()
        with translated():
            stream = await self._client.chat.completions.create(timeout=timeouts(self._sdk, request), **body)
            async with stream:
                async for chunk in stream:
                    on_chunk(fold.feed(chunk))
        return fold.said()

    async def close(self) -> None:
        await self._client.close()

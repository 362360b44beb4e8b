"""OpenAI and every server that speaks its chat format (vLLM, Ollama, llama.cpp by `base_url`), through the official SDK."""

from __future__ import annotations

from tenure.agent.prompt import OutputT
from tenure.agent.providers.chat_format import ChatFold, chat_request
from tenure.agent.providers.sdk_adapter import AsyncSdkAdapter, Dialect, SdkAdapter

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

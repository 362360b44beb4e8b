"""Anthropic, through the official SDK."""

from __future__ import annotations

from tenure.agent.prompt import OutputT
from tenure.agent.providers.messages_format import MessagesFold, messages_request
from tenure.agent.providers.sdk_adapter import AsyncSdkAdapter, Dialect, SdkAdapter

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

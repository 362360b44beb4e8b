"""Providers of models, with their official SDKs, imported when first used: `pip install tenure[openai]`, `tenure[anthropic]`."""

from typing import TYPE_CHECKING

from tenure.lazy import lazy_names

if TYPE_CHECKING:
    from tenure.agent.providers.adapters import AnthropicAdapter as AnthropicAdapter
    from tenure.agent.providers.adapters import AsyncAnthropicAdapter as AsyncAnthropicAdapter
    from tenure.agent.providers.adapters import AsyncOpenAIAdapter as AsyncOpenAIAdapter
    from tenure.agent.providers.adapters import OpenAIAdapter as OpenAIAdapter

__all__ = ["AnthropicAdapter", "AsyncAnthropicAdapter", "AsyncOpenAIAdapter", "OpenAIAdapter"]

__getattr__ = lazy_names(
    __name__,
    {"adapters": "AnthropicAdapter AsyncAnthropicAdapter AsyncOpenAIAdapter OpenAIAdapter"},
)

"""One model call through a provider's official SDK: what all of them share.

A `Dialect` says how a provider's requests and streams look; the two adapters here make the call, sync and async, bound its waits, tell of each piece and
translate its failures. Leaving a stream, by its end or by an exception, closes its connection: the provider stops generating.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Protocol

from tenure.agent.adapter import ModelRequest, OnChunk
from tenure.agent.budget import Prices
from tenure.agent.events import ModelSaid
from tenure.agent.inner_loop import InnerLoopConfig
from tenure.agent.model_adapter import AsyncModelAdapter, ModelAdapter
from tenure.agent.prompt import OutputT
from tenure.agent.providers.failures import sdk, translated

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
    """Of a client, the call that makes an answer."""
    arguments: Callable[[ModelRequest, str, dict[str, Any]], dict[str, Any]]
    fold: Callable[[], Fold]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Options that the provider demands, unless given."""


class _Line:
    """One client, one model, one set of options."""

    def __init__(self, dialect: Dialect, kind: str, model: str, settings: dict[str, Any]) -> None:
        self._dialect, self._model = dialect, model
        self._sdk: ModuleType = sdk(dialect.sdk)
        self.client = settings["client"] or getattr(self._sdk, kind)(**_client_settings(settings))
        self._options = {**dialect.defaults, **(settings["options"] or {})}

    def call(self, request: ModelRequest) -> Any:
        """Begin the call; a stream, or what awaits one."""
        arguments = self._dialect.arguments(request, self._model, self._options)
        return self._dialect.create(self.client)(timeout=self._timeouts(request), **arguments)

    def fold(self) -> Fold:
        return self._dialect.fold()

    def _timeouts(self, request: ModelRequest) -> Any:
        """The longest wait for the next byte is what was declared as silence, and never beyond the deadline."""
        read = max(0.001, min(request.silence_s, request.remaining_s))
        return self._sdk.Timeout(connect=min(_CONNECT_S, read), read=read, write=read, pool=read)


def _client_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Retries are ours: the SDK's own would neither beat nor know the deadline."""
    given = {name: settings[name] for name in ("base_url", "api_key") if settings[name] is not None}
    return {"max_retries": 0, **given}


class SdkAdapter(ModelAdapter[OutputT]):
    """Streams answers through an SDK. `options` go into every call: temperature, limits of tokens, …"""

    dialect: ClassVar[Dialect]

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
        settings = {"base_url": base_url, "api_key": api_key, "client": client, "options": options}
        self._line = _Line(self.dialect, self.dialect.client, model, settings)

    def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        fold = self._line.fold()
        with translated(), self._line.call(request) as stream:
            for event in stream:
                on_chunk(fold.feed(event))
        return fold.said()

    def close(self) -> None:
        self._line.client.close()


class AsyncSdkAdapter(AsyncModelAdapter[OutputT]):
    """The same in an event loop. Cancelling the task ends the call at once, also while nothing comes."""

    dialect: ClassVar[Dialect]

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
        settings = {"base_url": base_url, "api_key": api_key, "client": client, "options": options}
        self._line = _Line(self.dialect, self.dialect.async_client, model, settings)

    async def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        fold = self._line.fold()
        with translated():
            async with await self._line.call(request) as stream:
                async for event in stream:
                    on_chunk(fold.feed(event))
        return fold.said()

    async def close(self) -> None:
        await self._line.client.close()

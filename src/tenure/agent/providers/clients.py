"""What the clients of all SDKs are given: their own retries off, and bounds for every wait."""

from __future__ import annotations

from typing import Any

from tenure.agent.adapter import ModelRequest

_CONNECT_S = 10.0


def client_settings(base_url: str | None, api_key: str | None) -> dict[str, Any]:
    """Of a client. Retries are ours: the SDK's own would neither beat nor know the deadline."""
    given = {"base_url": base_url, "api_key": api_key}
    return {"max_retries": 0, **{name: value for name, value in given.items() if value is not None}}


def timeouts(sdk_module: Any, request: ModelRequest) -> Any:
    """The longest wait for the next byte is what was declared as silence, and never beyond the deadline."""
    read = max(0.001, min(request.silence_s, request.remaining_s))
    return sdk_module.Timeout(connect=min(_CONNECT_S, read), read=read, write=read, pool=read)

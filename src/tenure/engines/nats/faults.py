"""Translates the server's and the client's errors into ours, each with its remedy."""

from __future__ import annotations

from typing import Any

import nats.errors

from tenure.engines.urls import certificate_refused, certificate_remedy
from tenure.errors import (
    ConfigurationError,
    EngineCorruptError,
    EngineError,
    EngineFullError,
    EngineReadOnlyError,
    EngineRefusedError,
    EngineUnavailableError,
    TenureError,
)

# JetStream's own numbers of its errors
WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
NOT_FOUND = frozenset({10037, 10059})  # message, stream
PASSING = frozenset({10008, 10013})  # temporarily unavailable, its server is offline
_KINDS: dict[int, tuple[type[EngineError], str | None]] = {
    10023: (EngineFullError, "The servers have not enough resources for this stream: give JetStream more"),
    10047: (EngineFullError, "JetStream's storage is full: give it more, or remove old streams"),
    10074: (EngineRefusedError, "Fewer servers than ?replicas= asks for: add servers, or ask for fewer"),
    10005: (EngineRefusedError, "No server of the cluster can take this stream: add servers, or lower ?replicas="),
    10077: (EngineFullError, "A limit on this stream was reached: remove its max_bytes and max_msgs"),
    10028: (EngineFullError, "This account's memory is used up: raise its limits"),
    10002: (EngineFullError, "This account's resources are used up: raise its JetStream limits"),
    10039: (EngineRefusedError, "JetStream is not enabled for this account: enable it"),
    10076: (EngineRefusedError, "Start the server with JetStream: nats-server -js, or a jetstream block"),
    10059: (EngineCorruptError, "A stream of Tenure is gone: open the engine again to make it anew, or restore it"),
}


class ApiError(Exception):
    """JetStream answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.code: int = error.get("code", 0)
        self.number: int = error.get("err_code", 0)
        super().__init__(error.get("description", "no description"))


def is_lost(error: BaseException) -> bool:
    """Returns True when the server did not answer, so that asking again may help."""
    return isinstance(
        error,
        TimeoutError
        | OSError
        | nats.errors.TimeoutError
        | nats.errors.NoRespondersError
        | nats.errors.ConnectionClosedError
        | nats.errors.ConnectionReconnectingError
        | nats.errors.OutboundBufferLimitError
        | nats.errors.StaleConnectionError
        | nats.errors.NoServersError
        | nats.errors.UnexpectedEOF,
    )


def translate(error: BaseException, where: str, secrets: tuple[str, ...]) -> TenureError:
    """The error that a caller gets. No secret appears in it."""
    text = " ".join(str(error).split()).removeprefix("nats: ").rstrip(".") or type(error).__name__
    for secret in secrets:
        text = text.replace(secret, "***")
    fact = f"{where}: {text}"
    if isinstance(error, ApiError):
        kind, remedy = _KINDS.get(error.number, (EngineError, None))
        return kind(fact, remedy=remedy)
    if certificate_refused(text):
        return ConfigurationError(fact, remedy=certificate_remedy("?ca="))
    if isinstance(error, nats.errors.AuthorizationError) or "authorization violation" in text.lower():
        return ConfigurationError(fact, remedy="Check user, password, token or ?creds= in the URL or the environment")
    if "permissions violation" in text.lower():
        return EngineReadOnlyError(fact, remedy="Grant this user publish and subscribe on $JS.API.> and _INBOX.>")
    if is_lost(error):
        return EngineUnavailableError(fact)
    return EngineError(fact)

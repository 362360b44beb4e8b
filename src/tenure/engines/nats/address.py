"""From a `nats://` URL to settings, and from the errors of that server and of the client to ours, each with its remedy.

    nats://user:password@host:4222,host2:4222?replicas=3&namespace=tenure&timeout=5&creds=/path&ca=/path

Several servers stand in one URL, with commas between hosts or between whole URLs. Credentials may also come from the environment:
NATS_USER and NATS_PASSWORD, NATS_TOKEN, NATS_CREDS (a file). `tls://` asks for TLS; `ca`, `cert` and `key` name files.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import nats.errors

from tenure.engines.urls import Options, certificate_refused, certificate_remedy, redact, seconds, whole
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

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-]{0,31}")
_PORT = 4222


class NatsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in a URL. `replicas` 0 leaves streams as they are, and makes new ones with one replica."""

    shown: str
    """The URL without secrets."""
    secrets: tuple[str, ...]
    """To be taken out of whatever a server or a library says."""
    servers: list[str]
    login: dict[str, str]
    tls: dict[str, str] | None = None
    namespace: str = "tenure"
    replicas: int = 0
    timeout_s: float = 5.0
    compact_bytes: int = 8_388_608

    def __repr__(self) -> str:
        return f"NatsSettings({self.shown})"  # a settings object that is logged must not tell the password


def read_url(url: str, environment: Mapping[str, str] = os.environ) -> NatsSettings:
    main, _, query = url.partition("?")
    scheme = urlsplit(main.partition(",")[0]).scheme
    options = Options(f"{scheme}://{_hosts(main)[0][0]}?{query}" if query else f"{scheme}://{_hosts(main)[0][0]}")
    namespace = options.take("namespace", "tenure", _namespace, "1 to 32 letters, digits or '-'")
    replicas = options.take("replicas", 0, whole(1, 5), "a number of servers from 1 to 5")
    timeout_s = options.take("timeout", 5.0, seconds(0.1, 3_600), "a number of seconds from 0.1 to 3,600")
    compact = options.take("compact", 8_388_608, whole(4_096, 2**30), "a number of bytes from 4,096 to 1 GiB")
    files = {name: options.take(name, "", str, "a file") for name in ("creds", "ca", "cert", "key")}
    options.finish()
    hosts = _hosts(main)
    login = _login(next((user for _, user in hosts if user), ""), files["creds"], environment)
    tls = {name: files[name] for name in ("ca", "cert", "key")}
    return NatsSettings(
        shown=redact(f"{scheme}://{hosts[0][1] + '@' if hosts[0][1] else ''}{','.join(h for h, _ in hosts)}")
        + (f"?{redact(f'{scheme}://x?{query}').partition('?')[2]}" if query else ""),
        secrets=tuple(login[name] for name in ("password", "token") if login.get(name)),
        servers=[f"{scheme}://{host}" for host, _ in hosts],
        login=login,
        tls=tls if scheme == "tls" or any(tls.values()) else None,
        namespace=namespace,
        replicas=replicas,
        timeout_s=timeout_s,
        compact_bytes=compact,
    )


def _hosts(main: str) -> list[tuple[str, str]]:
    """Each server as (host:port, what stands before its @)."""
    found = []
    for part in main.split(","):
        netloc = urlsplit(part).netloc if "://" in part else part.strip("/")
        user, _, host = netloc.rpartition("@")
        if not host:
            raise ConfigurationError(f"{redact(main)} names no server", remedy="Write nats://host:4222")
        has_port = host.rpartition("]")[2].count(":") == 1
        found.append((host if has_port else f"{host}:{_PORT}", user))
    return found


def _login(user: str, creds: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the credentials for the server. A word without a colon is a token, as NATS has it."""
    name, colon, password = user.partition(":")
    if colon:
        return {"user": unquote(name), "password": unquote(password)}
    if name:
        return {"token": unquote(name)}
    if creds or environment.get("NATS_CREDS"):
        return {"user_credentials": creds or environment["NATS_CREDS"]}
    if environment.get("NATS_USER"):
        return {"user": environment["NATS_USER"], "password": environment.get("NATS_PASSWORD", "")}
    if environment.get("NATS_TOKEN"):
        return {"token": environment["NATS_TOKEN"]}
    return {}


def tls_context(settings: NatsSettings) -> dict[str, Any]:
    """Returns the TLS arguments of the client's `connect`."""
    if settings.tls is None:
        return {}
    try:
        context = ssl.create_default_context(cafile=settings.tls["ca"] or None)
        if settings.tls["cert"]:
            context.load_cert_chain(settings.tls["cert"], settings.tls["key"] or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"a TLS file of {settings.shown} cannot be used: {error}", remedy="Check ?ca=, ?cert= and ?key="
        ) from error
    return {"tls": context}


def _namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise ValueError(text)
    return text


# JetStream's own numbers of its errors
WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
NOT_FOUND = frozenset({10037, 10059})  # message, stream
PASSING = frozenset({10008, 10013})  # temporarily unavailable, its server is offline
_KINDS: dict[int, tuple[type[EngineError], str | None]] = {
    10023: (EngineFullError, "The servers have not enough resources for this stream: give JetStream more"),
    10049: (
        EngineUnavailableError,
        "The server cannot make this stream's files: see whether its disk is full or read-only",
    ),
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

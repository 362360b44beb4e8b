"""From a `redis://` or `rediss://` URL to settings.

    rediss://user:password@host:6379/0?namespace=tenure&wait=1&pool=10&timeout=30&ssl_ca_certs=/etc/ca.pem

The password may also come from REDIS_PASSWORD (and the user from REDIS_USERNAME), so that it need not stand in a URL.
"""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from tenure.engines.urls import Options, on_off, redact, seconds, whole
from tenure.errors import ConfigurationError

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,62}")
_TLS = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in a URL. `wait` is the number of replicas that must have a write before it is acknowledged."""

    shown: str
    """The URL without secrets."""
    secret: str
    """The password, to be taken out of whatever a server or a library says; empty when there is none."""
    connection: dict[str, Any]
    """For redis-py's connection."""
    tls: bool = False
    namespace: str = "tenure"
    wait: int = 0
    pool: int = 10
    timeout_s: float = 30.0

    def __repr__(self) -> str:
        return f"RedisSettings({self.shown})"  # a settings object that is logged must not tell the password

    @property
    def prefix(self) -> str:
        """The prefix of every key; the braces keep them in one slot."""
        return f"{{{self.namespace}}}:"


def read_url(url: str) -> RedisSettings:
    options = Options(url)
    namespace = options.take("namespace", "tenure", _namespace, "letters, digits, '.', '_' and '-', at most 63")
    wait = options.take("wait", 0, whole(0, 100), "a number of replicas from 0 to 100")
    pool = options.take("pool", 10, whole(1, 1_000), "a number of connections from 1 to 1,000")
    timeout_s = options.take("timeout", 30.0, seconds(0.1, 3_600), "a number of seconds from 0.1 to 3,600")
    parts = urlsplit(url)
    tls: dict[str, Any] = {}
    if parts.scheme == "rediss":
        tls = {name: value for name in _TLS if (value := options.take(name, "", str, "a path"))}
        tls["ssl_cert_reqs"] = options.take("ssl_cert_reqs", "required", _requirement, "required, optional or none")
        tls["ssl_check_hostname"] = options.take(
            "ssl_check_hostname", tls["ssl_cert_reqs"] != "none", on_off, "on or off"
        )
    options.finish()
    password = unquote(parts.password) if parts.password else os.environ.get("REDIS_PASSWORD") or None
    username = unquote(parts.username) if parts.username else os.environ.get("REDIS_USERNAME") or None
    connection = {
        "host": parts.hostname or "localhost",
        "port": _port(url),
        "db": _database(url, parts.path),
        "username": username if password else None,
        "password": password,
        "socket_timeout": timeout_s,
        # Half of what a call may take: then an attempt to connect ends before the call that waits for it gives up.
        "socket_connect_timeout": max(0.1, timeout_s / 2),
        "client_name": "tenure",
        "protocol": 2,
        **tls,
    }
    return RedisSettings(
        shown=redact(url),
        secret=password or "",
        connection=connection,
        tls=parts.scheme == "rediss",
        namespace=namespace,
        wait=wait,
        pool=pool,
        timeout_s=timeout_s,
    )


def _namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise ValueError(text)
    return text


def _requirement(text: str) -> str:
    if text not in ("required", "optional", "none"):
        raise ValueError(text)
    return text


def _port(url: str) -> int:
    try:
        return urlsplit(url).port or 6379
    except ValueError:
        raise ConfigurationError(f"{redact(url)} has a port that is not one", remedy="Use 1 to 65535") from None


def _database(url: str, path: str) -> int:
    text = path.strip("/")
    if not text:
        return 0
    if not text.isdecimal():
        raise ConfigurationError(
            f"{redact(url)} names a database {text!r} that is not a number", remedy="Write redis://host:6379/0"
        )
    return int(text)

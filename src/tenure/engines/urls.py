"""From a URL to an engine: its scheme, its options with errors that name them, what of it may be shown, and what TLS refused.

An engine is imported only when its scheme is asked for.

A password may stand in the URL. Everything that ends up in a log line, an error or a label goes through `redact`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, urlsplit

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.errors import ConfigurationError, EngineError
from tenure.machine import posix_module

if TYPE_CHECKING:
    from tenure.engines.contracts import Engine
    from tenure.randomness import Random

T = TypeVar("T")
_SECRETS = ("pass", "secret", "token", "key", "cred", "seed", "jwt")


def redact(url: str) -> str:
    """Returns the URL with passwords, tokens and keys replaced by `***`; of several URLs with commas, each."""
    if "," in url and url.count("://") > 1:
        return ",".join(redact(one) for one in url.split(","))
    parts = urlsplit(url)
    netloc = parts.netloc
    if "@" in netloc:
        user, _, host = netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        # NATS allows a token where others have a user name, so a lone word before the @ is hidden there too.
        shown = f"{name}:***" if colon else ("***" if parts.scheme in ("nats", "tls", "ws", "wss") else name)
        netloc = f"{shown}@{host}"
    query = "&".join(
        f"{name}={'***' if any(word in name.lower() for word in _SECRETS) else value}"
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    # Not urlunsplit: it drops the empty host of sqlite:///file.
    return f"{parts.scheme}://{netloc}{parts.path}{'?' if query else ''}{query}"


class Options:
    """The `?name=value` part of a URL. Take each known option, then `finish()` refuses what is left over."""

    def __init__(self, url: str) -> None:
        self._shown = redact(url)
        self._left: dict[str, str] = {}
        self._known: list[str] = []
        for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
            if name in self._left:
                raise ConfigurationError(f"{self._shown} gives {name} twice", remedy="Give it once")
            self._left[name] = value

    def take(self, name: str, default: T, convert: Callable[[str], T], allowed: str) -> T:
        """Returns the option's value, or the default. `convert` raises ValueError for what is not `allowed`."""
        self._known.append(name)
        if name not in self._left:
            return default
        value = self._left.pop(name)
        try:
            return convert(value)
        except ValueError:
            raise ConfigurationError(f"{name}={value} in {self._shown} is not {allowed}") from None

    def rest(self, known: Callable[[str], bool]) -> dict[str, str]:
        """Take everything that somebody else understands, e.g. the client library."""
        taken = {name: value for name, value in self._left.items() if known(name)}
        for name in taken:
            del self._left[name]
        return taken

    def finish(self) -> None:
        if self._left:
            raise ConfigurationError(
                f"{self._shown} has an option that nobody reads: {', '.join(sorted(self._left))}",
                remedy=f"The options are: {', '.join(sorted(self._known))}",
            )


def on_off(text: str) -> bool:
    words = {"on": True, "true": True, "1": True, "yes": True, "off": False, "false": False, "0": False, "no": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def whole(least: int, most: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return convert


def seconds(least: float, most: float) -> Callable[[str], float]:
    def convert(text: str) -> float:
        value = float(text)
        if not least <= value <= most:  # also refuses NaN
            raise ValueError(text)
        return value

    return convert


# scheme: (module, function, extra that brings its client)
ENGINES = {
    "memory": ("tenure.engines.memory", "open_memory", None),
    "sqlite": ("tenure.engines.sqlite", "open_sqlite", None),
    "postgresql": ("tenure.engines.postgres", "open_postgres", "postgres"),
    "postgres": ("tenure.engines.postgres", "open_postgres", "postgres"),
    "redis": ("tenure.engines.redis", "open_redis", "redis"),
    "rediss": ("tenure.engines.redis", "open_redis", "redis"),
    "nats": ("tenure.engines.nats", "open_nats", "nats"),
    "tls": ("tenure.engines.nats", "open_nats", "nats"),
}


def open_engine(url: str, clock: Clock, *, shared: bool = False) -> Engine:
    """Opens an engine. With `shared` it may use a connection together with other engines of this process: NATS would read its log for each."""
    scheme = urlsplit(url).scheme
    if scheme not in ENGINES:
        raise ConfigurationError(
            f"no engine for {scheme + '://' if scheme else 'a URL without a scheme'}",
            remedy="Use memory://, sqlite:///path/to/file.db, postgresql://, redis:// or nats://",
        )
    module, function, extra = ENGINES[scheme]
    try:
        found = posix_module(module, f"the {scheme} engine")
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("tenure"):
            raise
        raise ConfigurationError(
            f"the {scheme} engine needs the package {error.name!r}", remedy=f"pip install 'tenure[{extra}]'"
        ) from error
    engine: Engine = getattr(found, function)(url, clock, **({"shared": True} if shared and extra == "nats" else {}))
    return engine


class PatientOpening:
    """Opens the engine of a process that must not end because the engine is away: when both restart, one of them is first.

    It says once that it waits, then once in `SAY_EVERY_S`, and once that the wait is over. An error that no waiting mends is raised.
    """

    SAY_EVERY_S = 60.0

    def __init__(self, url: str, clock: Clock, random: Random, say: Callable[[str], None]) -> None:
        self._url, self._clock, self._say = url, clock, say
        self._backoff = Backoff(random, first_s=0.2, most_s=5.0)
        self._say_at = -math.inf
        self.pause_s = 0.0
        """The seconds to wait before the next attempt."""
        self.error: EngineError | None = None
        """The error of the last attempt."""

    def attempt(self) -> Engine | None:
        """Returns the engine, or None when it is away. It waits for an answer as long as the URL says."""
        try:
            engine = open_engine(self._url, self._clock, shared=True)
        except EngineError as error:
            if not error.retryable:
                raise
            self.error, self.pause_s = error, self._backoff.next()
            if self._clock.monotonic() >= self._say_at:
                self._say_at = self._clock.monotonic() + self.SAY_EVERY_S
                self._say(f"cannot open its engine yet, and goes on trying: {error}")
            return None
        if self.error is not None:
            self._say("its engine answers now")
        return engine


# libpq and Python's ssl report it as text only.
_REFUSED = re.compile(
    r"certificate.verify.failed|does not match host name|certificate is not valid for"
    r"|root certificate file|could not load (private key|certificate) file|certificate file .* does not exist"
    r"|server does not support SSL",
    re.IGNORECASE,
)


def certificate_refused(text: str) -> bool:
    """Returns True when a client's error text says that it did not accept the server, or found no certificate: trying again does not help."""
    return _REFUSED.search(text) is not None


def certificate_remedy(option: str) -> str:
    return (
        f"Let {option} name the authority that signed the server's certificate, and write the host as the certificate "
        "does; nothing was sent to it"
    )

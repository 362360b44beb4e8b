"""Reads `sqlite:///file.db?option=value`. Knows the options; opens nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tenure.errors import ConfigurationError

OPTIONS = {
    "synchronous": "full (default: a commit survives a power cut) or normal (faster: it survives a crash of any process)",
    "busy_timeout": "seconds to wait for another process that holds the file; 0 to 600, default 10",
}


class Synchronous(StrEnum):
    """The failures that a commit survives."""

    FULL = "full"  # a power cut: the log is flushed to the disk at each commit
    NORMAL = "normal"  # a crash of any process; a power cut may lose the last commits, never consistency


@dataclass(frozen=True, slots=True)
class Address:
    """Where the file is and how it is used."""

    url: str
    path: Path
    synchronous: Synchronous = Synchronous.FULL
    busy_timeout_s: float = 10.0


def read_url(url: str) -> Address:
    """`sqlite:///relative.db`, `sqlite:////absolute/path.db`, with `?synchronous=` and `?busy_timeout=`."""
    parts = urlsplit(url)
    if parts.netloc:
        raise ConfigurationError(
            f"{url!r} has {parts.netloc!r} where a host would be",
            remedy=f"Use three slashes for a relative path (sqlite:///{parts.netloc}{parts.path}), four for an absolute one",
        )
    name = unquote(parts.path[1:])
    if not name or name.endswith("/"):
        raise ConfigurationError(f"{url!r} names no file", remedy="Use sqlite:///path/to/file.db")
    if name == ":memory:":
        raise ConfigurationError("an SQLite engine lives in a file", remedy="Use memory:// for an engine without one")
    options = _options(url, parts.query)
    return Address(
        url=url,
        path=Path(name).absolute(),
        synchronous=_synchronous(options.get("synchronous", "full")),
        busy_timeout_s=_busy_timeout(options.get("busy_timeout", "10")),
    )


def _options(url: str, query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    known = "; ".join(f"{name}: {meaning}" for name, meaning in OPTIONS.items())
    for name, _ in pairs:
        if name not in OPTIONS:
            raise ConfigurationError(f"{url!r} has an unknown option {name!r}", remedy=f"The options are {known}")
    if len(pairs) != len(dict(pairs)):
        raise ConfigurationError(f"{url!r} gives an option twice", remedy="Give each option once")
    return dict(pairs)


def _synchronous(value: str) -> Synchronous:
    try:
        return Synchronous(value.lower())
    except ValueError:
        raise ConfigurationError(
            f"synchronous is {value!r}, and must be full or normal", remedy=OPTIONS["synchronous"]
        ) from None


def _busy_timeout(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 600:
        raise ConfigurationError(f"busy_timeout is {value!r}, and must be 0 to 600 seconds")
    return seconds

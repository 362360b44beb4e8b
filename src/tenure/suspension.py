"""Defines waits and signals as plain data: a worker says them, a journal keeps them, a leader reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from tenure import bounds as b

_decode_exposed = msgspec.json.Decoder(dict[str, Any]).decode


def exposed_values(text: str) -> dict[str, Any]:
    """Returns the values that an attempt shows, from their JSON; none where it is no object."""
    try:
        return _decode_exposed(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return {}


def pairs_in_words(values: Mapping[str, Any]) -> str:
    """Returns exposed values in one line, each cut to a length that people read."""
    return ", ".join(f"{name}={msgspec.json.encode(value).decode()[:200]}" for name, value in values.items())


MOST_JOBS = 1_000
"""The most children that one wait names."""


class WaitsFor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One wait. The first of its conditions that holds ends it."""

    step: b.AnyName
    """Names the wait within its workflow. The next attempt finds by it where it was."""
    after_s: b.ElapsedSeconds | None = None
    """The seconds after which it goes on in any case; None for never."""
    event: b.AnyNameOrNone = ""
    seen: b.Count = 0
    """The signals of that name which the work has taken already. The next one ends the wait."""
    jobs: Annotated[tuple[b.JobId, ...], b.items(0, MOST_JOBS)] = ()
    """The children that have to end, all of them."""
    version: b.VersionName = ""
    """The version that recorded its steps, where the one that came does not fit them. It goes on when workers serve another."""
    misfit: b.Note = ""
    """Says what does not fit."""


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A signal as its job keeps it and its workflows get it."""

    name: str
    id: str
    payload: Any = None
    at: float = 0.0
    by: str = ""

"""Makes the JSON Schemas that a worker registers: of a workflow's arguments, and of the signals that it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tenure import bounds as b
from tenure.bound_checks import check
from tenure.errors import ArgumentsError, ConfigurationError, LimitError

MAX_SCHEMA_BYTES = 16_384
"""The most bytes of the schema of one workflow's arguments in the catalogue. The arguments of one with a longer schema are checked by its worker only."""
MOST_SIGNAL_NAMES = 50
SignalTypes = Mapping[str, Any]
"""Maps the names of signals to the types of their payloads."""


def schema_of(kind: Any) -> dict[str, Any] | None:
    """Returns the JSON Schema of a type; None for one that has none, or one that is too long to send around."""
    try:
        schema = msgspec.json.schema(kind)
    except (TypeError, ValueError, RecursionError):
        return None
    return schema if len(msgspec.json.encode(schema)) <= MAX_SCHEMA_BYTES else None


def checked_signals(workflow: str, types: Any) -> SignalTypes:
    """Returns the declared types. Raises `ConfigurationError` for what is no mapping of names to types that JSON can hold."""
    if not isinstance(types, Mapping):
        raise ConfigurationError(
            f"signals of {workflow} is {types!r}", remedy='Write signals={"approved": Approval}, a type for each name'
        )
    if len(types) > MOST_SIGNAL_NAMES:
        raise LimitError(f"signals of {workflow}", len(types), f"at most {MOST_SIGNAL_NAMES}")
    for name, kind in types.items():
        check(name, b.AnyName, field=f"name of a signal of {workflow}")
        if schema_of(kind) is None:
            raise ConfigurationError(
                f"signal {name!r} of {workflow} has the type {kind!r}, which has no JSON Schema, or a long one",
                remedy="Give a dataclass, a TypedDict, a msgspec.Struct or a plain type",
            )
    size = len(msgspec.json.encode(signals_schema(types)))
    if size > MAX_SCHEMA_BYTES:
        raise LimitError(
            f"the schema of the signals of {workflow}", f"{size:,} bytes", f"at most {MAX_SCHEMA_BYTES:,} bytes"
        )
    return dict(types)


def signals_schema(types: SignalTypes) -> dict[str, Any] | None:
    """Returns one schema with a property for each signal; None where none is declared."""
    if not types:
        return None
    kinds, parts = msgspec.json.schema_components(list(types.values()), ref_template="#/$defs/{name}")
    found: dict[str, Any] = {"type": "object", "properties": dict(zip(types, kinds, strict=True))}
    return {**found, "$defs": parts} if parts else found


def as_declared(types: SignalTypes, name: str, payload: Any) -> Any:
    """Returns the payload of a signal in the type that the workflow declares for it. Raises `ArgumentsError` where it does not fit."""
    kind = types.get(name, Any)
    if kind is Any:
        return payload
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        raise ArgumentsError(
            f"the payload of signal {name!r} does not fit: {error}",
            remedy="Send a new job its own signal: this one was sent before the workflow declared its type, or encoded by a codec",
        ) from error

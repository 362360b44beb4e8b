"""Makes the arguments of a call plain JSON, or says which one cannot be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from tenure.errors import ArgumentsError


def plain_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments as plain JSON types. Raises `ArgumentsError`, which names the one that cannot be."""
    found = {}
    for key, value in arguments.items():
        try:
            plain = msgspec.to_builtins(value, str_keys=True)
            _refuse_numbers_without_json(plain)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ArgumentsError(
                f"argument {key!r} of {name}, of type {type(value).__name__}, cannot be sent as JSON: {error}",
                remedy="Send plain JSON types, a dataclass or a msgspec.Struct; put files and large data elsewhere",
            ) from error
        found[key] = plain
    return found


def _refuse_numbers_without_json(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no {value}")
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        raise ValueError(f"{value} does not fit into 64 bits")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _refuse_numbers_without_json(inner)

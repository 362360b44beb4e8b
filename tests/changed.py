"""Returns named tuples with some of their fields changed: `changed(view, completed=3)`."""

from __future__ import annotations

from typing import Any, TypeVar

TupleT = TypeVar("TupleT", bound="tuple[Any, ...]")


def changed(value: TupleT, **fields: Any) -> TupleT:
    """Returns a copy of the named tuple with these fields. `copy.replace` does it from Python 3.13 on."""
    replace: Any = value._replace  # type: ignore[attr-defined]
    found: TupleT = replace(**fields)
    return found

"""Checks whether a value is within the bounds of its type. It is the only reader of the bounds that `tenure.bounds` states.

`check(message)` walks the type of a message once, keeps the checks as closures, and from then on only compares. It skips a value that
is the field's own default: a test shows that every default is within its bounds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from math import inf
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import inspect

from tenure.bounds import ALONE, ANYTHING, TEXT, WORDS
from tenure.errors import OutOfBoundsError

Check = Callable[[Any], None]
MOST_SHOWN = 60
"""The characters of a wrong value that an error repeats."""


class _Outside(Exception):
    """Raised at the wrong value. On its way out, each level adds its own step to the path."""

    def __init__(self, value: object, allowed: str) -> None:
        self.value, self.allowed, self.path = value, allowed, ""

    def within(self, step: str) -> _Outside:
        self.path = f"{step}{self.path}"
        return self


def check(value: Any, kind: Any = None, *, field: str = "") -> None:
    """Raises `OutOfBoundsError`, which names the field, the value and what is allowed.

    `kind` is the type of the value, where its class does not state it. `field` is the name of the value in the error.
    """
    found = _compiled(type(value) if kind is None else kind)
    if found is None:
        return
    try:
        found(value)
    except _Outside as outside:
        path = f"{field}{outside.path}" if field else outside.path.removeprefix(".")
        raise OutOfBoundsError(path or "it", shown(outside.value), outside.allowed) from None


def shown(value: object) -> str:
    """Returns a value as an error may repeat it: short, and without anything that acts on a terminal."""
    if isinstance(value, str) and len(value) > MOST_SHOWN:
        return f"{value[:MOST_SHOWN]!r}… ({len(value):,} characters)"
    if isinstance(value, (list, tuple, dict)):
        return f"{len(value):,} items"
    return repr(value)[: MOST_SHOWN * 2]


def _compiled(kind: Any) -> Check | None:
    try:
        return _known[kind]
    except KeyError:
        found = _known[kind] = _check_for(inspect.type_info(kind))
        return found


_known: dict[Any, Check | None] = {}
"""Maps each type of message to its check. It holds as many entries as there are types."""


def _check_for(kind: inspect.Type) -> Check | None:
    """Returns the check of a type; None where nothing can be wrong with a value that has been decoded."""
    bounds: dict[str, Any] = {}
    alone = False
    while isinstance(kind, inspect.Metadata):
        bounds |= kind.extra_json_schema or {}
        alone = alone or bool((kind.extra or {}).get(ALONE))
        kind = kind.type
    if isinstance(kind, inspect.StrType):
        return _choice(bounds["enum"]) if "enum" in bounds else _text(bounds)
    if isinstance(kind, (inspect.IntType, inspect.FloatType)):
        return _number(bounds, whole=isinstance(kind, inspect.IntType))
    if isinstance(kind, (inspect.StructType, inspect.DataclassType)):
        return None if alone else _fields(kind)
    if isinstance(kind, inspect.UnionType):
        return _union(kind)
    if isinstance(kind, inspect.DictType):
        return _entries(bounds, kind)
    if isinstance(kind, inspect.TupleType):
        return _places([_check_for(one) for one in kind.item_types])
    if isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
        return _items(bounds, None if alone else _check_for(kind.item_type))
    return None


def _text(bounds: dict[str, Any]) -> Check:
    least, most = bounds.get("minLength", 0), bounds.get("maxLength", inf)
    pattern = bounds.get("pattern", ANYTHING)
    allowed = f"{least:,} to {most:,} {WORDS[pattern]}"
    # Takes the part between ^ and $, for `fullmatch`: Python's $ would allow a newline at the end.
    fits = re.compile(pattern[1:-1] if pattern else r"[\s\S]*").fullmatch

    plain = pattern in (TEXT, ANYTHING)

    def look(value: Any) -> None:
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise _Outside(value, allowed)
        if plain and value.isascii() and value.isprintable():
            return  # true for nearly every value, and three times as fast as the pattern
        if fits(value) is None:
            raise _Outside(value, allowed)
        if not value.isascii() and _has_surrogates(value):
            raise _Outside(value, f"{allowed}; half of a surrogate pair is no character")

    return look


def _choice(words: list[str]) -> Check:
    allowed = f"one of {', '.join(words)}"

    def look(value: Any) -> None:
        if value not in words:
            raise _Outside(value, allowed)

    return look


def _has_surrogates(value: str) -> bool:
    """Returns True for text with half of a surrogate pair. JSON cannot carry it; it comes from a file name that was decoded wrongly."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _number(bounds: dict[str, Any], *, whole: bool) -> Check | None:
    if whole and not bounds:
        return None
    least, most = bounds.get("minimum", -sys.float_info.max), bounds.get("maximum", sys.float_info.max)
    allowed = f"between {_said(least)} and {_said(most)}" if bounds else "a finite number"
    kinds: tuple[type, ...] = (int,) if whole else (int, float)

    def look(value: Any) -> None:
        # NaN is between no two numbers, and an infinity is not between these.
        if not isinstance(value, kinds) or not least <= value <= most or value is True or value is False:
            raise _Outside(value, allowed)

    return look


def _said(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


def _fields(kind: inspect.StructType | inspect.DataclassType) -> Check | None:
    cls = kind.cls
    known = [
        (field.name, msgspec.UNSET if field.default is msgspec.NODEFAULT else field.default, one)
        for field in kind.fields
        if (one := _check_for(field.type)) is not None
    ]
    if not known:
        return None
    names, defaults, checks = zip(*known, strict=True)
    # With one name, `attrgetter` returns the value itself and no tuple, so it is given that name twice.
    get = attrgetter(*names) if len(names) > 1 else attrgetter(names[0], names[0])

    def look(value: Any) -> None:
        if not isinstance(value, cls):
            raise _Outside(value, f"a {cls.__name__}")
        name = ""
        try:
            for name, default, one, got in zip(names, defaults, checks, get(value)):  # noqa: B007, B905 - where it ended; see `get`
                if got is not default:
                    one(got)
        except _Outside as outside:
            raise outside.within(f".{name}") from None

    return look


def _union(kind: inspect.UnionType) -> Check | None:
    """Returns the check of a union of several structs, or of one bounded type and None."""
    structs = {one.cls: _check_for(one) for one in kind.types if isinstance(one, inspect.StructType)}
    rest = [one for one in kind.types if not isinstance(one, (inspect.StructType, inspect.NoneType))]
    others = [found for one in rest if (found := _check_for(one)) is not None]
    assert len(others) <= 1, f"a union of two bounded types would have to guess: {kind}"
    other = others[0] if others else None
    optional = any(isinstance(one, inspect.NoneType) for one in kind.types)
    if other is None and not any(structs.values()):
        return None

    def look(value: Any) -> None:
        if value is None and optional:
            return
        found = structs.get(type(value), other)
        if found is not None:
            found(value)

    return look


def _items(bounds: dict[str, Any], each: Check | None) -> Check | None:
    least, most = bounds.get("minItems", 0), bounds.get("maxItems", inf)
    if each is None and (least, most) == (0, inf):
        return None
    allowed = f"a list of {least:,} to {most:,}" if most < inf else "a list"

    def look(value: Any) -> None:
        if not isinstance(value, (list, tuple)) or not least <= len(value) <= most:
            raise _Outside(value, allowed)
        if each is not None:
            place = 0
            try:
                for place, one in enumerate(value):  # noqa: B007 - where it ended
                    each(one)
            except _Outside as outside:
                raise outside.within(f"[{place}]") from None

    return look


def _places(checks: Sequence[Check | None]) -> Check:
    def look(value: Any) -> None:
        if not isinstance(value, (list, tuple)) or len(value) != len(checks):
            raise _Outside(value, f"a list of {len(checks)}")
        for place, (one, found) in enumerate(zip(value, checks, strict=True)):
            try:
                if found is not None:
                    found(one)
            except _Outside as outside:
                raise outside.within(f"[{place}]") from None

    return look


def _entries(bounds: dict[str, Any], kind: inspect.DictType) -> Check | None:
    most = bounds.get("maxProperties", inf)
    keys, values = _check_for(kind.key_type), _check_for(kind.value_type)
    allowed = f"an object of at most {most:,} entries" if most < inf else "an object"

    def look(value: Any) -> None:
        if not isinstance(value, dict) or len(value) > most:
            raise _Outside(value, allowed)
        for key, one in value.items():
            try:
                if keys is not None:
                    keys(key)
                if values is not None:
                    values(one)
            except _Outside as outside:
                raise outside.within(f"[{shown(key)}]") from None

    return look

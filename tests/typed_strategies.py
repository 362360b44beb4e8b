"""Values of a message's type, generated from its bounds: as many kinds as the type allows, its longest and its largest among them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from tenure.bound_checks import check
from tenure.errors import OutOfBoundsError


def within_bounds(value: Any, kind: Any) -> bool:
    try:
        check(value, kind)
    except OutOfBoundsError:
        return False
    return True


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Of a type as it is annotated."""
    return _values(inspect.type_info(kind))


def fields(cls: type[msgspec.Struct], *leave: str) -> st.SearchStrategy[dict[str, Any]]:
    """The fields of a struct by name, each left out now and then where it has a default. `leave`: those are not made."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    made = {field.name: field for field in info.fields if field.name not in leave}
    return st.fixed_dictionaries(
        {name: _values(field.type) for name, field in made.items() if field.required},
        optional={name: _values(field.type) for name, field in made.items() if not field.required},
    )


def _values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    bounds: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        bounds |= kind.extra_json_schema or {}
        kind = kind.type
    if isinstance(kind, inspect.StrType):
        return _text(bounds)
    if isinstance(kind, inspect.IntType):
        return st.integers(bounds["minimum"], bounds["maximum"])
    if isinstance(kind, inspect.FloatType):
        return st.floats(bounds["minimum"], bounds["maximum"])
    if isinstance(kind, inspect.EnumType):
        return st.sampled_from(list(kind.cls))
    if isinstance(kind, inspect.UnionType):
        return st.one_of([_values(one) for one in kind.types])
    if isinstance(kind, inspect.NoneType):
        return st.none()
    if isinstance(kind, inspect.BoolType):
        return st.booleans()
    if isinstance(kind, inspect.TupleType):
        return st.tuples(*(_values(one) for one in kind.item_types))
    if isinstance(kind, inspect.VarTupleType):
        return st.lists(_values(kind.item_type), min_size=bounds.get("minItems", 0), max_size=3).map(tuple)
    if isinstance(kind, inspect.DictType):
        if isinstance(kind.value_type, inspect.AnyType):
            return st.dictionaries(st.text(max_size=10), JSON, max_size=3)
        return st.dictionaries(_values(kind.key_type), _values(kind.value_type), max_size=3)
    if isinstance(kind, inspect.StructType):
        cls = kind.cls
        return fields(cls).map(lambda found: cls(**found))
    raise TypeError(f"nothing is generated for {kind}")


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=10,
)


def _text(bounds: dict[str, Any]) -> st.SearchStrategy[str]:
    kind = Annotated[str, msgspec.Meta(extra_json_schema=bounds)]
    # Python's $ would let a newline stand at the end.
    pattern = bounds.get("pattern", r"^[\s\S]*$").removesuffix("$") + r"\Z"
    short = st.from_regex(pattern).filter(lambda text: within_bounds(text, kind))

    def stretched(text: str) -> str:
        """As long as the bound allows, where more of its last character still fits the pattern."""
        longer = text + text[-1:] * (bounds["maxLength"] - len(text))
        return longer if within_bounds(longer, kind) else text

    return st.one_of(short, short.map(stretched))

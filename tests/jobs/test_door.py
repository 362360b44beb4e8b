"""The door refuses what the worker would refuse, and never what the worker would take."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ArgumentsError
from tenure.jobs.door import faults
from tenure.work.context import Context
from tenure.work.registry import workflow


class Colour(Enum):
    RED = "red"


class Box(TypedDict, total=False):
    side: int


@dataclass
class Point:
    x: float
    y: float | None = None


class Add(msgspec.Struct, tag=True):
    a: int


class Drop(msgspec.Struct, tag=True):
    b: str


@workflow
def everything(
    ctx: Context,
    a: int | None = None,
    b: str = "",
    c: Annotated[list[int], msgspec.Meta(max_length=3)] = [],  # noqa: B006
    d: Point | None = None,
    e: Literal["p", 1] = "p",
    f: dict[str, float] | None = None,
    g: tuple[int, str] | None = None,
    h: Add | Drop | None = None,
    i: Box | None = None,
    j: Colour = Colour.RED,
    k: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1,
    m: Decimal | None = None,
    n: datetime | None = None,
    o: Any = None,
    p: bool = False,
) -> None: ...


SCHEMA = everything.served.arguments
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.floats(0, 3),
    st.sampled_from(["", "p", "red", "Add", "Drop", "1.5"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["x", "y", "side", "type", "a", "b"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from("abcdefghijkmnopz"), VALUES, max_size=4))
def test_what_the_worker_takes_passes_the_door(arguments: dict[str, Any]) -> None:
    assert SCHEMA is not None
    try:
        everything.check_arguments(arguments)
    except ArgumentsError:
        return
    assert list(faults(arguments, SCHEMA)) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"z": 1}, "argument 'z' is not one of them"),
        ({"c": [1, "2"]}, "argument 'c[1]' is '2', and should be an integer"),
        ({"c": [1, 2, 3, 4]}, "argument 'c' has 4, and should have 0 to 3"),
        ({"d": {"y": 1}}, "argument 'd.x' is missing"),
        ({"e": "q"}, "argument 'e' is 'q', and may be"),
        ({"f": {"k": "v"}}, "argument 'f.k' is 'v', and should be a number"),
        ({"g": [1, 2]}, "argument 'g[1]' is 2, and should be a string"),
        ({"h": {"type": "Add", "a": "x"}}, "argument 'h.a' is 'x'"),
        ({"k": 9}, "argument 'k' is 9, and should be at most 5"),
        ({"p": 1}, "argument 'p' is 1, and should be a boolean"),
    ],
)
def test_what_the_worker_refuses_is_refused_with_its_place(arguments: dict[str, Any], said: str) -> None:
    assert SCHEMA is not None
    with pytest.raises(ArgumentsError):
        everything.check_arguments(arguments)
    assert next(faults(arguments, SCHEMA)).startswith(said)


def test_arguments_nested_deeper_than_python_goes_are_left_to_the_worker() -> None:
    deep: Any = []
    for _ in range(2_000):
        deep = [deep]
    recursive = {"$ref": "#/$defs/L", "$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}}}
    assert list(faults(deep, recursive)) == []

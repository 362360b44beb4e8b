"""Reads the signature of a workflow: the types of its annotations, and its arguments as one struct that JSON is checked against."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Container
from typing import Any, TypeVar

import msgspec

from tenure.errors import ConfigurationError

T = TypeVar("T")


def hints_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Returns the annotations as types, without that of the first parameter."""
    # The first parameter is ours: its annotation may name what is imported only for type checkers.
    first = next(iter(inspect.signature(function).parameters), "")
    code = inspect.unwrap(function)
    bare = types.FunctionType(code.__code__, code.__globals__, closure=code.__closure__)
    bare.__annotations__ = {name: hint for name, hint in inspect.get_annotations(code).items() if name != first}
    try:
        return typing.get_type_hints(bare, include_extras=True)
    except Exception as error:
        raise ConfigurationError(
            f"the annotations of workflow {name} cannot be read: {error}",
            remedy="Make every annotated type importable at run time",
        ) from error


def arguments_of(
    function: Callable[..., Any], name: str, hints: dict[str, Any], *, without: Container[str] = ()
) -> type[msgspec.Struct]:
    """Returns a struct with one field for each parameter after the context, but for those that are no arguments. Raises `ConfigurationError` for what cannot be sent by name."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise ConfigurationError(f"workflow {name} takes no context", remedy=f"Write: def {name}(ctx, ...)")
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters[1:]:
        if parameter.name in without:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigurationError(
                f"parameter {parameter} of workflow {name} cannot be sent by name",
                remedy="Name every parameter; arguments travel as a JSON object",
            )
        kind = hints.get(parameter.name, Any)
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append(
                (parameter.name, kind, msgspec.field(default_factory=functools.partial(_same, parameter.default)))
            )
    try:
        struct = msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True, module=function.__module__
        )
        msgspec.json.Decoder(struct)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the arguments of workflow {name} cannot be JSON: {error}",
            remedy="Use plain types, dataclasses, msgspec.Struct or TypedDict",
        ) from error
    return struct


def _same(value: T) -> T:
    return value

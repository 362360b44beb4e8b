"""Decodes a request from a body or a query. Everything that callers send comes through here, and only a request within its bounds gets on.
It is the one door: a node answers what it is given, and only `jobs.submission.validate` looks at a submission again, as every submission passes there.

JSON may not nest deeper than `MAX_DEPTH`, so that every later reader (of the journal, a snapshot, a worker's message) can decode it on its own stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec

from tenure.bound_checks import check
from tenure.control.messages.operations import Operation, decode_request
from tenure.control.messages.wire import Request
from tenure.errors import ConfigurationError

MAX_DEPTH = 100
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def read_body(operation: Operation, body: bytes) -> Request:
    """Decodes and checks a request. Raises `ConfigurationError`. Nodes also call it for a request that a gate passes on inside of its own message."""
    check_depth(body)
    try:
        request = _decode(operation.name, body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the body of {operation.name!r} cannot be read: {error}") from error
    check(request)
    return request


def _decode(name: str, body: bytes) -> Request:
    try:
        return decode_request(name, body)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    # JSON has one kind of number. By JSON Schema, 3.0 is an integer, and some languages write integers so.
    return decode_request(name, msgspec.json.encode(_whole(msgspec.json.decode(body))))


def _whole(value: Any) -> Any:
    """Returns the value with 3 for 3.0, except within the user's own data: a workflow whose caller sends 3.0 gets 3.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {key: one if key in ("arguments", "body") else _whole(one) for key, one in value.items()}
    return value


def read_query(operation: Operation, pairs: Iterable[tuple[str, str]]) -> Request:
    """Reads a request from `?field=value`. An unknown field is an error: a filter with a typo would show everything."""
    known = _fields(operation.request)
    found: dict[str, Any] = {}
    for field, value in pairs:
        if field not in known:
            raise ConfigurationError(
                f"{operation.name!r} has no field {field!r}", remedy=f"There are: {', '.join(known) or 'none'}"
            )
        if known[field]:
            found.setdefault(field, []).extend(part for part in value.split(",") if part)
        else:
            found[field] = value
    try:
        request = msgspec.convert({**found, "type": operation.name}, operation.request, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"the query of {operation.name!r} cannot be read: {error}") from error
    check(request)
    return request


def check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _BRACKETS.finditer(body):
        mark = match[0]
        if mark in (b"[", b"{"):
            depth += 1
            if depth > MAX_DEPTH:
                raise ConfigurationError(f"the body nests deeper than {MAX_DEPTH} levels", remedy="Send flatter data")
        elif mark in (b"]", b"}"):
            depth -= 1


@cache
def _fields(request: type[Request]) -> dict[str, bool]:
    """Maps each field of a request to True where a query may give it several times."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(request)}
    return {name: _is_list(kind) for name, kind in kinds.items()}


def _is_list(kind: Any) -> bool:
    return get_origin(get_args(kind)[0] if get_origin(kind) is Annotated else kind) is tuple

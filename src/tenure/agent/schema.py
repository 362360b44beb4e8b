"""JSON schemas of parameters and outputs, in the form that providers take: one object, no references, closed."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.errors import ConfigurationError

_REF = "#/$defs/"


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a type, with its references put in place. Recursive types are refused: providers do not take them."""
    try:
        schema = msgspec.json.schema(kind)
    except TypeError as error:
        raise ConfigurationError(
            f"{kind!r} has no JSON schema: {error}",
            remedy="Use a dataclass, a msgspec.Struct or a TypedDict of plain JSON types",
        ) from error
    found: dict[str, Any] = _inlined(schema, schema.get("$defs", {}), ())
    found.pop("$defs", None)
    return found


def closed(schema: Any) -> Any:
    """As strict modes want it: every property is required, and no other is allowed."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items() if key != "default"}
    if isinstance(schema.get("properties"), dict):
        found["properties"] = {name: closed(value) for name, value in schema["properties"].items()}
        found["required"] = list(schema["properties"])
        found["additionalProperties"] = False
    return found


def _inlined(part: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(part, list):
        return [_inlined(one, definitions, inside) for one in part]
    if not isinstance(part, dict):
        return part
    reference = part.get("$ref")
    if isinstance(reference, str) and reference.startswith(_REF):
        name = reference.removeprefix(_REF)
        if name in inside:
            raise ConfigurationError(f"{name} contains itself, and no provider takes such a schema")
        rest = {key: value for key, value in part.items() if key != "$ref"}
        return {**_inlined(definitions[name], definitions, (*inside, name)), **rest}
    return {key: _inlined(value, definitions, inside) for key, value in part.items() if key != "$defs"}

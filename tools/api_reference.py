"""Write the reference halves of docs/api.md, docs/limits.md and docs/events.md from the operations, the bounds and the topics of jobs.

python tools/api_reference.py            write it
python tools/api_reference.py --check    say whether it is fresh
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
LIMITS = ROOT / "docs" / "limits.md"
EVENTS = ROOT / "docs" / "events.md"
MARK = "<!-- From here on written by tools/api_reference.py: do not edit. -->\n"


def main() -> int:
    stale = 0
    for path, written in ((PAGE, reference), (LIMITS, limits), (EVENTS, events)):
        page = path.read_text()
        fresh = with_reference(page, written())
        if "--check" not in sys.argv:
            path.write_text(fresh)
        elif page != fresh:
            print(f"{path.relative_to(ROOT)} is not fresh: run python tools/api_reference.py", file=sys.stderr)
            stale = 1
    return stale


def with_reference(page: str, text: str) -> str:
    return page.partition(MARK)[0] + MARK + text


def limits() -> str:
    """Every type of `tenure.bounds`, as a line."""
    import msgspec

    from tenure import bounds

    lines = ["\n## Every bound\n", "| type | what it is | bound |", "|---|---|---|"]
    for name, found in vars(bounds).items():
        if getattr(found, "__metadata__", None) is not None:
            schema = msgspec.json.schema(found)
            lines.append(f"| `{name}` | {schema.get('description', '')} | {bound(schema)} |")
    return "\n".join(lines) + "\n"


def events() -> str:
    """Every event of the journals, by topic, with its fields."""
    from tenure.jobs import topics
    from tenure.jobs.decisions import Event

    lines = []
    for node, of_node in (("manager", topics.MANAGER_TOPICS), ("gate", topics.GATE_TOPICS)):
        lines += [f"\n## In a {node}'s journal\n", "| topic | event | says | fields |", "|---|---|---|---|"]
        for topic in of_node:
            for event in topic.FOLD:
                fields = ", ".join(
                    f"`{name}`" for name in event.__struct_fields__ if name not in Event.__struct_fields__
                )
                says = " ".join((event.__doc__ or "").split())
                lines.append(f"| {topic.__name__.rpartition('.')[2]} | `{event.__name__}` | {says} | {fields} |")
    return "\n".join(lines) + "\n"


def bound(schema: dict[str, Any]) -> str:
    """The bounds of one schema in words; empty where it has none."""
    from tenure.bounds import WORDS

    if "maxLength" in schema:
        return f"{schema['minLength']:,} to {schema['maxLength']:,} {WORDS[schema.get('pattern', '')]}"
    if "maximum" in schema:
        return f"{number(schema['minimum'])} to {number(schema['maximum'])}"
    if "maxItems" in schema and "prefixItems" not in schema:
        return f"{schema.get('minItems', 0):,} to {schema['maxItems']:,}"
    return f"at most {schema['maxProperties']:,} entries" if "maxProperties" in schema else ""


def number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def reference() -> str:
    from tenure.control.messages.operations import OPERATIONS
    from tenure.control.openapi import build

    document = build()
    schemas: dict[str, Any] = document["components"]["schemas"]
    requests = {one.request.__name__ for one in OPERATIONS}
    lines = ["\n## Operations\n", "| request | answers | role | GET | at a gate | what |", "|---|---|---|---|---|---|"]
    for one in OPERATIONS:
        name, reply = one.name, one.reply.__name__
        get = "stream" if one.streams else "yes" if one.reads else ""
        answers = f"[`{reply}`](#{reply.lower()})"
        lines.append(f"| [`{name}`](#{name}) | {answers} | {one.role} | {get} | {one.at_gate} | {one.summary} |")
    for one in OPERATIONS:
        lines += [f"\n### {one.name}\n", *section(schemas[one.request.__name__])]
    lines.append("\n## Types\n")
    for name in sorted(schemas):
        if name not in requests:
            lines += [f"\n### {name}\n", *section(schemas[name])]
    return "\n".join(lines) + "\n"


def section(schema: dict[str, Any]) -> list[str]:
    lines = [" ".join(schema["description"].split()) + "\n"] if schema.get("description") else []
    if "enum" in schema:
        return [*lines, "One of: " + ", ".join(f"`{value}`" for value in schema["enum"]) + "."]
    fields = {
        name: field for name, field in schema.get("properties", {}).items() if name != "type" or "enum" not in field
    }
    if not fields:
        return [*lines, "No fields."]
    lines += ["| field | type | default |", "|---|---|---|"]
    required = schema.get("required", ())
    for name, field in fields.items():
        default = "required" if name in required else f"`{shown(field['default'])}`" if "default" in field else ""
        lines.append(f"| `{name}` | {kind(field)} | {default} |")
    return lines


def kind(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(kind(one) for one in field["anyOf"])
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        items = field.get("items") or {}
        if "prefixItems" in field:
            return "(" + ", ".join(kind(one) for one in field["prefixItems"]) + ")"
        many = f"list of {bound(field)}".removesuffix(" of ")
        return f"{many}: {kind(items)}" if items else many
    if field.get("type") == "object":
        values = field.get("additionalProperties")
        return f"object of {kind(values)}" if isinstance(values, dict) and values else "object"
    said = bound(field)
    return f"{field.get('type', 'any')}: {said}" if said else str(field.get("type", "any"))


def shown(value: Any) -> str:
    import json

    return json.dumps(value).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())

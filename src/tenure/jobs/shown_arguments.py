"""Decides what people see of a job's arguments: secrets are masked, and long values are cut. Pure.

A node masks before an answer leaves its process. Workers get the arguments as they were submitted. An argument is secret when the function's annotation
says so (`Secret[str]`, which the catalogue's schema carries as `writeOnly`), or when its name or its value looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.jobs.model import JobSubmission, WorkflowSpec

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

MASK = "***"
MOST_SHOWN, MOST_CHARS, MOST_DEPTH = 50, 300, 6
"""The most arguments of a view, characters of one value, and levels of nesting."""
_NAME = re.compile(
    r"(?i)(^|[_.-])((pass(word|wd|phrase)?|secrets?|credentials?|private[_-]?key)($|[_.-])|(tokens?|api[_-]?keys?|authorization|cookie)$)"
)
_VALUE = re.compile(r"(?i)://[^/\s:@]+:[^/\s@]+@|^bearer\s+\S|-----BEGIN [A-Z ]*PRIVATE KEY-----")

Secrets = frozenset[str]
SecretsOf = Callable[[str], Secrets]
"""Returns the arguments that a function declares as secret."""


def no_secrets(function: str) -> Secrets:
    return frozenset()


def secret_names(book: JobBook, function: str) -> Secrets:
    """Returns the arguments that any registered version of a function declares as secret."""
    found: set[str] = set()
    for entry in book.state.catalogue.get(function, {}).values():
        found |= declared_secrets(book.state.schemas.get(entry.served.schema) or {})
    return frozenset(found)


def declared_secrets(schema: dict[str, Any]) -> set[str]:
    """Returns the properties of a JSON Schema that are `writeOnly`, by themselves or in one of their alternatives."""
    root = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    properties = root.get("properties", {}) if isinstance(root, dict) else {}
    return {name for name, one in properties.items() if _is_declared(one)}


def _is_declared(one: Any) -> bool:
    if not isinstance(one, dict):
        return False
    return bool(one.get("writeOnly")) or any(_is_declared(part) for part in one.get("anyOf", ()))


def masked(value: Any, secrets: Secrets = frozenset(), depth: int = 0) -> Any:
    """Returns the value with a mask in the place of every secret in it; the same object where there is none."""
    if isinstance(value, str):
        return MASK if _VALUE.search(value) else value
    if depth >= MOST_DEPTH or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        new = [masked(one, frozenset(), depth + 1) for one in value]
        return new if any(a is not b for a, b in zip(new, value, strict=True)) else value
    kept = {
        key: MASK if key in secrets or _NAME.search(str(key)) else masked(one, frozenset(), depth + 1)
        for key, one in value.items()
    }
    return kept if any(kept[key] is not value[key] for key in value) else value


def shown(spec: WorkflowSpec, secrets: Secrets = frozenset()) -> dict[str, Any]:
    """Returns the arguments of a workflow as a view has them: masked, at most so many, and long values as the beginning of their text."""
    found: dict[str, Any] = {}
    for name, value in list(masked(spec.arguments, secrets).items())[:MOST_SHOWN]:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        found[name] = value if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]} ... ({len(text):,} characters)"
    return found


def call_text(spec: WorkflowSpec, secrets: Secrets = frozenset(), most: int = 80) -> str:
    """Returns a workflow as the call that one would write in code, on one short line."""
    given = ", ".join(f"{key}={value!r}" for key, value in shown(spec, secrets).items())
    return f"{spec.called}({given if len(given) <= most else given[:most] + ' ...'})"


def has_argument(spec: WorkflowSpec, wanted: str, secrets: Secrets = frozenset()) -> bool:
    """Returns True for a workflow with this argument: `tenant`, or `tenant=7`; `a.b=7` looks inside. A secret fits nothing."""
    path, equals, text = wanted.partition("=")
    value: Any = masked(spec.arguments, secrets)
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    if not equals:
        return True
    return value != MASK and text == (value if isinstance(value, str) else msgspec.json.encode(value).decode())


def any_has_argument(submission: JobSubmission | None, wanted: str, book: JobBook | None) -> bool:
    return submission is not None and any(
        has_argument(spec, wanted, secret_names(book, spec.called) if book is not None else frozenset())
        for spec in submission.workflows
    )


def masked_event(data: bytes, book: JobBook | None = None) -> bytes:
    """Returns an event of the journal as listeners get it: a submission in it has its secrets masked. Other events stay as they are, byte for byte."""
    event = msgspec.json.decode(data)
    changed = False
    schedule = event.get("schedule")  # most events about a schedule hold only its name
    for job in (event.get("submission"), schedule.get("job") if isinstance(schedule, dict) else None):
        for spec in job.get("workflows", ()) if isinstance(job, dict) else ():
            called = spec.get("function") or spec.get("name", "")
            arguments = spec.get("arguments", {})
            new = masked(arguments, secret_names(book, called) if book is not None else frozenset())
            if new is not arguments:
                spec["arguments"], changed = new, True
    return msgspec.json.encode(event) if changed else data

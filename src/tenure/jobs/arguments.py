"""Decides what becomes of a job's arguments: which are too large for the journal, and what people see of the others. Pure.

A large argument is one value in the store's value of its workflow (`nodes.stored_values`). In its place the submission keeps a mark with its size
and the hash of its contents, so that two submissions with different large arguments are different, and people see where it was. Small arguments
stay: they name keys, and views show them.

A node masks secrets and cuts long values before an answer leaves its process. Workers get the arguments as they were submitted. An argument is secret
when the function's annotation says so (`Secret[str]`, which the catalogue's schema carries as `writeOnly`), or when its name or its value looks like one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.attempt_data import MAX_VALUE_BYTES
from tenure.errors import ConfigurationError, LimitError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import LIMITS, JobLimits

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


SMALL_BYTES = 4_096
"""An argument of at most so many bytes stays in the submission, while all that stay fit."""
MOST_INLINE_BYTES = 262_144
"""The bytes of all arguments of a submission that are journaled with it. Beyond it those of each workflow are stored that are not small."""
_MARK = "tenure.stored"
_encode = msgspec.json.encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class SplitArguments(NamedTuple):
    """The arguments of one workflow: those that stay, with a mark for each that goes, and those that go."""

    kept: dict[str, Any]
    stored: dict[str, Any]

    @property
    def name(self) -> str:
        """Names the contents that go, for the last part of their key."""
        marks = [self.kept[one] for one in sorted(self.stored)]
        return hashlib.blake2b(_encode_sorted(marks), digest_size=16).hexdigest()


def too_large(submission: JobSubmission, limits: JobLimits = LIMITS) -> dict[str, SplitArguments]:
    """Returns the workflows whose arguments do not fit into the journal, each with what stays. Raises `LimitError` for what does not fit into the store either."""
    sizes = {spec.name: len(_encode(spec.arguments)) for spec in submission.workflows}
    total = sum(sizes.values())
    if total > MAX_VALUE_BYTES:
        raise LimitError(
            "arguments",
            f"{total:,} bytes",
            f"at most {MAX_VALUE_BYTES:,} bytes for one job",
            remedy="Put large inputs where the workflow can read them, a bucket or a table, and pass their address",
        )
    crowded = total > MOST_INLINE_BYTES
    most = SMALL_BYTES if crowded else limits.max_arguments_bytes
    return {spec.name: _split(spec, limits) for spec in submission.workflows if sizes[spec.name] > most}


def _split(spec: WorkflowSpec, limits: JobLimits) -> SplitArguments:
    own = {name: len(_encode(value)) for name, value in spec.arguments.items()}
    small = sum(one for one in own.values() if one <= SMALL_BYTES)
    least = SMALL_BYTES if small <= limits.max_arguments_bytes // 2 else 0
    stored = {name: value for name, value in spec.arguments.items() if own[name] > least}
    kept = {name: _mark(value, own[name]) if name in stored else value for name, value in spec.arguments.items()}
    return SplitArguments(kept, stored)


def _mark(value: Any, size: int) -> dict[str, Any]:
    digest = hashlib.blake2b(_encode_sorted(value), digest_size=16).hexdigest()
    return {_MARK: {"bytes": size, "hash": digest}}


def stored_bytes(specs: Iterable[WorkflowSpec]) -> int:
    """Returns the bytes of the arguments that are in the store."""
    return sum(_marked_bytes(one) for spec in specs if spec.arguments_at for one in spec.arguments.values())


def _marked_bytes(value: Any) -> int:
    """Returns the size that a mark names; 0 for any other value. A small argument of the user's may look like one: it must neither raise nor take away."""
    mark = value.get(_MARK) if isinstance(value, dict) and len(value) == 1 else None
    size = mark.get("bytes") if isinstance(mark, dict) else None
    return max(0, size) if isinstance(size, int) else 0


def check_not_stored(submission: JobSubmission, known: Iterable[str] = ()) -> None:
    """Raises for a submission from outside that names a key of the store, unless it is one of the `known`: it could read the arguments of others."""
    for spec in submission.workflows:
        if spec.arguments_at and spec.arguments_at not in known:
            raise ConfigurationError(
                f"workflow {spec.name!r} names a place of its arguments, and only a leader does that",
                remedy="Give the arguments themselves: large ones are stored without your doing",
            )


def schedule_owner(name: str) -> str:
    """Returns how the keys of a schedule's arguments begin. No job's id begins so."""
    return f"//schedule/{name}"


def arguments_key(owner: str, workflow: str, contents: str) -> str:
    """Returns the key of stored arguments. The contents are part of it: a refused submission under the same id overwrites nothing."""
    return f"{owner}/{workflow}/{contents}"


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

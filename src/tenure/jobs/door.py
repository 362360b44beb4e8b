"""The door of a datacenter: whether a submission names work that exists, whether its arguments fit, and whose settings it gets.

Each is read off the journaled catalogue once, when the job is accepted, and is no part of the submission's digest: a repeated submission is the
same job, whatever was deployed meanwhile (RULINGS 13, 16).

The payload of a signal is checked by the shape that the author of the workflow declared for it. A signal that nobody declared may hold anything. One
that a codec encoded is checked by the worker that opens it.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.codec import is_sealed
from tenure.errors import ArgumentsError, UnknownWorkflowError
from tenure.jobs.catalogue import MEMORY_S, in_force
from tenure.jobs.model import JobInfo, JobSubmission, WorkflowRecord, WorkflowSpec
from tenure.jobs.states import WorkflowState
from tenure.served_workflow import ServedWorkflow, version_order

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


DEFAULT_QUEUE = "default"
Origins = dict[str, str]
"""Maps each setting that a submission left out to the function that it is from."""


def versions_of(book: JobBook, name: str, now: float) -> dict[str, ServedWorkflow]:
    """Returns the versions of a workflow that somebody registered within the catalogue's memory, the newest first."""
    found = book.state.catalogue.get(name, {})
    known = [one.served for one in found.values() if not one.gone_at or now < one.gone_at + MEMORY_S]
    return {one.version: one for one in sorted(known, key=lambda one: version_order(one.version), reverse=True)}


def candidates(book: JobBook, spec: WorkflowSpec, now: float) -> list[ServedWorkflow]:
    """Returns the versions that may do this work, the newest first: those that are served now, or where none is, all that are known."""
    entries = book.state.catalogue.get(spec.called)
    if not entries:
        return []
    if len(entries) == 1:  # as nearly always: nothing to sort, and nothing to choose
        ((version, only),) = entries.items()
        is_known = not only.gone_at or now < only.gone_at + MEMORY_S
        return [only.served] if is_known and spec.version in ("", version) else []
    known = versions_of(book, spec.called, now)
    if spec.version:
        return [known[spec.version]] if spec.version in known else []
    return [one for one in known.values() if book.services.offers(one.name, one.version)] or list(known.values())


def enter(book: JobBook, submission: JobSubmission, now: float) -> None:
    """Raises for work that nobody registered, and for arguments that do not fit. Known work that nobody serves now is let in, and waits."""
    if not in_force(book):
        return
    queue = book.state.queues.get(submission.queue or DEFAULT_QUEUE)
    parks = submission.park or (queue is not None and queue.park)
    for spec in submission.workflows:
        found = candidates(book, spec, now)
        if found:
            _check_arguments(book, spec, found)
        elif not parks:
            raise _unknown(book, spec, now)


def _unknown(book: JobBook, spec: WorkflowSpec, now: float) -> UnknownWorkflowError:
    versions = list(versions_of(book, spec.called, now))
    park = "To have it wait for such a worker: park=True, or --park"
    if versions:
        known = f"Known are: {', '.join(versions[:20])}"
        return UnknownWorkflowError(
            f"no worker has registered version {spec.version!r} of workflow {spec.called!r}", remedy=f"{known}. {park}"
        )
    names = [name for name in book.state.catalogue if versions_of(book, name, now)]
    near = get_close_matches(spec.called, names, 1)
    known = f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(sorted(names)[:20])}."
    return UnknownWorkflowError(
        f"no worker has registered a workflow {spec.called!r} within 7 days", remedy=f"{known} {park}"
    )


def _check_arguments(book: JobBook, spec: WorkflowSpec, found: list[ServedWorkflow]) -> None:
    """Raises unless the arguments fit one of the versions that may do the work. Encoded ones only a worker can check (decision 0334)."""
    if is_sealed(spec.arguments) or spec.arguments_at:  # large ones were checked before they were stored
        return
    wrong = ""
    for one in found:
        schema = book.state.schemas.get(one.schema)
        fault = next(faults(spec.arguments, schema), "") if schema is not None else ""
        if not fault:
            return
        wrong = wrong or f"{fault} (version {one.version})"
    raise ArgumentsError(
        f"the arguments of {spec.called!r} do not fit: {wrong}", remedy=f"`tenure workflows {spec.called}` shows them"
    )


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}

_PLAIN: dict[str, type] = {"string": str, "number": float, "integer": int, "boolean": bool}


def faults(value: Any, schema: dict[str, Any]) -> Iterator[str]:
    """Yields what does not fit a JSON Schema, each with its place. It knows what msgspec writes, and lets pass what it does not know.

    The worker checks again, against the types themselves, so what only they can say (a pattern, a date) is left to it.
    """
    try:
        yield from _faults(value, schema, schema.get("$defs", {}), "")
    except RecursionError:
        return


def _faults(value: Any, schema: Any, defs: dict[str, Any], where: str) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if ref := schema.get("$ref"):
        yield from _faults(value, defs.get(str(ref).rpartition("/")[2], {}), defs, where)
    if choices := schema.get("anyOf"):
        tried = [list(_faults(value, choice, defs, where)) for choice in choices]
        if all(tried):
            # The choice of the value's own kind explains most: its faults are inside the value.
            yield next((one[0] for one in tried if not one[0].startswith(f"{_name(where)} is ")), tried[0][0])
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{_name(where)} is {_shown(value)}, and may be {', '.join(map(_shown, schema['enum'][:20]))}"
        return
    kind = schema.get("type")
    if kind in _TYPES and not _is(value, kind, schema):
        yield f"{_name(where)} is {_shown(value)}, and should be {_A[kind]}"
        return
    yield from _bound_faults(value, schema, where)
    if isinstance(value, dict):
        yield from _object_faults(value, schema, defs, where)
    elif isinstance(value, (list, tuple)):
        first = schema.get("prefixItems", ())
        for place, one in enumerate(value):
            inner = first[place] if place < len(first) else schema.get("items")
            yield from _faults(one, inner, defs, f"{where}[{place}]")


_A = {kind: f"{'an' if kind[0] in 'aoi' else 'a'} {kind}" for kind in _TYPES} | {"null": "null"}


def _is(value: Any, kind: str, schema: dict[str, Any]) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if schema.get("format") == "decimal" and isinstance(value, (int, float)):
        return True
    return isinstance(value, _TYPES[kind])


def _bound_faults(value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            yield f"{_name(where)} is {_shown(value)}, and should be at least {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            yield f"{_name(where)} is {_shown(value)}, and should be at most {schema['maximum']}"
    elif isinstance(value, (str, list, tuple)):
        unit = "Length" if isinstance(value, str) else "Items"
        if not schema.get(f"min{unit}", 0) <= len(value) <= schema.get(f"max{unit}", len(value)):
            least, most = schema.get(f"min{unit}", 0), schema.get(f"max{unit}", "any number")
            yield f"{_name(where)} has {len(value)}, and should have {least} to {most}"


def _object_faults(value: dict[str, Any], schema: dict[str, Any], defs: dict[str, Any], where: str) -> Iterator[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{_name(_in(where, name))} is missing"
    for name, one in value.items():
        if name in known:
            # Most arguments are plain values of a type without bounds, and every submission comes through here.
            if len(known[name]) == 1 and type(one) is _PLAIN.get(known[name].get("type", "")):
                continue
            yield from _faults(one, known[name], defs, _in(where, name))
        elif more is False:
            near = get_close_matches(str(name), list(known), 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(known) or 'none'}"
            yield f"{_name(_in(where, name))} is not one of them{hint}"
        else:
            yield from _faults(one, more, defs, _in(where, name))


def _in(where: str, name: str) -> str:
    return f"{where}.{name}" if where else str(name)


def _name(where: str) -> str:
    return f"argument {where!r}" if where else "the whole"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Resolved(NamedTuple):
    """A submission with the settings that it left out, and whose each of them is."""

    submission: JobSubmission
    origins: Origins


def with_settings(book: JobBook, submission: JobSubmission, now: float) -> Resolved:
    """Fills in what the submission left out, from the functions that it calls.

    What belongs to the whole job (queue, priority, deadline) is taken where all functions that set it agree.
    """
    origins: Origins = {}
    specs, functions = [], []
    for spec in submission.workflows:
        found = next(iter(candidates(book, spec, now)), None)
        functions.append(found)
        specs.append(_spec_with(spec, found, origins, len(submission.workflows) > 1))
    changes: dict[str, Any] = {"workflows": tuple(specs)}
    if submission.unique is None and (agreed := _agreed(functions, "unique", origins, "unique")):
        changes["unique"] = agreed
    if submission.timeout_seconds is None and (agreed := _agreed(functions, "job_timeout", origins, "timeout")):
        changes["timeout_seconds"] = agreed
    if submission.priority is None:
        changes["priority"] = _agreed(functions, "priority", origins, "priority") or 0
    if not submission.queue:
        changes["queue"] = _agreed(functions, "queue", origins, "queue") or _only_queue(book, submission, origins)
    return Resolved(msgspec.structs.replace(submission, **changes), origins)


def _spec_with(spec: WorkflowSpec, found: ServedWorkflow | None, origins: Origins, several: bool) -> WorkflowSpec:
    prefix = f"{spec.name}." if several else ""
    changes: dict[str, Any] = {}
    retry = spec.retry
    if retry is None and found is not None and found.retry is not None:
        retry = found.retry
        origins[f"{prefix}retry"] = _author(found)
    changes["retry"] = retry or spec.policy
    if spec.max_attempts is not None:
        changes["retry"] = msgspec.structs.replace(changes["retry"], max_attempts=spec.max_attempts)
    if spec.stall is None and found is not None and found.stall is not None:
        changes["stall"], origins[f"{prefix}stall"] = found.stall, _author(found)
    if spec.concurrency is None and found is not None and found.concurrency is not None:
        changes["concurrency"], origins[f"{prefix}concurrency"] = found.concurrency, _author(found)
    return msgspec.structs.replace(spec, **changes)


def _author(found: ServedWorkflow) -> str:
    return f"{found.name} {found.version}".strip()


def _agreed(functions: list[ServedWorkflow | None], field: str, origins: Origins, name: str) -> Any:
    """Returns the value that every function with one has; None where they differ or none has one."""
    found = {value: one for one in functions if one is not None and (value := getattr(one, field)) not in (None, "")}
    if len(found) != 1:
        return None
    value, author = found.popitem()
    origins[name] = _author(author)
    return value


def _only_queue(book: JobBook, submission: JobSubmission, origins: Origins) -> str:
    """Returns the default queue, or where nobody serves the work there, the one queue in which workers do."""
    if not in_force(book):
        return DEFAULT_QUEUE
    queues = [set(book.services.queues(spec.called, spec.version)) for spec in submission.workflows]
    common = set.intersection(*queues)
    if DEFAULT_QUEUE in common or len(common) != 1:
        return DEFAULT_QUEUE
    origins["queue"] = "the one queue in which workers serve it"
    return common.pop()


PAYLOAD = "payload"
Shape = dict[str, Any]
"""A JSON Schema with one property, `payload`."""


def shape_of_wait(book: JobBook, workflow: WorkflowRecord, now: float) -> Shape | None:
    """Returns the shape of the signal that suspended work waits for; None where it waits for none, or nobody declared it."""
    if workflow.state is not WorkflowState.SUSPENDED or workflow.waits is None or not workflow.waits.event:
        return None
    return next(iter(_shapes(book, workflow, workflow.waits.event, now)), None)


def check_payload(book: JobBook, info: JobInfo, name: str, payload: Any, now: float) -> None:
    """Raises `ArgumentsError` for a payload that fits none of the types which the open workflows of the job declare for this signal."""
    if is_sealed(payload):
        return
    wrong = ""
    for workflow in info.workflows.values():
        for shape in _shapes(book, workflow, name, now) if not workflow.state.terminal else ():
            fault = next(faults({PAYLOAD: payload}, shape), "")
            if not fault:
                return
            wrong = wrong or fault
    if wrong:
        raise ArgumentsError(
            f"signal {name!r} does not fit: {wrong.replace('argument', 'field', 1)}",
            remedy=f"`tenure workflows {next(iter(info.workflows.values())).spec.called} --json` shows its schema",
        )


def _shapes(book: JobBook, workflow: WorkflowRecord, name: str, now: float) -> list[Shape]:
    """Returns what the versions that may go on with the work declare for a signal, the newest first."""
    found = [book.state.schemas.get(one.signals_schema) for one in _versions(book, workflow, now)]
    return [
        {**one, "required": [PAYLOAD], "properties": {PAYLOAD: one["properties"][name]}}
        for one in found
        if one is not None and name in one.get("properties", {})
    ]


def _versions(book: JobBook, workflow: WorkflowRecord, now: float) -> list[ServedWorkflow]:
    version = workflow.version
    known = versions_of(book, workflow.spec.called, now).values()
    return [one for one in known if version in ("", one.version, *one.compatible_with)]

"""Makes the OpenAPI 3.1 document of the control plane from the table of operations and their types. Pure, and equal on every node."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from tenure import __version__
from tenure.control.messages.operations import OPERATIONS, AtGate, Operation
from tenure.control.messages.wire import Placed, Problem, Redirect

_REF = "#/components/schemas/{name}"
_JSON = "application/json"
PROBLEMS = {
    "400": "It cannot be read, or a field is outside of the bounds that this document states: `fact` says which, `remedy` what to do",
    "401": "Wrong or no token",
    "403": "The token's role does not allow it, or a page of another site asked",
    "404": "There is no such job, node, queue or dead letter",
    "405": "Not this method: what writes is only POST",
    "408": "The body did not come in time",
    "409": "It contradicts what is there: an id that is taken, a key that a newer message has",
    "413": "The body is too large",
    "415": "The body is not JSON",
    "422": "Each field is within its bounds, and it cannot be done so: fields contradict each other, they are too much taken together, \
or they name something that is not there. `fact` says what",
    "429": "Too many requests from here; Retry-After says how long to wait",
    "500": "The node failed; its log tells more under the request's id",
    "503": "Nobody leads now, the engine is out of reach, or a gate is overloaded: ask again after Retry-After",
}
AT_GATE = {
    AtGate.OWN: "answered from what the gate cluster knows",
    AtGate.GATHERED: "asked of every datacenter; each line says where it is from, and `missing` names those that did not answer in time",
    AtGate.PASSED: "passed on to the datacenter that `datacenter` names; it may be left out where there is only one",
    AtGate.REFUSED: "refused: for managers, the answer says whom to ask",
}
_ABOUT = """Every operation is `POST /v1/NAME` with a JSON body; what only reads is also `GET /v1/NAME?field=value`.

Each request may be sent again: a submission under one job id is one job. A write that came to a standby is answered with 307 and the leader's address. \
A gate answers every one of these too: `x-tenure-at-gate` says how. Requests with a `datacenter` are about that one where a gate is asked; a manager refuses one for another datacenter than its own.

`X-Request-Id` is taken over, or made, and comes back in the answer, in problems and in the node's log."""


@cache
def document() -> bytes:
    """Returns the document as it is served."""
    return msgspec.json.format(msgspec.json.encode(build()))


def build() -> dict[str, Any]:
    types = dict.fromkeys([*(one.request for one in OPERATIONS), *(one.reply for one in OPERATIONS), Redirect, Problem])
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    for operation in OPERATIONS:
        _loosen(components[operation.request.__name__])
    _settle(components)
    paths = {f"/v1/{operation.name}": _path(operation, components) for operation in OPERATIONS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tenure: the control plane",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": paths | _plain_paths(),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed where the node has tokens; each has a role: client, worker, node or operator.",
                }
            },
            "responses": {code: _response(text, "Problem") for code, text in PROBLEMS.items()},
        },
    }


def _loosen(schema: dict[str, Any]) -> None:
    """Makes the tag optional in the body of a request, because the path holds it."""
    if "type" in schema.get("required", ()):
        schema["required"] = [name for name in schema["required"] if name != "type"]
        if not schema["required"]:
            del schema["required"]


def _settle(schema: Any) -> None:
    """Replaces `items: false`, which generators of clients cannot read. `maxItems` already says that a pair has no third item."""
    if isinstance(schema, dict):
        if schema.get("items") is False:
            schema["items"] = {}
        for inner in schema.values():
            _settle(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _settle(inner)


def _path(operation: Operation, components: dict[str, Any]) -> dict[str, Any]:
    common: dict[str, Any] = {
        "summary": operation.summary,
        "description": f"{(operation.request.__doc__ or '').strip()}\n\nAt a gate: {_at_gate(operation)}.",
        "x-tenure-at-gate": operation.at_gate.value,
        "tags": [operation.role.value],
        "responses": _responses(operation),
    }
    body = {"required": _needs_body(operation, components), "content": {_JSON: {"schema": _ref(operation.request)}}}
    path: dict[str, Any] = {"post": {"operationId": operation.name, **common, "requestBody": body}}
    if operation.reads:
        get = {"operationId": f"get_{operation.name}", **common, "parameters": _parameters(operation, components)}
        if operation.streams:
            get["responses"] = common["responses"] | {"200": _streamed(operation)}
        path["get"] = get
    return path


def _at_gate(operation: Operation) -> str:
    named = operation.at_gate is AtGate.OWN and issubclass(operation.request, Placed)
    passed = ", or passed on to the datacenter that is named" if named else ""
    return AT_GATE[operation.at_gate] + passed


def _needs_body(operation: Operation, components: dict[str, Any]) -> bool:
    return bool(components[operation.request.__name__].get("required"))


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}


def _responses(operation: Operation) -> dict[str, Any]:
    answers: dict[str, Any] = {"200": _response("Done, or the answer", operation.reply.__name__)}
    answers["307"] = _response("Only the leader can say: `Location` and `address` name it", "Redirect")
    codes = [code for code in PROBLEMS if code != "405" or not operation.reads]
    return answers | {code: {"$ref": f"#/components/responses/{code}"} for code in codes}


def _response(text: str, schema: str) -> dict[str, Any]:
    header = {"description": "The request's id", "schema": {"type": "string"}}
    content = {_JSON: {"schema": {"$ref": _REF.format(name=schema)}}}
    return {"description": text, "headers": {"X-Request-Id": header}, "content": content}


def _streamed(operation: Operation) -> dict[str, Any]:
    answer = _response("A stream of events, or with `Accept: application/json` one page", operation.reply.__name__)
    for kind in ("text/event-stream", "application/x-ndjson"):
        answer["content"][kind] = {"schema": {"type": "string"}}
    return answer


def _parameters(operation: Operation, components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = components[operation.request.__name__]
    found = []
    for name, field in schema["properties"].items():
        if name == "type":
            continue
        parameter = {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": field}
        if field.get("type") == "array":
            parameter |= {"style": "form", "explode": True}
        found.append(parameter)
    return found


def _plain_path(name: str, summary: str, answers: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Returns a path that anybody may read; `answers` maps each status to its text and its content type."""
    responses = {
        code: {"description": text, "content": {kind: {"schema": {} if kind == _JSON else {"type": "string"}}}}
        for code, (text, kind) in answers.items()
    }
    about = {"operationId": name, "summary": summary, "tags": ["probes"], "security": [{}], "responses": responses}
    return {"get": about}


def _plain_paths() -> dict[str, Any]:
    """Returns the paths that are no operation: for orchestrators, for Prometheus, and for readers of this document."""
    return {
        "/health/live": _plain_path("live", "Whether the process answers", {"200": ("It does", _JSON)}),
        "/health/ready": _plain_path(
            "ready",
            "Whether it can serve, and why not",
            {"200": ("It can", _JSON), "503": ("It cannot: `reasons` says why", _JSON)},
        ),
        "/v1/me": _plain_path(
            "me",
            "Who asks, and which operations that one may ask",
            {
                "200": ("Name, roles, operations", _JSON),
                "401": (PROBLEMS["401"], _JSON),
                "429": (PROBLEMS["429"], _JSON),
            },
        ),
        "/metrics": _plain_path(
            "metrics",
            "For Prometheus",
            {"200": ("Metrics", "text/plain"), "401": (PROBLEMS["401"], _JSON), "429": (PROBLEMS["429"], _JSON)},
        ),
        "/v1/openapi.json": _plain_path(
            "openapi",
            "This document",
            {"200": ("OpenAPI 3.1", _JSON), "401": (PROBLEMS["401"], _JSON), "429": (PROBLEMS["429"], _JSON)},
        ),
    }

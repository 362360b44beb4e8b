"""The OpenAPI document: valid, complete, and true of a real manager whatever is sent to it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.nodes.gate.served import World
from tests.nodes.served import Served
from tests.soak import sized
from tools.servers.process import CannotStart

from tenure.control.messages.operations import OPERATIONS, AtGate
from tenure.control.messages.wire import Placed
from tenure.control.openapi import document
from tenure.nodes.gate.datacenter_links import GATHERED
from tools.servers import client_generator

DOCUMENT: dict[str, Any] = json.loads(document())
EXAMPLES = sized("requests of each operation that the document allows", short=2, long=20)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_document_is_valid_by_the_specification() -> None:
    validator = pytest.importorskip(
        "openapi_spec_validator", reason="openapi-spec-validator is not installed: make dev"
    )
    validator.OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_every_reference_leads_somewhere_and_every_type_is_used() -> None:
    whole = DOCUMENT
    found = set(references(whole))
    for reference in found:
        place: Any = whole
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
    used = {reference.rpartition("/")[2] for reference in found if "/schemas/" in reference}
    assert used == set(whole["components"]["schemas"])


def test_every_operation_is_in_it_with_its_methods_fields_and_answers() -> None:
    paths = DOCUMENT["paths"]
    for operation in OPERATIONS:
        path = paths[f"/v1/{operation.name}"]
        assert set(path) == ({"post", "get"} if operation.reads else {"post"})
        assert path["post"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith(
            f"/{operation.reply.__name__}"
        )
        if operation.reads:
            names = {parameter["name"] for parameter in path["get"]["parameters"]}
            assert names == set(operation.request.__struct_fields__)
    ids = [one["operationId"] for path in paths.values() for one in path.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
@pytest.mark.timeout(600)  # a dozen seconds on a quiet machine
def test_a_manager_that_is_asked_anything_that_its_document_allows_answers_as_the_document_says() -> None:
    with Served() as node:
        node.ask("/v1/submit", {"submission": {"job_id": "j-1", "workflows": [{"name": "w"}]}})
        asked = ask_anything(node.host, EXAMPLES)
        assert node.ask("/health/ready").status == 200
        assert node.ask("/v1/job?job_id=j-1").status == 200
    assert len(asked) == sum(len(path) for path in DOCUMENT["paths"].values())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_gate_answers_so_too_and_knows_every_operation(tmp_path: Path) -> None:
    with World(tmp_path, gates=1) as world:
        asked = ask_anything(world.gates[0].address, 1, {"datacenter": "a"})
        assert world.ask("/health/ready").status == 200
        assert world.ask("/v1/nodes").status == 200
    assert len(asked) == sum(len(path) for path in DOCUMENT["paths"].values())


NO_SCHEMA_CAN_SAY = {
    "an order between fields": r"ladder of time does not stand upright|retry delay of .* at most max_delay|makes up for all missed runs",
    "references between fields": r"workflow names must be unique|which is not in this job|in a circle",
    "one of two fields": r"(both|neither) of cron and every_s|every_s is .* at least 1 s|after is given without a mailbox|idempotency key, so it could run only once"
    r"|which one job can do, and no schedule|cannot run the compensations of|names a place of its arguments, and only a leader does",
    "a grammar": r"cron expression|the body of '[a-z_]+' cannot be read|there is no request",
    "a size of many fields together": r"submission is .* bytes|arguments of .* bytes",
    "integers in a user's own JSON": r"an integer in the arguments of",
    "roles": r"this node has no token, and lets everybody in",
    "what there is here": r"is not known on this machine|job '.*' has (no workflow|\d+ workflows)|attempt is \d+, and must be between",
    "which node is asked": r"is for datacenter|takes this for datacenter|a gate passes on what is about|this is a gate, and|does not know the datacenter"
    r"|is for one datacenter, and this gate has|which this gate does not know|needs \d+ datacenters|each once, and has|next page is of one mailbox",
}
"""Why a request that the document allows may be answered with 422: the kind of rule, and its words. Nothing else may be."""


def refused_though_allowed(status: int, problem: Any) -> str:
    """What is wrong with this answer to a request that the document allows; empty when nothing is."""
    if status in (200, 307, 404, 409, 503):
        return ""
    fact = str((problem or {}).get("fact", ""))
    if status == 422 and any(re.search(words, fact) for words in NO_SCHEMA_CAN_SAY.values()):
        return ""
    if status == 403 and "not for tokens that are bound to" in fact:
        return ""  # a request that a gate passes on carries the bounds of its caller, and is held within them
    if status == 400 and "Invalid RFC3339" in fact:
        return ""  # `format` only annotates in JSON Schema, so a generator may write any text there
    return f"{status}: {fact}"


def ask_anything(address: str, examples: int, instead: dict[str, Any] | None = None) -> Counter[str]:
    """How often each operation was asked. `instead`: fields that would mostly miss are given these values, every other time."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: make dev")
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    asked: Counter[str] = Counter()

    def ask(case: Any) -> None:
        for part in (case.query, case.body):
            if isinstance(part, dict):
                known = {field: value for field, value in (instead or {}).items() if field in part}
                part |= known if sum(asked.values()) % 2 else {}
                if "wait_s" in part:
                    part["wait_s"] = 0.01  # a document may not say that waiting takes its time
        case.headers = {**(case.headers or {}), "Accept": "application/json"}
        response = case.call(base_url=f"http://{address}", timeout=30)
        if response.status_code == 400 and len(response.request.url) > 8_000:
            return  # the HTTP library refuses a request line of more than 8,190 bytes by itself, before anything of ours sees it
        away = instead is not None and response.status_code == 503  # a gate may say so of a datacenter
        case.validate_response(response, checks=checks[1:] if away else checks)
        if case.meta.generation.mode.is_positive:
            why = refused_though_allowed(response.status_code, response.json() if response.status_code != 200 else None)
            assert not why, f"{case.operation.label} with {case.query or case.body}: {why}"
        asked[case.operation.label] += 1

    frugal = settings(
        max_examples=examples * sized("times as many requests from the OpenAPI description", short=1, long=10),
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations():
        operation = found.ok()
        frugal(given(case=operation.as_strategy())(ask))()
        with suppress(Unsatisfiable):  # where nothing can be wrong
            frugal(given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))(ask))()
    return asked


@pytest.mark.slow
def test_a_generator_of_clients_reads_the_document_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_bytes(document())
    try:
        found = client_generator.generate(tmp_path / "openapi.json", tmp_path / "made")
    except CannotStart as why:
        pytest.skip(f"openapi-python-client cannot be had here: {why}")
    assert (found.returncode, found.stderr) == (0, "")
    assert "arning" not in found.stdout, found.stdout
    assert len(list((tmp_path / "made" / "api").rglob("*.py"))) > len(OPERATIONS)
    queue = (tmp_path / "made" / "models" / "change_queue.py").read_text()
    assert "rate: float | None | Unset" in queue or "rate: None | float | Unset" in queue


def bounds_of(name: str, field: str) -> dict[str, Any]:
    return DOCUMENT["components"]["schemas"][name]["properties"][field]


def test_the_document_states_each_limit() -> None:
    queue = bounds_of("JobSubmission", "queue")
    assert (queue["minLength"], queue["maxLength"], queue["pattern"]) == (0, 115, "^([A-Za-z0-9][A-Za-z0-9._/-]*)?$")
    assert (bounds_of("Cancel", "reason")["maxLength"], bounds_of("Cancel", "job_id")["maxLength"]) == (2_000, 200)
    assert (bounds_of("WorkerReport", "worker")["maxLength"], bounds_of("SubmitMany", "submissions")["maxItems"]) == (
        100,
        1_000,
    )
    rate = next(one for one in bounds_of("ChangeQueue", "rate")["anyOf"] if one["type"] == "number")
    assert (rate["minimum"], rate["maximum"]) == (1e-9, 1e6)
    host, port = bounds_of("JobSubmission", "gate_addr")["anyOf"][0]["prefixItems"]
    assert "pattern" in host
    assert (port["minimum"], port["maximum"]) == (1, 65_535)
    parameters = {one["name"]: one["schema"] for one in DOCUMENT["paths"]["/v1/jobs"]["get"]["parameters"]}
    assert (parameters["limit"]["minimum"], parameters["limit"]["maximum"]) == (1, 1_000)


def test_every_operation_says_what_a_gate_makes_of_it() -> None:
    for operation in OPERATIONS:
        described = DOCUMENT["paths"][f"/v1/{operation.name}"]["post"]
        assert described["x-tenure-at-gate"] == operation.at_gate.value
        assert "At a gate: " in described["description"]
        passes = operation.at_gate in (AtGate.GATHERED, AtGate.PASSED)
        assert not passes or issubclass(operation.request, Placed)
        reply = DOCUMENT["components"]["schemas"][operation.reply.__name__]["properties"]
        assert ("missing" in reply) == (operation.at_gate is AtGate.GATHERED)
    gathered = {operation.request for operation in OPERATIONS if operation.at_gate is AtGate.GATHERED}
    assert gathered == set(GATHERED)

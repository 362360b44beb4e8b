"""Who may do what, as a matrix: every operation, asked by every role with every kind of bound, of a manager and of a gate on real ports.

The tables below are written by hand and not taken from the code: an operation that is added, or whose role or bound changes, fails here until somebody
has thought about it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from tests.nodes.gate.served import LoneGate
from tests.nodes.served import Answer, Served
from tests.patience import wait_until

from tenure.control.admission import HttpLimits
from tenure.control.messages.operations import OPERATIONS, Role
from tenure.control.messages.tokens import Token
from tenure.control.tokens import TokenBook

STEERING = "pause_job resume_job retime_job move_job signal_job"
JOB = f"job cancel why result retry logs evidence output {STEERING}"
READS_JOBS = "job jobs ended why schedules events result logs evidence output queues overview nodes leader gate workflows thresholds"
MAY = {
    "reader": set(READS_JOBS.split()),
    "client": {
        *READS_JOBS.split(),
        *["submit", "submit_many", "cancel", "retry", "set_schedule", "drop_schedule", "trigger_schedule"],
        *STEERING.split(),
    },
    "worker": {"report", "extend"},
}
MAY["operator"] = MAY["client"] | {
    "pause",
    "resume",
    "set_queue",
    "drain",
    "undrain",
    "hold_name",
    "release_name",
    "dead_letters",
    "dead_letter",
    "replay",
    "discard",
    "create_token",
    "revoke_token",
    "tokens",
}
MAY["node"] = MAY["client"] | MAY["worker"] | {"tell_datacenter", "tell_gate", "datacenter", "forward", "tell_revoked"}
WITHIN = {
    **dict.fromkeys(JOB.split(), "job"),
    **dict.fromkeys(["submit", "submit_many"], "submission"),
    **dict.fromkeys(["set_schedule", "drop_schedule", "trigger_schedule"], "schedule"),
    **dict.fromkeys(["pause", "resume", "set_queue"], "queue"),
    **dict.fromkeys(["jobs", "ended", "events", "schedules"], "cut"),
    "queues": "queues",
    "leader": "open",
}
"""How a caller that is bound to queues or labels is held within them; such a caller is refused everything that is not here."""


class Caller(NamedTuple):
    """One line of the file of tokens, and what the matrix has to know of it."""

    role: str
    bounds: Mapping[str, Any] = MappingProxyType({})

    @property
    def scoped(self) -> bool:
        return bool(self.bounds.keys() & {"queues", "labels"})

    @property
    def elsewhere(self) -> bool:
        return str(self.bounds.get("datacenter", "a")) != "a"


QUEUE, LABEL = {"queues": ["mine/*"]}, {"labels": {"team": "mine"}}
CALLERS = {
    **{role: Caller(role) for role in MAY},
    **{f"{role} of a queue": Caller(role, QUEUE) for role in ("reader", "client", "operator")},
    **{f"{role} of a label": Caller(role, LABEL) for role in ("reader", "client", "operator")},
    "client of both": Caller("client", {**QUEUE, **LABEL}),
    "client with a quota": Caller("client", {"max_jobs": 50}),
    **{f"{role} of datacenter a": Caller(role, {"datacenter": "a"}) for role in ("client", "operator", "worker")},
    **{f"{role} of datacenter z": Caller(role, {"datacenter": "z"}) for role in MAY},
    "worker w-mine": Caller("worker", {"worker": "w-mine*"}),
}
NOBODY = {"nobody": "", "a guess": "guess", "expired": "expired", "revoked": "revoked"}


def sha(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def written(folder: Path) -> str:
    entries = [
        {"name": name.replace(" ", "-"), "role": one.role, "sha256": sha(name), **one.bounds}
        for name, one in CALLERS.items()
    ]
    entries.append({"name": "gone", "role": "operator", "sha256": sha("expired"), "expires": "2020-01-01T00:00:00Z"})
    entries.append({"name": "out", "role": "operator", "sha256": sha("revoked")})
    path = folder / "tokens.json"
    path.write_text(json.dumps({"tokens": entries}))
    return str(path)


def submission(whose: str, job_id: str, **more: Any) -> dict[str, Any]:
    labels = {"team": whose, "note": f"secret of {whose}"}
    return {"job_id": job_id, "workflows": [{"name": "w"}], "queue": f"{whose}/q", "labels": labels, **more}


def bodies(whose: str, placed: dict[str, str]) -> dict[str, dict[str, Any]]:
    """A request of each operation about things of `mine` or of `theirs`."""
    job, queue, schedule = {"job_id": f"{whose}-1", **placed}, {"queue": f"{whose}/q", **placed}, {"name": f"{whose}-s"}
    letter = {"mailbox": "default.p0", "id": "1", **placed}
    asked = {
        "worker_id": f"w-{whose}",
        "reason": "long_workflow",
        "current_progress": 0.5,
        "estimated_completion": 1.0,
        "active_workflow_count": 1,
    }
    targets = {"target_datacenters": ["a"]}
    return {
        **dict.fromkeys(JOB.split(), job),
        **{name: {**job, "reason": "because"} for name in STEERING.split()},
        "signal_job": {**job, "name": "approved", "signal_id": "s-1"},
        "submit": {"submission": submission(whose, f"{whose}-1", **targets)},
        "submit_many": {"submissions": [submission(whose, f"{whose}-1", **targets)]},
        "set_schedule": {
            "schedule": {"name": f"{whose}-s", "job": submission(whose, "s"), "every_s": 86_400},
            **placed,
        },
        "drop_schedule": {**schedule, **placed},
        "trigger_schedule": {**schedule, "job_id": f"{whose}-t", **placed},
        **dict.fromkeys(
            ("jobs", "events", "schedules", "queues", "overview", "nodes", "tokens", "workflows", "thresholds"), placed
        ),
        **dict.fromkeys(("pause", "resume", "set_queue"), queue),
        "drain": {"node": f"w-{whose}", **placed},
        "undrain": {"node": f"w-{whose}", **placed},
        "hold_name": {"name": f"s3-{whose}", **placed},
        "release_name": {"name": f"s3-{whose}", **placed},
        "dead_letters": placed,
        **dict.fromkeys(("dead_letter", "replay", "discard"), letter),
        "create_token": {"token": {"name": "late", "role": "client", "sha256": sha("late")}, **placed},
        "revoke_token": {"id": "0" * 16, **placed},
        "tell_revoked": {"ids": []},
        "report": {"worker": f"w-{whose}"},
        "extend": {"request": asked},
        "tell_datacenter": {"datacenter": "a"},
        "tell_gate": {"datacenter": "a", "manager": "m", "words": []},
        "ended": {"job_ids": [f"{whose}-1"], **placed},
        "forward": {"name": "jobs", "body": {"type": "jobs", **placed}},
        **{name: {} for name in ("leader", "datacenter", "gate")},
    }


def variants(whose: str, placed: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Fields that make more of an operation than its plain request."""
    return [
        ("retry", {"job_id": f"{whose}-1", "from_step": "s", **placed}),
        ("set_queue", {"queue": f"{whose}/q", PREEMPTS: 3_600.0, **placed}),
        ("ended", {"job_ids": [f"{whose}-1", "theirs-1"], **placed}),
    ]


PREEMPTS = "preempt_after"
"""It takes slots of work in other queues, so it is for nobody who is bound to some."""
UNPLACED = {"gate", "datacenter", "report", "extend", "tell_revoked"}
"""Requests that name no datacenter: at a gate they are not for tokens that count in one only."""
Expected = Callable[[Answer], bool]
FORBIDDEN: Expected = lambda answer: answer.status == 401  # noqa: E731
DENIED: Expected = lambda answer: answer.status == 403  # noqa: E731
UNKNOWN: Expected = lambda answer: answer.status == 404 and "there is no" in answer.body["fact"]  # noqa: E731
LET_IN: Expected = lambda answer: answer.status not in (400, 401, 403, 500)  # noqa: E731


def expected(operation: str, caller: Caller, whose: str, at_gate: bool) -> Expected:
    """The oracle. What is not refused here is let in."""
    if operation not in MAY[caller.role]:
        return DENIED
    if at_gate and "datacenter" in caller.bounds:
        if operation == "leader":
            return LET_IN
        if operation in UNPLACED:
            return DENIED
    if caller.elsewhere:
        return DENIED
    theirs = whose == "theirs"
    if theirs and "worker" in caller.bounds:
        return DENIED
    if "max_jobs" in caller.bounds and operation in ("set_schedule", "trigger_schedule"):
        return DENIED
    if not caller.scoped:
        return LET_IN
    within, labelled = WITHIN.get(operation), "labels" in caller.bounds
    refused = (
        within is None
        or (within == "queues" and labelled)
        or (within == "queue" and (theirs or labelled))
        or (theirs and (within == "submission" or operation == "set_schedule"))
    )
    if refused:
        return DENIED
    return UNKNOWN if theirs and within in ("job", "schedule") else LET_IN


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("tokens"))


LIMITS = HttpLimits(wrong_tokens_per_s=1e6, wrong_tokens_burst=1e6)


@pytest.fixture(scope="module")
def manager(tokens: str) -> Iterator[Served]:
    with Served(tokens_file=tokens, token="node", datacenter="a", limits=LIMITS) as node:
        assert node.ask("/v1/revoke_token", {"id": sha("revoked")[:16]}, token="operator").status == 200
        yield node


@pytest.fixture(scope="module")
def gate(tokens: str, manager: Served) -> Iterator[Served]:
    with LoneGate({"a": [manager.host]}, tokens_file=tokens, token="node", limits=LIMITS) as node:
        assert node.ask("/v1/revoke_token", {"id": sha("revoked")[:16]}, token="operator").status == 200
        yield node


def fill(node: Served, placed: dict[str, str]) -> None:
    for whose in ("mine", "theirs"):
        asked = bodies(whose, placed)
        assert node.ask("/v1/submit", asked["submit"], token="node").status == 200
        assert node.ask("/v1/set_schedule", asked["set_schedule"], token="node").status == 200
        wait_until(lambda whose=whose: node.ask(f"/v1/job?job_id={whose}-1", token="node").status == 200)  # type: ignore[misc]


def run_matrix(node: Served, placed: dict[str, str], callers: Mapping[str, Caller] = CALLERS) -> int:
    """Asks everything in the name of everybody; `placed` names the datacenter, where the node is a gate. Returns the number of requests."""
    asked = 0
    # Those who may see least ask first: later ones drop schedules, and what is gone is unknown to everybody.
    order = sorted(callers.items(), key=lambda one: (not one[1].scoped, MAY[one[1].role] > MAY["client"]))
    for name, caller in order:
        for whose in ("mine", "theirs"):
            for operation, body in [*bodies(whose, placed).items(), *variants(whose, placed)]:
                answer = node.ask(f"/v1/{operation}", body, token=name)
                asked += 1
                meant = expected(operation, caller, whose, bool(placed))
                if caller.scoped and PREEMPTS in body:
                    meant = DENIED
                assert meant(answer), (name, operation, whose, answer.status, answer.body)
                if caller.scoped:
                    assert "secret of theirs" not in json.dumps(answer.body), (name, operation, answer.body)
                    if WITHIN.get(operation) == "cut":
                        assert "theirs" not in json.dumps(answer.body), (name, operation, answer.body)
    for secret in NOBODY.values():
        for operation, body in bodies("mine", placed).items():
            answer = node.ask(f"/v1/{operation}", body, token=secret)
            asked += 1
            assert FORBIDDEN(answer), (secret, operation, answer.status, answer.body)
    return asked


def test_the_tables_of_this_test_name_every_operation() -> None:
    names = {operation.name for operation in OPERATIONS}
    assert set(bodies("mine", {})) == names
    assert set().union(*MAY.values()) == names
    for operation in OPERATIONS:
        assert {role for role, may in MAY.items() if operation.name in may} == {
            role for role in MAY if operation.open_to(frozenset({*_roles(role)}))
        }, operation.name
        assert operation.within.value == WITHIN.get(operation.name, "nobody"), operation.name


def _roles(role: str) -> tuple[Any, ...]:
    made = TokenBook([Token(name="t", role=Role(role), sha256=sha("t"))]).identify("t")
    assert made is not None
    return tuple(made.roles)


def test_a_manager_does_for_each_caller_what_the_matrix_says(manager: Served) -> None:
    fill(manager, {})
    assert run_matrix(manager, {}) > 1_500


def test_a_gate_does_for_each_caller_what_the_matrix_says(gate: Served) -> None:
    placed = {"datacenter": "a"}
    fill(gate, placed)
    # The gate's own answers, then those of the datacenter that is named.
    own = {name: one for name, one in CALLERS.items() if one.scoped}
    assert run_matrix(gate, {}, own) + run_matrix(gate, placed) > 1_900

"""What is written down of being asked: changes, with who asked for them, also when a gate passed them on; never what only reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tenure.control.access_log import AccessLog
from tenure.control.admission import AdmittedCaller
from tenure.control.messages.gates import Forward, GateHeard, TellGate
from tenure.control.messages.jobs import Cancel, Done, GetJob
from tenure.control.messages.nodes import DrainNode
from tenure.control.messages.wire import LeaderView, Problem, ProblemKind, Request
from tenure.control.tokens import CallerIdentity
from tenure.jobs.decisions import Outcome

DONE = Done(job_id="j", outcome=Outcome.ACCEPTED, epoch=1)
GATE = AdmittedCaller(CallerIdentity("nick"), "10.0.9.1")


def passed(request: Request) -> Forward:
    name = str(request.__struct_config__.tag)
    return Forward(name=name, body=msgspec.Raw(msgspec.json.encode(request)), by="gate-1")


def written(request: Request, reply: Any = DONE, caller: AdmittedCaller = GATE) -> list[dict[str, str]]:
    lines: list[str] = []
    AccessLog(lines.append).wrote("r-1", caller, request, reply)
    return [json.loads(line) for line in lines]


def test_a_change_that_a_gate_passed_on_is_written_as_what_it_is_with_both_names() -> None:
    (line,) = written(passed(DrainNode(node="worker-7", by="olga", datacenter="eu")))
    assert (line["operation"], line["about"], line["by"]) == ("drain", "worker-7", "nick: olga")
    (direct,) = written(Cancel(job_id="j", by="carl"), caller=AdmittedCaller(CallerIdentity(), "127.0.0.1"))
    assert (direct["operation"], direct["about"], direct["by"]) == ("cancel", "j", "carl")


def test_what_only_reads_and_what_nodes_say_all_the_time_is_not_written() -> None:
    view = LeaderView(leader="", address="", epoch=0, leads=False, seq=0)
    assert written(passed(GetJob(job_id="j")), view) == []
    report = TellGate(datacenter="eu", manager="m", words=())
    assert written(report, GateHeard()) == written(passed(report), GateHeard()) == []
    assert written(passed(DrainNode(node="w")), Problem(kind=ProblemKind.UNAVAILABLE, fact="nobody leads")) == []

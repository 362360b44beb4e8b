"""What is written down of being asked: changes, with who asked for them, also when a gate passed them on; never what only reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.control.access_log import AccessLog, LineGroups, PortMetrics
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


def test_audit_lines_are_written_together_a_moment_later_and_what_waits_at_the_end_too() -> None:
    async def main() -> None:
        written: list[list[str]] = []
        done = asyncio.Event()

        def write(lines: Sequence[str]) -> None:
            written.append(list(lines))
            done.set()

        groups = LineGroups(write)
        groups.add("first")
        groups.add("second")
        assert written == []
        await done.wait()
        groups.add("third")
        groups.write()
        groups.write()
        assert written == [["first", "second"], ["third"]]

    asyncio.run(main())


def test_answers_are_counted_by_operation_and_status() -> None:
    metrics = PortMetrics()
    for operation, status in (("submit", 200), ("submit", 200), ("submit", 409), ("", 404)):
        metrics.answered(operation, status, 0.01)
    told = metrics.render()[0].decode()
    for line in (
        'tenure_http_requests_total{operation="submit",status="200"} 2.0',
        'tenure_http_requests_total{operation="submit",status="409"} 1.0',
        'tenure_http_requests_total{operation="other",status="404"} 1.0',
        'tenure_http_request_seconds_count{operation="submit"} 3.0',
    ):
        assert line in told

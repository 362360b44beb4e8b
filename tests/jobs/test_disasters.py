"""Twelve disasters, and the first screen of `why` after each: it must answer "who ended my job, and what do I do?".

`TENURE_GOLDEN=1 pytest tests/jobs/test_disasters.py` writes the screens anew: read each against that question. What a worker finds (exit, stacks,
traceback, beats) is as real workers write it; `tests/process/slots/test_faults.py` makes them write it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.jobs.desk import Desk, spec
from tests.jobs.test_why import both

from tenure.backoff import Retry
from tenure.jobs.attempt_evidence import evidence_of
from tenure.jobs.catalogue import RegisterWorkflows, offer_digest
from tenure.jobs.gate_exchange import ObeyGlobalCancel
from tenure.jobs.gate_jobs import GateCancel
from tenure.jobs.gate_outbox import owed
from tenure.jobs.states import AttemptCause
from tenure.jobs.why import Why, attempts_to_look_at, why
from tenure.jobs.workers import EvictWorker, ForgetWorker
from tenure.served_workflow import ServedWorkflow

GOLDEN = Path(__file__).parent / "golden"
SCREEN_LINES = 24
START = 1_700_000_000.0
ONCE = Retry(max_attempts=1)


def begun(**options: object) -> Desk:
    desk = Desk(at=START)
    desk.submit("encode-7", spec("encode", retry=ONCE), **options)  # type: ignore[arg-type]
    desk.at += 1
    desk.run("encode-7", "encode", worker="worker-3")
    return desk


def told(desk: Desk, kept: dict[str, object] | None = None, log: tuple[str, ...] = ()) -> Why:
    """The answer with what the store has of the last failed attempt, as the manager puts it together."""
    found = why(desk.book, "encode-7")
    attempts = attempts_to_look_at(desk.book.job("encode-7"))
    evidence = tuple(evidence_of(*one, kept, log) for one in attempts) if kept or log else ()
    return msgspec.structs.replace(found, found=evidence)


def died(cause: AttemptCause, word: str, reason: str, log: tuple[str, ...] = (), **found: str) -> Why:
    """An attempt of worker-3 that ended after a minute without a result."""
    desk = begun()
    desk.at += 60
    evidence = {"cause": word, "beats": 412, "seconds": 60.0}
    if "place" in found:
        evidence["place"] = found["place"]
    retryable = word not in ("bad_arguments", "unknown_workflow")
    desk.fail(
        "encode-7",
        "encode",
        cause=cause,
        worker="worker-3",
        error=f"{word}: {reason}",
        retryable=retryable,
        evidence=evidence,
    )
    beats = json.dumps([[0.0, 1], [20.0, 140], [40.0, 281], [60.0, 412]])
    return told(desk, {"cause": word, "reason": reason, "evidence": {"beats": beats, "silent_s": "0.2", **found}}, log)


def stall_in_c() -> Why:
    stack = (
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/usr/lib/python3/dist-packages/zlib_wrap.py", line 88 in compress\n'
        '  File "/srv/media/encode.py", line 41 in encode\n'
        "  (11 frames of Tenure are not shown)"
    )
    return died(
        AttemptCause.STALL,
        "stall",
        "no beat for 30.1 s, allowed are 30 s (its last note: frame 412); its slot was killed",
        stacks=stack,
        place="/srv/media/encode.py:41, in encode",
        note="frame 412",
        silent_s="30.1",
    )


def out_of_memory() -> Why:
    log = ("22:14:10 info frame 411: 480 MB", "22:14:12 info frame 412: 505 MB")
    reason = "killed by the kernel for memory (peak 512 MB)"
    return died(
        AttemptCause.CRASH,
        "memory",
        reason,
        log,
        peak_memory="512 MB",
        signal="SIGKILL",
        cgroup_oom_kills="3 before, 4 now",
    )


def segfault() -> Why:
    stack = (
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/srv/media/codec.py", line 12 in decode\n'
        '  File "/srv/media/encode.py", line 38 in encode\n'
        "  (11 frames of Tenure are not shown)"
    )
    return died(
        AttemptCause.CRASH,
        "killed",
        "the slot process died of SIGSEGV",
        stacks=stack,
        place="/srv/media/codec.py:12, in decode",
        signal="SIGSEGV",
        peak_memory="88 MB",
    )


def evicted_worker() -> Why:
    desk = begun()
    desk.at += 61
    desk.do(EvictWorker(by="m1", worker="worker-3", reason="no report for 61 s"))
    return told(desk)


def lost_lease_of_a_stopped_machine() -> Why:
    desk = begun()
    desk.at += 20
    desk.advance(140, "encode-7", "encode", worker="worker-3", fraction=0.3)
    desk.at += 75
    desk.advance(1, "encode-7", "encode", worker="worker-5", delivery=2, evidence={"silent_for": 74.8})
    return told(desk)


def poison_argument() -> Why:
    return died(AttemptCause.ERROR, "bad_arguments", "encode(): quality: expected `int`, got `str`")


def engine_full() -> Why:
    reason = "its outcome could not be handed over: it ended 300 s ago, and nothing was written; its slot was killed"
    trouble = "cannot settle encode yet: the engine is full: disk full (/var/lib/tenure.db)"
    return died(AttemptCause.CRASH, "unsettled", reason, last_trouble=trouble)


def deadline_missed_by_three_seconds() -> Why:
    desk = begun(timeout_seconds=300.0)
    for step in range(1, 6):
        desk.at += 59
        desk.advance(step * 60, "encode-7", "encode", worker="worker-3", fraction=step * 0.198)
    desk.at = desk.due("encode-7")
    desk.check("encode-7")
    return told(desk)


def cancelled_by_a_gate() -> Why:
    desk, gate = both()
    gate.at = desk.at = desk.at + 40
    gate.do(GateCancel(by="ada", job_id="encode-7", reason="wrong customer"))
    message = next(one.message for one in owed(gate.tracker, gate.tracker.job("encode-7")) if one.datacenter == "dc-a")
    desk.do(ObeyGlobalCancel(message=message, identity=desk.identity))  # type: ignore[arg-type]
    return told(desk)


def dead_provider() -> Why:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/srv/agents/review.py", line 27, in review\n'
        "    plan = llm.complete(prompt)\n"
        "tenure.errors.work.ProviderUnavailableError: the provider is out of reach: connection refused\n"
        "(9 frames of Tenure are not shown)\n"
    )
    return died(
        AttemptCause.ERROR,
        "exception",
        "ProviderUnavailableError: the provider is out of reach: connection refused",
        ("22:14:20 warning the provider does not answer, attempt 5 of 5",),
        traceback=trace,
        place="/srv/agents/review.py:27, in review",
    )


def unknown_version() -> Why:
    desk = Desk(at=START)
    lanes = ("default.p0",)
    for worker, version in (("worker-3", "1"), ("worker-9", "2")):
        served = (ServedWorkflow(name="encode", version=version),)
        offer = offer_digest(lanes, served)
        desk.do(RegisterWorkflows(worker=worker, incarnation="i1", offer=offer, lanes=lanes, workflows=served))
    desk.do(
        ForgetWorker(worker="worker-9", reason="it left")
    )  # a version that nobody ever served is refused at the door
    desk.submit("encode-7", spec("encode", retry=ONCE, version="2"))
    desk.book.wake(desk.at)
    return told(desk)


def leader_change_in_the_middle() -> Why:
    desk = begun()
    desk.at += 20
    desk.advance(140, "encode-7", "encode", worker="worker-3", fraction=0.3)
    desk.at += 4
    desk.elect("m2")
    desk.at += 30
    desk.result("encode-7", "encode", worker="worker-3", result=1)
    return told(desk)


DISASTERS: dict[str, tuple[Callable[[], Why], str, str]] = {
    "stall-in-c": (stall_in_c, "Tenure killed it", "ctx.silence"),
    "out-of-memory": (out_of_memory, "The kernel killed it for memory", "more memory"),
    "segfault": (segfault, "Native code crashed its process", "extension"),
    "evicted-worker": (evicted_worker, "Its worker was evicted", "tenure nodes"),
    "lost-lease": (lost_lease_of_a_stopped_machine, "worker-3 lost the lease", "tenure watch"),
    "poison-argument": (poison_argument, "Its arguments do not fit", "Submit it with others"),
    "engine-full": (engine_full, "could not be handed over", "tenure doctor"),
    "deadline-missed": (deadline_missed_by_three_seconds, "Its deadline passed", "more time"),
    "cancelled-by-a-gate": (cancelled_by_a_gate, "A cancel at the gate ended it", "tenure retry"),
    "dead-provider": (dead_provider, "The provider of the model failed it", "the provider's status"),
    "unknown-version": (unknown_version, "waits for", "tenure worker"),
    "leader-change": (leader_change_in_the_middle, "m2 took over the lead while it ran", "tenure result"),
}


@pytest.mark.parametrize("name", DISASTERS)
def test_the_first_screen_says_who_ended_the_job_and_what_to_do(name: str) -> None:
    story, who, what = DISASTERS[name]
    screen = "\n".join(str(story()).split("\n")[:SCREEN_LINES]).rstrip() + "\n"
    path = GOLDEN / f"disaster-{name}.txt"
    if os.environ.get("TENURE_GOLDEN"):
        path.write_text(screen)
    assert screen == path.read_text()
    answer, step = screen.split("\n")[1:3]
    assert who in answer
    assert step.startswith("Next: ")
    assert what in step


def test_there_are_the_twelve_that_the_issue_names() -> None:
    assert len(DISASTERS) == 12

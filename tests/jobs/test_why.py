"""What `why` prints, kept as transcripts. `TENURE_GOLDEN=1 pytest tests/jobs/test_why.py` writes them anew: read the diff."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.jobs.desk import GATE, Desk, GateDesk, spec, submission

from tenure.backoff import Retry
from tenure.jobs import JobBook, JobSettings, Rule
from tenure.jobs.attempts import RecordStarted
from tenure.jobs.endings import CancelJob, ConfirmCleaned
from tenure.jobs.extensions import DenyExtension, ExtendJob
from tenure.jobs.gate_decisions import CheckGlobal
from tenure.jobs.gate_exchange import ObeyGlobalTimeout
from tenure.jobs.gate_jobs import GateSubmit
from tenure.jobs.gate_outbox import owed
from tenure.jobs.gate_reports import HearCorrection, HearProgress, HearTimeout
from tenure.jobs.reason_text import RULES, seconds
from tenure.jobs.states import AttemptCause
from tenure.jobs.why import why, why_everywhere
from tenure.jobs.why_answer import AttemptRun, Why, utc
from tenure.jobs.workers import EvictWorker, JudgeWorker

GOLDEN = Path(__file__).parent / "golden"
START = 1_700_000_000.0


def begun(*specs: object, **options: object) -> Desk:
    desk = Desk(at=START)
    desk.submit("encode-7", *(specs or (spec("encode"),)), **options)  # type: ignore[arg-type]
    return desk


def run(desk: Desk, worker: str, attempt: int = 1, **options: int) -> None:
    desk.run("encode-7", "encode", worker=worker, attempt=attempt, **options)


def advance(desk: Desk, steps: int, worker: str = "w1", attempt: int = 1, **options: object) -> None:
    desk.advance(steps, "encode-7", "encode", worker=worker, attempt=attempt, **options)


def stall() -> Why:
    """A workflow that falls silent twice, and is given up."""
    desk = begun(spec("encode", stall=60, retry=Retry(max_attempts=2, delay=5, jitter=0)), timeout_seconds=3_600)
    desk.at += 2
    run(desk, "w1")
    desk.at += 70
    advance(desk, 412, fraction=0.31, note="frame 412")
    desk.at += 75
    desk.fail(
        "encode-7",
        "encode",
        cause=AttemptCause.STALL,
        worker="w1",
        error="no beat for 60 s",
        dump_key="dumps/encode-7/encode/1",
        evidence={"silent_for": 75.0},
    )
    desk.at += 6
    run(desk, "w2", 2)
    desk.at += 61
    desk.fail(
        "encode-7",
        "encode",
        attempt=2,
        cause=AttemptCause.STALL,
        worker="w2",
        error="no beat for 60 s",
        dump_key="dumps/encode-7/encode/2",
        evidence={"silent_for": 61.0},
    )
    return why(desk.book, "encode-7")


def eviction() -> Why:
    """A worker drained, then evicted; the work ends well elsewhere."""
    desk = begun()
    run(desk, "w1")
    desk.at += 60
    advance(desk, 40)
    desk.at += 31
    desk.do(JudgeWorker(by="m1", worker="w1", verdict="drain", reason="no completion and no progress for 31 s"))
    desk.at += 5
    desk.do(DenyExtension(by="m1", worker="w1", reason="No progress since last extension (was 0.4, now 0.4)"))
    desk.at += 25
    desk.do(EvictWorker(by="m1", worker="w1", reason="its healthcheck deadline passed 30 s ago"))
    desk.at += 1
    run(desk, "w2", 2)
    desk.at += 100
    desk.result("encode-7", "encode", attempt=2, worker="w2", result=1)
    return why(desk.book, "encode-7")


def local_timeout() -> Why:
    """Time ran out although it advanced, and although it earned more."""
    desk = begun(timeout_seconds=300.0)
    run(desk, "w1")
    for step, moment in enumerate((70, 210, 292, 322, 339), start=1):
        desk.at = START + moment
        advance(desk, step, fraction=step / 20)
        if moment > 290:
            ends = desk.at + 40.0
            evidence = {"estimated_completion": ends, "active_workflows": 1}
            since = step - (moment < 339)  # the last request shows no progress
            desk.do(
                ExtendJob(
                    by="leader",
                    job_id="encode-7",
                    worker="w1",
                    start="w1#1",
                    counter=step,
                    since=since,
                    progress=step / 20,
                    evidence=evidence,
                )
            )
    desk.elect("m2")
    desk.at = desk.due("encode-7")
    desk.check("encode-7")
    desk.do(ConfirmCleaned(job_id="encode-7"))
    return why(desk.book, "encode-7")


def stuck() -> Why:
    """Alive, and nothing advances."""
    desk = begun(timeout_seconds=3_600)
    run(desk, "w1")
    desk.at += 50
    advance(desk, 12)
    desk.at = desk.due("encode-7") + 1
    desk.check("encode-7")
    return why(desk.book, "encode-7")


def both(timeout: float = 600.0) -> tuple[Desk, GateDesk]:
    gate = GateDesk(at=START)
    asked = submission("encode-7", spec("encode"), timeout_seconds=timeout, gate_addr=GATE)
    gate.do(GateSubmit(by="client", submission=asked, target_datacenters=("dc-a", "dc-b")))
    desk = Desk(at=START)
    opening = owed(gate.tracker, gate.tracker.job("encode-7"))[0].message
    desk.submit(
        "encode-7",
        spec("encode"),
        **{
            name: getattr(opening, name)
            for name in ("timeout_seconds", "gate_addr", "gate_epoch", "target_datacenters", "global_submitted_at")
        },
    )
    run(desk, "w1")
    gate.do(HearProgress(report=desk.report("encode-7")))
    return desk, gate


def global_stories() -> tuple[Why, Why]:
    """Stuck here, a leader lost, a stale decision refused, and the same decision obeyed."""
    desk, gate = both()
    desk.at = gate.at = desk.due("encode-7") + 1
    desk.check("encode-7")
    gate.do(HearTimeout(report=desk.report("encode-7")))
    desk.at = gate.at = desk.at + 2
    desk.elect("m2")
    gate.do(CheckGlobal(job_id="encode-7"))
    for _ in range(2):
        desk.at = gate.at = desk.at + 1
        decision = next(
            item.message for item in owed(gate.tracker, gate.tracker.job("encode-7")) if item.datacenter == "dc-a"
        )
        answer = desk.do(ObeyGlobalTimeout(message=decision, identity=desk.identity)).reply  # type: ignore[arg-type]
        assert answer is not None
        gate.do(HearCorrection(correction=answer))
    return why(desk.book, "encode-7"), why_everywhere(gate.tracker, "encode-7")


def fallback() -> Why:
    """The gate is away for too long."""
    desk, _ = both()
    desk.at = desk.due("encode-7") + 1
    desk.check("encode-7")
    desk.at += 100
    desk.elect("m2")
    desk.check("encode-7")
    desk.at = desk.due("encode-7")
    desk.check("encode-7")
    return why(desk.book, "encode-7")


def lost_lease() -> Why:
    """The worker could not reach the engine, and gave the work up before another delivery could start."""
    desk = begun()
    run(desk, "w1")
    desk.at += 45
    advance(desk, 9)
    desk.at += 62
    desk.fail(
        "encode-7",
        "encode",
        cause=AttemptCause.LOST_LEASE,
        worker="w1",
        error="the engine was out of reach for 60 s",
    )
    desk.at += 2
    run(desk, "w2", 2)
    desk.at += 10
    desk.result("encode-7", "encode", attempt=2, worker="w2")
    return why(desk.book, "encode-7")


def stale_result() -> Why:
    """Two late results, of an older attempt and of an older delivery; neither counts."""
    desk = begun()
    run(desk, "w1")
    desk.at += 40
    desk.do(EvictWorker(by="m1", worker="w1", reason="no report for 40 s"))
    run(desk, "w2", 2)
    desk.at += 9
    desk.result("encode-7", "encode", attempt=1, worker="w1", delivery=1)
    desk.at += 60
    desk.do(RecordStarted(job_id="encode-7", workflow="encode", attempt=2, worker="w3", delivery=2))
    desk.at += 3
    desk.result("encode-7", "encode", attempt=2, worker="w2", delivery=1)
    desk.at += 30
    desk.result("encode-7", "encode", attempt=2, worker="w3", delivery=2)
    return why(desk.book, "encode-7")


def cancel() -> Why:
    """Cancelled by a person; a result that came too late is refused."""
    desk = begun()
    run(desk, "w1")
    desk.at += 33
    advance(desk, 5)
    desk.at += 3
    desk.do(CancelJob(by="ada", job_id="encode-7", reason="cancelled by ada: wrong file"))
    desk.do(ConfirmCleaned(job_id="encode-7"))
    desk.at += 2
    desk.result("encode-7", "encode", worker="w1", delivery=1)
    return why(desk.book, "encode-7")


STORIES: dict[str, Callable[[], Why]] = {
    "stall": stall,
    "eviction": eviction,
    "timeout-local": local_timeout,
    "timeout-stuck": stuck,
    "timeout-global": lambda: global_stories()[0],
    "timeout-global-gate": lambda: global_stories()[1],
    "timeout-fallback": fallback,
    "lost-lease": lost_lease,
    "stale-result": stale_result,
    "cancel": cancel,
}


@pytest.mark.parametrize("name", STORIES)
def test_why_tells_the_story(name: str) -> None:
    told = str(STORIES[name]())
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TENURE_GOLDEN"):
        path.write_text(told)
    assert told == path.read_text()


def test_why_is_data_too() -> None:
    answer = cancel()
    data = msgspec.to_builtins(answer)
    assert (data["state"], data["links"][-1]["kind"]) == ("cancelled", "ResultRefused")
    assert msgspec.convert(data, Why) == answer
    ended = next(link for link in answer.links if link.kind == "JobEnded")
    assert (ended.by, ended.rule, ended.evidence["running"]) == ("ada", Rule.ASKED, 1)


def test_why_survives_a_snapshot() -> None:
    desk = begun()
    run(desk, "w1")
    desk.do(CancelJob(job_id="encode-7"))
    restored = JobBook.restore(desk.book.snapshot(), desk.settings)
    assert str(why(restored, "encode-7")) == str(why(desk.book, "encode-7"))


def test_why_says_what_was_left_out() -> None:
    desk = Desk(at=START, settings=JobSettings(history_limit=10))
    desk.submit("j", spec(retry=Retry(max_attempts=20, delay=0)))
    for attempt in range(1, 20):
        desk.run(attempt=attempt)
        desk.fail(attempt=attempt)
    assert "(47 lines of routine were left out)" in str(why(desk.book, "j"))


def test_a_running_job_says_how_far_it_is() -> None:
    desk = begun(spec("encode"), spec("upload", after=("encode",)))
    run(desk, "w1")
    assert why(desk.book, "encode-7").summary == "running, 0 of 2 workflows completed, 1 running"


def test_every_rule_has_words() -> None:
    assert set(RULES) == set(Rule)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.5, "0.5 s"),
        (30.0, "30 s"),
        (58.125, "58.1 s"),
        (300.0, "5 min"),
        (3_599.0, "59 min 59 s"),
        (3_600.0, "1 h"),
        (9_000.0, "2 h 30 min"),
    ],
)
def test_spans_are_said_as_people_say_them(value: float, said: str) -> None:
    assert seconds(value) == said


def test_dates_are_right_without_a_calendar() -> None:
    assert utc(0.0) == "1970-01-01 00:00:00 UTC"
    assert utc(951_782_400.0) == "2000-02-29 00:00:00 UTC"
    assert utc(1_700_000_000.0) == "2023-11-14 22:13:20 UTC"
    assert utc(4_102_444_799.0) == "2099-12-31 23:59:59 UTC"


def runs(desk: Desk) -> list[tuple[object, ...]]:
    def told(one: AttemptRun) -> tuple[object, ...]:
        return (one.attempt, one.delivery, one.worker, one.started_at, one.ended_at, one.outcome)

    return [told(one) for one in why(desk.book, "j").runs]


def test_a_run_that_failed_and_the_one_that_goes_on_are_told_with_their_workers_and_times() -> None:
    desk = Desk()
    desk.submit("j", spec("w", retry=Retry(max_attempts=3, delay=1, jitter=0)))
    desk.run(worker="w1")
    desk.at = 20
    desk.fail(worker="w1", cause=AttemptCause.STALL, error="stall: no beat", evidence={"cause": "stall"})
    desk.at = 30
    desk.run(worker="w2", attempt=2)
    assert runs(desk) == [(1, 1, "w1", 0.0, 20, "stall"), (2, 1, "w2", 30, None, "")]
    desk.at = 40
    desk.result(worker="w2", attempt=2, result=1)
    assert runs(desk)[1] == (2, 1, "w2", 30, 40, "completed")


def test_a_delivery_that_lost_its_lease_ends_where_the_next_one_starts() -> None:
    desk = Desk()
    desk.submit("j", spec("w"))
    desk.run(worker="w1")
    desk.at = 75
    desk.advance(1, worker="w2", delivery=2)
    assert runs(desk) == [(1, 1, "w1", 0.0, 75, "lost its lease"), (1, 2, "w2", 75, None, "")]


def test_work_that_ended_before_its_first_report_began_as_long_ago_as_it_took() -> None:
    desk = Desk()
    desk.submit("j", spec("w", retry=Retry(max_attempts=1)))
    desk.at = 10
    desk.fail(worker="w1", error="exception: no", evidence={"cause": "exception", "seconds": 0.5})
    assert runs(desk) == [(1, 1, "w1", 9.5, 10, "exception")]


def test_a_job_that_ends_takes_its_runs_along() -> None:
    desk = Desk()
    desk.submit("j", spec("w"), timeout_seconds=300.0)
    desk.run(worker="w1")
    desk.at = desk.due()
    desk.check()
    assert runs(desk) == [(1, 1, "w1", 0.0, desk.at, "ended with its job")]

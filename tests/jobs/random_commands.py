"""Commands about three jobs, at random, for tests of what must hold whatever a leader is asked."""

from __future__ import annotations

import contextlib

from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec, submission

from tenure.attempt_data import WaitsFor
from tenure.backoff import Retry
from tenure.errors import UnknownJobError
from tenure.jobs.attempt_results import RecordFailure, RecordResult
from tenure.jobs.attempts import RecordDispatched, RecordProgress, RecordStarted, RecordWithdrawn
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command
from tenure.jobs.endings import ArchiveJob, CancelJob, ConfirmCleaned
from tenure.jobs.extensions import ExtendJob, GrantExtension
from tenure.jobs.states import AttemptCause, OnFailure
from tenure.jobs.steering import MoveJob, PauseJob, ResumeJob, RetimeJob
from tenure.jobs.submission import SubmitJob
from tenure.jobs.timeout import CheckJob
from tenure.jobs.waits import RecordSuspended, SendSignal, WakeSleeper
from tenure.jobs.workers import EvictWorker, JudgeWorker

JOBS = ("j0", "j1", "j2")
names = st.sampled_from(JOBS)
workers = st.sampled_from(("w1", "w2"))
flows = st.sampled_from(("a", "b", "c"))
attempts = st.integers(1, 3)


waits = st.one_of(
    st.builds(WaitsFor, step=st.just("sleep"), after_s=st.sampled_from((1.0, 100.0))),
    st.builds(
        WaitsFor,
        step=st.just("event"),
        event=st.just("go"),
        seen=st.integers(0, 2),
        after_s=st.sampled_from((None, 50.0)),
    ),
    st.builds(WaitsFor, step=st.just("jobs"), jobs=st.sampled_from((("j1",), ("j1", "j2"), ("j0", "gone")))),
)


def three_flows(job_id: str) -> SubmitJob:
    once = Retry(max_attempts=2, delay=1, jitter=0)
    return SubmitJob(
        submission=submission(
            job_id,
            spec("a", retry=once),
            spec("b", retry=once, on_failure=OnFailure.CONTINUE),
            spec("c", after=("a", "b")),
            idempotency_key=f"key {job_id}",
            timeout_seconds=400,
        )
    )


commands: st.SearchStrategy[Command] = st.one_of(
    names.map(three_flows),
    names.map(lambda job_id: CancelJob(job_id=job_id)),
    st.builds(RecordDispatched, job_id=names, workflow=flows, attempt=attempts),
    st.builds(
        RecordStarted, job_id=names, workflow=flows, attempt=attempts, worker=workers, delivery=st.integers(1, 2)
    ),
    st.builds(RecordProgress, job_id=names, workflow=flows, attempt=attempts, worker=workers, steps=st.integers(0, 9)),
    st.builds(RecordResult, job_id=names, workflow=flows, attempt=attempts, worker=workers),
    st.builds(
        RecordFailure,
        job_id=names,
        workflow=flows,
        attempt=attempts,
        worker=workers,
        cause=st.sampled_from(list(AttemptCause)),
        asked=st.booleans(),
    ),
    st.builds(
        RecordSuspended,
        job_id=names,
        workflow=flows,
        attempt=attempts,
        worker=workers,
        delivery=st.integers(0, 2),
        waits=waits,
        mark=st.integers(0, 3),
    ),
    st.builds(WakeSleeper, job_id=names, workflow=flows),
    st.builds(SendSignal, job_id=names, name=st.sampled_from(("go", "stop")), signal_id=st.sampled_from("abc")),
    st.builds(PauseJob, job_id=names, by=st.just("ada"), reason=st.just("wait a while")),
    st.builds(ResumeJob, job_id=names),
    st.builds(RetimeJob, job_id=names, timeout_seconds=st.sampled_from((100.0, 900.0, None))),
    st.builds(
        MoveJob,
        job_id=names,
        workflow=st.one_of(st.just(""), flows),
        by=st.just("ada"),
        reason=st.just("away"),
        for_work=st.sampled_from(["", "j1/urgent"]),
    ),
    st.builds(RecordWithdrawn, job_id=names, workflow=flows, attempt=attempts),
    st.builds(EvictWorker, worker=workers, reason=st.just("silent")),
    st.builds(JudgeWorker, worker=workers, verdict=st.sampled_from(("route", "drain")), reason=st.just("r")),
    st.builds(
        GrantExtension,
        worker=workers,
        seconds=st.just(30.0),
        count=st.just(1),
        total=st.just(30.0),
        bound=st.just(58.125),
        progress=st.just(0.5),
    ),
    st.builds(
        ExtendJob,
        job_id=names,
        worker=workers,
        start=workers,
        counter=st.integers(0, 9),
        since=st.integers(0, 3),
        progress=st.just(0.5),
        suspect=st.sampled_from(("", "", "gossip says so")),
    ),
    st.builds(CheckJob, job_id=names),
    st.builds(ConfirmCleaned, job_id=names),
    st.builds(ArchiveJob, job_id=names),
    st.just(TakeLead(epoch=0, leader="next")),
)


_first: dict[str, st.SearchStrategy[object]] = {
    "job_id": names,
    "workflow": st.just("a"),
    "attempt": st.integers(1, 2),
}
waiting_commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(RecordDispatched, **_first),
    st.builds(RecordStarted, **_first, worker=workers),
    st.builds(RecordSuspended, **_first, worker=workers, delivery=st.just(1), waits=waits),
    st.builds(RecordResult, **_first, worker=workers, delivery=st.just(1)),
    st.builds(RecordFailure, **_first, worker=workers, cause=st.just(AttemptCause.CRASH)),
    st.builds(WakeSleeper, job_id=names, workflow=st.just("a")),
    st.builds(SendSignal, job_id=names, name=st.just("go"), signal_id=st.sampled_from("abc")),
    st.builds(EvictWorker, worker=workers, reason=st.just("silent")),
    st.builds(PauseJob, job_id=names, by=st.just("ada"), reason=st.just("wait a while")),
    st.builds(ResumeJob, job_id=names),
    st.builds(CheckJob, job_id=names),
    names.map(lambda job_id: CancelJob(job_id=job_id)),
)
"""Commands that bring work as far as a suspension more often than `commands` do: they are about the first workflow of each job."""


def follow(desk: Desk, steps: list[tuple[Command, int]]) -> None:
    for command, seconds in steps:
        desk.at += seconds
        if isinstance(command, TakeLead):
            desk.elect(f"m{desk.book.epoch + 1}")
            continue
        with contextlib.suppress(UnknownJobError):  # a check of a job that is archived
            desk.do(command)

"""The state of a datacenter has a budget: what is accepted cannot take it past the limit of a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec, submission
from tests.jobs.random_commands import JOBS, commands, follow, three_flows

from tenure.backoff import Retry
from tenure.engines.contracts import MAX_SNAPSHOT_BYTES
from tenure.errors import DatacenterFullError, LimitError, TenureError, UnknownJobError
from tenure.jobs import JobBook, JobSettings
from tenure.jobs import budget as b
from tenure.jobs.alarms import AlarmKind, nearly_full
from tenure.jobs.attempt_results import RecordFailure, RecordResult
from tenure.jobs.attempts import RecordDispatched, RecordStarted
from tenure.jobs.budget import STATE_LIMIT, StateSize
from tenure.jobs.catalogue import RegisterWorkflows, offer_digest
from tenure.jobs.decisions import Command
from tenure.jobs.endings import ArchiveJob, CancelJob, ConfirmCleaned, ForgetOld
from tenure.jobs.extensions import GrantExtension
from tenure.jobs.outbox import to_archive
from tenure.jobs.queues import SetQueue
from tenure.jobs.schedules import FireCron, PutSchedule
from tenure.jobs.settings import MAX_PAGED_BUDGET, MAX_STATE_BUDGET, MIN_STATE_BUDGET
from tenure.jobs.state_records import Schedule
from tenure.jobs.states import AttemptCause
from tenure.jobs.submission import SubmitJob
from tenure.jobs.workers import DrainWorker, EvictWorker, JudgeWorker
from tenure.served_workflow import ServedWorkflow

SMALL = JobSettings(state_budget=MIN_STATE_BUDGET)

texts = st.sampled_from(("", "x", "w" * 300, "\u20ac" * 40))
more_commands: st.SearchStrategy[Command] = st.one_of(
    commands,
    st.builds(CancelJob, job_id=st.sampled_from(("u1", "u2", "j1")), reason=texts, by=texts),
    st.builds(SetQueue, queue=st.sampled_from(("q1", "q2")), paused=st.booleans()),
    st.builds(DrainWorker, worker=st.sampled_from(("w1", "w3")), drained=st.booleans(), reason=texts),
    st.builds(JudgeWorker, worker=st.sampled_from(("w1", "w4")), verdict=st.just("drain"), reason=texts),
    st.builds(
        RecordResult,
        job_id=st.sampled_from(JOBS),
        workflow=st.sampled_from(("a", "b")),
        attempt=st.integers(1, 2),
        worker=st.just("w1"),
        result=st.sampled_from((None, 1.5, [0.1] * 50, {"k": "v" * 90}, 2**63)),
    ),
    st.builds(
        PutSchedule,
        schedule=texts.map(lambda text: Schedule(name="s1", cron="* * * * *", job=submission("t", name=text))),
    ),
    st.builds(FireCron, schedule=st.just("s1"), instant=st.integers(1, 9).map(float)),
    st.just(ForgetOld()),
)


def check_size(book: JobBook) -> None:
    """The bound holds, and what folds read is exact."""
    exact = StateSize(book.state)
    assert book.size.total >= exact.total
    assert book.size.history == exact.history
    empty = len(msgspec.msgpack.encode({}))
    for share, held in (("archive", book.state.archive), ("tombstones", book.state.tombstones)):
        counted = sum(
            len(msgspec.msgpack.encode(name)) + len(msgspec.msgpack.encode(one)) for name, one in held.items()
        )
        assert abs(book.size.shares[share] - counted) <= empty + 4, share
    assert abs(book.size.shares["schedules"] - exact.shares["schedules"]) <= 4


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(more_commands, st.sampled_from((0, 1, 31, 150))), max_size=60))
def test_the_count_is_never_below_the_snapshot_and_little_above_it(steps: list[tuple[Command, int]]) -> None:
    desk = Desk(settings=JobSettings(archive_after=100, history_limit=12, max_remembered=1))
    for step in [(three_flows(job_id), 0) for job_id in JOBS] + steps:
        try:
            follow(desk, [step])
        except TenureError:
            continue  # an unknown schedule, a submission that is too long
        check_size(desk.book)
    restored = JobBook.restore(desk.book.snapshot(), desk.settings)
    assert restored.size.total == len(desk.book.snapshot())
    check_size(restored)


def test_a_thousand_ordinary_jobs_are_counted_within_an_eighth_of_what_they_take() -> None:
    desk = Desk()
    for number in range(1_000):
        desk.submit(f"encode-{number:016}", spec(arguments={"path": "a.mov", "rate": 0.5}))
        desk.run(f"encode-{number:016}", incarnation="w1#0123456789abcdef", worker="host-17-1234")
        desk.result(f"encode-{number:016}", worker="host-17-1234", result={"frames": 5_000})
    counted = desk.book.size.total
    assert len(desk.book.snapshot()) <= counted <= 1.125 * len(desk.book.snapshot())


def test_the_limit_is_the_engines_and_the_budget_is_three_quarters_of_it() -> None:
    assert STATE_LIMIT == MAX_SNAPSHOT_BYTES
    assert MAX_STATE_BUDGET * 4 == STATE_LIMIT * 3
    for wrong in (MIN_STATE_BUDGET - 1, MAX_PAGED_BUDGET + 1):
        with pytest.raises(LimitError, match="state_budget"):
            JobSettings(state_budget=wrong)
    for wrong_time in (-1.0, float("nan")):
        with pytest.raises(LimitError, match="archive_after"):
            JobSettings(archive_after=wrong_time)
    for wrong_time in (0.0, float("nan"), float("inf"), 31_536_001.0):  # no engine keeps a value for longer
        with pytest.raises(LimitError, match="keep_archive"):
            JobSettings(keep_archive=wrong_time)


class Crowd:
    """Clients, workers, operators and a leader who do as much harm as they are allowed to."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.desk = Desk(settings=SMALL)
        self.made = 0
        self.refused = 0

    def act(self) -> None:
        self.desk.at += self.random.choice((0, 0, 1, 20))
        try:
            self._one()
        except DatacenterFullError:
            self.refused += 1
        except UnknownJobError:
            pass

    def _one(self) -> None:
        random, desk = self.random, self.desk
        self.made += 1
        job_id = f"job-{self.made}"
        kind = random.random()
        if kind < 0.35:
            size = random.choice((10, 10, 10, 300, 3_000, 30_000))
            flows = [spec(f"w{n}", arguments={"a": "x" * size}, retry=_OFTEN) for n in range(random.choice((1, 1, 5)))]
            desk.submit(job_id, *flows, labels={"l": "x" * random.choice((0, 500))})
        elif kind < 0.42:
            desk.do(CancelJob(job_id=job_id + "x" * 150, reason="r" * 200, by="b" * 100))
        elif kind < 0.45:
            schedule = Schedule(
                name=f"s{self.made}", cron="* * * * *", job=submission("t", spec(arguments={"a": "x" * 900}))
            )
            desk.do(PutSchedule(schedule=schedule))
        elif kind < 0.47:
            desk.do(SetQueue(queue=f"q{self.made}", paused=True))
        elif kind < 0.49:
            desk.do(DrainWorker(worker=f"w{self.made}", reason="r" * 1_000))
        elif kind < 0.495:
            desk.elect(f"m{self.made}")
        elif kind < 0.52:
            self._keep_house()
        else:
            self._work()

    def _work(self) -> None:
        """Something happens to a job that has not ended."""
        random, desk, book = self.random, self.desk, self.desk.book
        live = list(book.live_jobs())
        if not live:
            return
        info = random.choice(live)
        flow = random.choice(list(info.workflows.values()))
        named = {"job_id": info.id, "workflow": flow.spec.name, "attempt": flow.attempt}
        worker = f"worker-{random.randrange(5)}"
        what = random.randrange(7)
        if what == 0:
            desk.do(RecordDispatched(**named))
        elif what == 1:
            desk.do(RecordStarted(**named, worker=worker, incarnation=worker * 4, delivery=flow.delivery + 1))
        elif what == 2:
            desk.do(RecordFailure(**named, cause=AttemptCause.ERROR, worker=worker, error="e" * 8_000))
        elif what == 3:
            most = b.max_result_bytes(book)  # the leader puts a larger one into the store
            size = random.choice((1, 200, 16_000))
            inline = size <= most
            key = f"{info.id}/{flow.spec.name}"
            desk.do(RecordResult(**named, worker=worker, result="r" * (size - 2) if inline else None, result_key=key))
        elif what == 4:
            desk.do(CancelJob(job_id=info.id, reason="c" * 100))
        elif what == 5:
            desk.do(EvictWorker(worker=worker, reason="silent for " + "s" * 50))
        else:
            grant = GrantExtension(worker=worker, seconds=1.0, count=1, total=1.0, bound=9.0, progress=1.0)
            desk.do(grant)

    def _keep_house(self) -> None:
        book = self.desk.book
        for job_id in list(book.uncleaned):
            self.desk.do(ConfirmCleaned(job_id=job_id))
        for job_id in to_archive(book, self.desk.at):
            self.desk.do(ArchiveJob(job_id=job_id))
        if b.needs_measuring(book):
            book.measure()


_OFTEN = Retry(max_attempts=20, delay=0.0)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_that_is_accepted_takes_the_state_past_the_limit(seed: int) -> None:
    crowd = Crowd(seed)
    limit = SMALL.state_budget * 4 // 3
    largest = 0
    for number in range(2_500):
        crowd.act()
        if number % 25 == 0:
            largest = max(largest, len(msgspec.msgpack.encode(crowd.desk.book.state)))
            assert largest <= limit, f"{largest:,} bytes after {number} acts"
    assert crowd.refused, "the budget was never reached, so nothing was tested"


def full_desk() -> tuple[Desk, int]:
    """A leader with as many jobs as it accepts, and with as many queues in the room that is left."""
    desk = Desk(settings=SMALL)
    jobs = until_refused(desk, lambda number: SubmitJob(submission=submission(f"j{number}", SMALL_SPEC)))
    until_refused(desk, lambda number: SetQueue(queue=f"full-{number}", paused=True))
    return desk, jobs


SMALL_SPEC = spec(arguments={"a": "x" * 100})


def until_refused(desk: Desk, make: Callable[[int], Command], words: str = "the jobs of this datacenter") -> int:
    for number in range(100_000):
        try:
            desk.do(make(number))
        except DatacenterFullError as error:
            refused = error
            break
    else:
        raise AssertionError("100,000 fit into a quarter of a megabyte")
    assert refused.retry_after_s > 0
    assert refused.fact.startswith(words)
    return number


def test_at_the_budget_new_things_are_refused_and_everything_else_goes_on() -> None:
    desk, count = full_desk()
    book = desk.book
    new: list[Command] = [
        SubmitJob(submission=submission("new")),
        CancelJob(job_id="unknown"),
        PutSchedule(schedule=Schedule(name="s", cron="* * * * *", job=submission("t"))),
        SetQueue(queue="q", paused=True),
        DrainWorker(worker="w"),
    ]
    for command in new:
        with pytest.raises(DatacenterFullError, match="bytes"):
            desk.do(command)
    assert desk.submit("j0", SMALL_SPEC).outcome == "already"
    for number in range(count):
        desk.run(f"j{number}")
        assert desk.result(f"j{number}", result="r" * 200).outcome == "accepted"
        desk.at += 1
        for job_id in to_archive(book, desk.at):
            desk.do(ArchiveJob(job_id=job_id))
    assert len(book.ended) < count, "finished jobs made room before their hour was over"
    for command in new:
        assert desk.do(command).outcome == "accepted"


def test_a_datacenter_full_of_jobs_takes_workers_and_heeds_its_operator() -> None:
    desk = Desk(settings=SMALL)
    until_refused(desk, lambda number: SubmitJob(submission=submission(f"j{number}", SMALL_SPEC)))
    served = ServedWorkflow(name="w", version="1")
    offer = offer_digest(("default.p0",), (served,))
    helps: list[Command] = [
        RegisterWorkflows(worker="w", incarnation="i", offer=offer, lanes=("default.p0",), workflows=(served,)),
        SetQueue(queue="default", paused=True),
        DrainWorker(worker="w"),
    ]
    for command in helps:
        assert desk.do(command).outcome == "accepted"
    with pytest.raises(DatacenterFullError):
        desk.submit("new")


def test_cancels_of_unknown_jobs_have_a_share_that_cannot_keep_jobs_out() -> None:
    desk = Desk(settings=SMALL)
    until_refused(desk, lambda number: CancelJob(job_id=f"u{number}", reason="r" * 100), "cancels of jobs that are not")
    assert desk.submit("honest").outcome == "accepted"
    assert desk.do(CancelJob(job_id="honest")).outcome == "accepted"
    assert desk.do(CancelJob(job_id="u0")).outcome == "already"
    desk.at += desk.settings.id_memory + 1
    desk.do(ForgetOld())
    assert desk.do(CancelJob(job_id="another")).outcome == "accepted"


def test_archived_ids_make_way_for_newer_ones_beyond_their_share() -> None:
    desk = Desk(settings=JobSettings(state_budget=MIN_STATE_BUDGET, archive_after=0))
    for number in range(1_500):
        desk.submit(f"j{number}")
        desk.run(f"j{number}")
        desk.result(f"j{number}")
        desk.do(ArchiveJob(job_id=f"j{number}"))
        if b.needs_measuring(desk.book):
            desk.book.measure()
    assert desk.book.size.shares["archive"] <= MIN_STATE_BUDGET / b.ARCHIVE_SHARE
    assert desk.book.state.forgotten_early > 0
    assert "j1499" in desk.book.state.archive
    assert not b.is_crowded(desk.book)


def test_an_alarm_stands_from_three_quarters_of_the_budget_on() -> None:
    desk, _ = full_desk()
    (alarm,) = nearly_full(desk.book)
    assert alarm.kind is AlarmKind.NEARLY_FULL
    assert "new ones are refused" in str(alarm)
    assert "--keep-finished" in str(alarm)
    assert nearly_full(Desk().book) == []


def test_an_integer_that_a_snapshot_cannot_hold_is_refused_at_the_door() -> None:
    """It was accepted and journaled; then no snapshot could be written, and no manager could go on."""
    desk = Desk()
    for wrong in (2**64, -(2**63) - 1):
        with pytest.raises(LimitError, match="64 bits"):
            desk.submit("j", spec(arguments={"deep": [{"n": wrong}]}))
    assert desk.submit("j", spec(arguments={"n": [2**64 - 1, -(2**63)]})).outcome == "accepted"
    desk.book.snapshot()


def test_history_is_kept_short_when_all_histories_together_are_long() -> None:
    desk = Desk(settings=SMALL)
    often = Retry(max_attempts=100, delay=0.0)
    for number in range(30):
        desk.submit(f"j{number}", spec(retry=often))
        for attempt in range(1, 30):
            desk.fail(f"j{number}", attempt=attempt, error="e" * 300)
        desk.book.measure()  # as a leader does: an error that was replaced by a newer one still counts
    share = SMALL.state_budget // 4
    assert desk.book.size.history <= share + 30 * 512
    assert desk.book.job("j0").elided == 0, "as long as there is room everything is kept"
    newest = desk.book.history("j29")
    assert newest[-1].attempt == 29  # type: ignore[union-attr]
    assert desk.book.job("j29").elided > 20

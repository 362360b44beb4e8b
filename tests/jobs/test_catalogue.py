"""Workers say what they serve. Settings, refusals and parking follow from it, and every leader knows it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.jobs.desk import Desk, spec, submission

from tenure.backoff import Retry
from tenure.control.messages.jobs import ListJobs
from tenure.errors import ArgumentsError, ConfigurationError, LimitError, UnknownWorkflowError
from tenure.jobs import JobBook, Outcome, outbox
from tenure.jobs.alarms import AlarmKind, unserved
from tenure.jobs.attempts import RecordDispatched, RecordStarted, RecordWithdrawn
from tenure.jobs.catalogue import (
    MEMORY_S,
    ForgetWorkflows,
    RegisterWorkflows,
    WorkflowsRegistered,
    in_force,
    lane_named,
    offer_digest,
)
from tenure.jobs.endings import CancelJob
from tenure.jobs.model import JobInfo
from tenure.jobs.outbox import to_dispatch
from tenure.jobs.queues import SetQueue
from tenure.jobs.schedules import FireCron, PutSchedule
from tenure.jobs.state_records import Schedule
from tenure.jobs.topics import decode_event
from tenure.jobs.unique_jobs import digest
from tenure.jobs.why import why
from tenure.jobs.work_indexes import WorkNeeds
from tenure.jobs.workers import EvictWorker, ForgetWorker, JudgeWorker
from tenure.nodes.job_listing import manager_list
from tenure.served_workflow import ServedWorkflow
from tenure.work.context import Context
from tenure.work.registry import Registry, workflow


@workflow(max_attempts=1, stall=40, job_timeout=900, queue="gpu", priority=5)
def encode(ctx: Context, path: str, quality: int = 5) -> int:
    """Encodes a file."""
    return quality


@workflow(version="2")
def report(ctx: Context, tags: list[str] | None = None) -> str:
    return ""


LANES = ("default.p0", "gpu.p0", "gpu.p5")


def join(
    desk: Desk, worker: str = "w1", served: Any = (encode, report), lanes: tuple[str, ...] = LANES, start: str = "i1"
) -> Outcome:
    workflows = Registry(served).served if served and not isinstance(served[0], ServedWorkflow) else tuple(served)
    offer = offer_digest(lanes, workflows)
    command = RegisterWorkflows(worker=worker, incarnation=start, offer=offer, lanes=lanes, workflows=workflows)
    return desk.do(command).outcome


def leave(desk: Desk, worker: str = "w1") -> None:
    desk.do(ForgetWorker(worker=worker, reason="it left"))


def sent(desk: Desk) -> list[str]:
    return [order.job_id for order in to_dispatch(desk.book, desk.at)]


def submit(desk: Desk, job_id: str, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> JobInfo:
    desk.submit(job_id, spec(name, arguments=arguments or {}), **options)
    return desk.book.jobs[job_id]


def test_the_description_of_a_workflow_is_read_off_its_code() -> None:
    served = encode.served
    assert (served.name, served.version, served.result, served.description) == ("encode", "1", "int", "Encodes a file.")
    assert served.source.startswith("test_catalogue.py:")
    assert served.retry == Retry(max_attempts=1)
    assert (served.stall, served.job_timeout, served.queue, served.priority) == (40, 900, "gpu", 5)
    assert report.served.retry is None


def test_a_second_worker_with_the_same_modules_adds_one_short_event() -> None:
    desk = Desk()
    join(desk, "w1")
    join(desk, "w2")
    first, second = (decode_event(one) for one in desk.journal[-2:])
    assert isinstance(first, WorkflowsRegistered)
    assert isinstance(second, WorkflowsRegistered)
    assert len(first.workflows) == len(first.schemas) == 2
    assert (second.workflows, second.schemas, second.lanes) == ((), {}, ())
    assert join(desk, "w2") is Outcome.ALREADY


def test_the_catalogue_survives_snapshots_and_the_index_is_rebuilt() -> None:
    desk = Desk()
    join(desk)
    submit(desk, "parked", "encode", {"path": "a"}, queue="elsewhere")
    restored = JobBook.restore(desk.book.snapshot())
    restored.wake(desk.at)
    assert in_force(restored)
    assert restored.state == desk.book.state
    desk.book.wake(desk.at)
    needs = WorkNeeds(("elsewhere", 5, "encode", ""), by_workflow=True, has_own_key=False)
    for book in (restored, desk.book):
        parked = {key: dict(waiting.items()) for key, waiting in book.parked.items()}
        assert parked == {("elsewhere", 5, "encode", ""): {("parked", "encode"): needs}}


def test_an_entry_is_known_for_seven_days_after_its_last_worker_left() -> None:
    desk = Desk(at=1_000.0)
    join(desk, "w1")
    join(desk, "w2")
    leave(desk, "w1")
    assert desk.book.state.catalogue["encode"]["1"].gone_at == 0.0
    desk.at = 2_000.0
    leave(desk, "w2")
    assert desk.book.state.catalogue["encode"]["1"].gone_at == 2_000.0
    desk.at = 2_000.0 + MEMORY_S - 1
    assert desk.do(ForgetWorkflows()).outcome is Outcome.NOTHING
    submit(desk, "late", "encode", {"path": "a"})
    desk.at = 2_000.0 + MEMORY_S
    assert desk.do(ForgetWorkflows()).outcome is Outcome.ACCEPTED
    assert (desk.book.state.catalogue, desk.book.state.schemas, desk.book.state.offers) == ({}, {}, {})


def test_a_registration_belongs_to_an_incarnation() -> None:
    desk = Desk()
    join(desk, start="i1")
    join(desk, start="i2")
    desk.do(EvictWorker(worker="w1", incarnation="i1", reason="silent"))
    assert desk.book.state.registered["w1"].incarnation == "i2"
    desk.do(EvictWorker(worker="w1", incarnation="i2", reason="silent"))
    assert desk.book.state.registered == {}


def test_workflows_that_are_not_those_of_the_offer_are_refused() -> None:
    desk = Desk()
    lie = RegisterWorkflows(worker="w", incarnation="i", offer="0" * 32, lanes=LANES, workflows=(encode.served,))
    assert desk.do(lie).outcome is Outcome.REFUSED
    large = ServedWorkflow(name="x", version="1", arguments={"a": "b" * 300_000})
    with pytest.raises(LimitError, match="workflows of w1"):
        join(desk, served=(large,))


# Settings


def test_settings_that_a_submission_leaves_out_are_the_functions_and_why_says_so() -> None:
    desk = Desk()
    join(desk)
    info = submit(desk, "j", "encode", {"path": "a"})
    made, one = info.job.submission, info.workflows["encode"].spec
    assert (made.queue, made.priority, made.timeout_seconds, one.stall) == ("gpu", 5, 900, 40)
    assert one.policy.max_attempts == 1
    said = str(why(desk.book, "j"))
    assert "set by encode 1: retry, stall, timeout, priority, queue" in said


def test_settings_that_are_given_win_over_the_functions() -> None:
    desk = Desk()
    join(desk)
    given = spec("encode", arguments={"path": "a"}, max_attempts=4, stall=10.0)
    desk.submit("j", given, queue="default", priority=0, timeout_seconds=60.0)
    info = desk.book.jobs["j"]
    assert (info.job.submission.queue, info.job.submission.priority) == ("default", 0)
    assert info.job.submission.timeout_seconds == 60.0
    assert info.workflows["encode"].spec.policy == Retry(max_attempts=4)
    assert "retry" in info.origins
    assert "stall" not in info.origins


def test_two_versions_live_side_by_side_each_with_its_settings() -> None:
    desk = Desk()
    old = ServedWorkflow(name="f", version="1.9", retry=Retry(max_attempts=1))
    new = ServedWorkflow(name="f", version="1.10", retry=Retry(max_attempts=7))
    join(desk, "w1", (old,))
    join(desk, "w2", (new,))
    for version, most in (("1.9", 1), ("1.10", 7), ("", 7)):
        desk.submit(f"j{version}", spec("f", version=version))
        assert desk.book.jobs[f"j{version}"].workflows["f"].spec.policy.max_attempts == most
    leave(desk, "w2")
    desk.submit("any", spec("f"))
    assert desk.book.jobs["any"].workflows["f"].spec.policy.max_attempts == 1, "that of the version that is served"


def test_a_repeated_submission_is_the_same_job_whatever_was_deployed_meanwhile() -> None:
    desk = Desk()
    made = submission("j", spec("encode", arguments={"path": "a"}))
    desk.submit("j", *made.workflows)
    join(desk)
    again = desk.submit("j", *made.workflows)
    assert again.outcome is Outcome.ALREADY
    join(desk, served=(report,))
    assert desk.submit("j", *made.workflows).outcome is Outcome.ALREADY


def test_what_is_left_out_has_the_digest_of_the_first_release() -> None:
    left_out = submission("j", spec("w"))
    explicit = submission("j", spec("w", retry=Retry()), queue="default", priority=0)
    assert digest(left_out) == digest(explicit)
    assert digest(submission("j", spec("w", max_attempts=2))) == digest(
        submission("j", spec("w", retry=Retry(max_attempts=2)))
    )
    assert digest(submission("j", park=True)) == digest(submission("j"))
    # The first release computed this one.
    assert digest(submission("j", spec("w"), timeout_seconds=60.0)) == "083c14fe5fbb04cc72fa812be983640f"
    assert digest(submission("j", grace=60.0)) != digest(submission("j"))


def test_a_stall_of_the_function_above_the_deadline_is_an_error_with_the_ladder() -> None:
    desk = Desk()
    join(desk)
    with pytest.raises(ConfigurationError, match="ladder of time does not stand upright: stall of 'encode' 40 s"):
        submit(desk, "j", "encode", {"path": "a"}, timeout_seconds=30.0)


def test_work_of_one_queue_needs_no_queue_named() -> None:
    desk = Desk()
    join(desk, served=(report,), lanes=("batch.p0",))
    desk.submit("j", spec("a", function="report"), spec("b", function="report", after=("a",)))
    assert desk.book.jobs["j"].job.submission.queue == "batch"


# The door


def test_a_name_that_nobody_registered_is_refused_with_the_one_that_was_meant() -> None:
    desk = Desk()
    join(desk)
    with pytest.raises(UnknownWorkflowError, match=r"'encod' within 7 days. Did you mean 'encode'\?"):
        submit(desk, "j", "encod")
    with pytest.raises(UnknownWorkflowError, match="version '9' of workflow 'encode'"):
        desk.submit("j", spec("encode", version="9", arguments={"path": "a"}))
    with pytest.raises(UnknownWorkflowError, match="Did you mean"):
        desk.do(PutSchedule(schedule=Schedule(name="n", job=submission("", spec("encodde")), every_s=5)))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "argument 'path' is missing"),
        ({"path": 1}, "argument 'path' is 1, and should be a string"),
        ({"path": "a", "qualty": 3}, "argument 'qualty' is not one of them; did you mean 'quality'"),
        ({"path": "a", "quality": True}, "argument 'quality' is True, and should be an integer"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_field(arguments: dict[str, Any], said: str) -> None:
    desk = Desk()
    join(desk)
    with pytest.raises(ArgumentsError, match=said.replace("(", r"\(")):
        submit(desk, "j", "encode", arguments)
    assert "j" not in desk.book.jobs


def test_arguments_need_to_fit_one_of_the_versions_that_may_do_the_work() -> None:
    desk = Desk()

    def schema(kind: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"x": {"type": kind}}, "required": ["x"]}

    join(desk, "w1", (ServedWorkflow(name="f", version="1", arguments=schema("integer")),))
    join(desk, "w2", (ServedWorkflow(name="f", version="2", arguments=schema("string")),))
    desk.submit("int", spec("f", arguments={"x": 1}))
    desk.submit("text", spec("f", arguments={"x": "1"}))
    with pytest.raises(ArgumentsError):
        desk.submit("wrong", spec("f", version="2", arguments={"x": 1}))


def test_before_anybody_registered_and_beside_a_worker_of_the_first_release_nothing_is_refused() -> None:
    desk = Desk()
    submit(desk, "first", "typo")
    join(desk)
    assert "first" not in sent(desk)
    desk.do(JudgeWorker(worker="old", verdict="route", reason="well", incarnation="o1"))
    submit(desk, "second", "typo")
    assert sent(desk) == ["first", "second"]
    desk.do(EvictWorker(worker="old", incarnation="o1", reason="silent"))
    assert sent(desk) == []
    with pytest.raises(UnknownWorkflowError):
        submit(desk, "third", "typo")


# Parking


def test_known_work_that_nobody_serves_now_is_accepted_and_released_the_moment_a_worker_comes() -> None:
    desk = Desk(at=1_000.0)
    join(desk)
    leave(desk)
    submit(desk, "j", "encode", {"path": "a"})
    assert sent(desk) == []
    assert "it waits for a worker that serves 'encode' in queue 'gpu' at priority 5" in str(why(desk.book, "j"))
    assert unserved(desk.book, desk.at + 10) == []
    (alarm,) = unserved(desk.book, desk.at + 40)
    assert (alarm.kind, "1 parked" in alarm.reason) == (AlarmKind.PARKED, True)
    join(desk, "w2", lanes=("default.p0",))
    assert sent(desk) == [], "not in that queue"
    join(desk, "w3")
    assert sent(desk) == ["j"]
    assert unserved(desk.book, desk.at + 40) == []


def test_a_standby_says_what_the_leader_has_parked() -> None:
    """Only a leader moves work from its rest to where it waits. A standby said "it rests, or its queue is paused" of work that nobody serves."""
    desk = Desk(at=1_000.0)
    join(desk)
    leave(desk)
    info = submit(desk, "j", "report", delay=5.0)
    one = info.workflows["report"]
    # This book was never told to wake anything.
    standby, needs = desk.book, "a worker that serves 'report' in queue 'default'"
    assert standby.waits_for(info, one, desk.at) == "", "it rests"
    assert standby.waits_for(info, one, desk.at + 5) == needs
    assert f"it waits for {needs}" in str(why(standby, "j", desk.at + 5))
    (row,) = manager_list(standby, desk.at + 5, ListJobs()).jobs
    assert row.waits_for == needs
    join(desk, "w2")
    assert standby.waits_for(info, one, desk.at + 5) == "", "it is about to be sent"


def test_work_that_waits_to_be_sent_is_parked_when_its_last_worker_leaves() -> None:
    desk = Desk()
    join(desk)
    submit(desk, "a", "report")
    submit(desk, "b", "encode", {"path": "a"})
    assert sorted(sent(desk)) == ["a", "b"]
    join(desk, "w2", (report,))
    leave(desk, "w1")
    assert sent(desk) == ["a"]


def test_a_name_that_was_never_registered_is_parked_where_the_submission_or_the_queue_asks_for_it() -> None:
    desk = Desk()
    join(desk)
    submit(desk, "one", "future", park=True)
    desk.do(SetQueue(queue="lab", park=True))
    submit(desk, "two", "future", queue="lab")
    assert sent(desk) == []
    assert len(unserved(desk.book, desk.at)) == 2, "at once: nobody ever registered it"
    join(desk, "w2", (ServedWorkflow(name="future", version="1"),), lanes=("default.p0", "lab.p0"))
    assert sorted(sent(desk)) == ["one", "two"]


def test_a_thousand_parked_names_cost_the_others_nothing() -> None:
    desk = Desk()
    join(desk)
    for number in range(1_000):
        submit(desk, f"p{number}", f"unknown-{number}", park=True)
    submit(desk, "good", "report")
    assert sent(desk) == ["good"]
    assert sum(map(len, desk.book.ready.values())) == 1


def test_a_schedule_loses_no_run_when_its_worker_is_gone() -> None:
    desk = Desk()
    join(desk)
    desk.do(PutSchedule(schedule=Schedule(name="n", job=submission("", spec("report")), every_s=5)))
    leave(desk)
    desk.at = MEMORY_S + 100.0
    desk.do(ForgetWorkflows())
    join(desk, "w2", (encode,))
    assert desk.do(FireCron(schedule="n", instant=desk.at)).outcome is Outcome.ACCEPTED
    assert sent(desk) == []
    join(desk, "w3")
    assert sent(desk) == [f"n/{int(desk.at)}"]


def test_a_cancelled_job_leaves_nothing_parked() -> None:
    desk = Desk()
    join(desk)
    submit(desk, "j", "future", park=True)
    desk.book.wake(desk.at)
    desk.do(CancelJob(job_id="j"))
    assert desk.book.parked == {}


def test_a_mailbox_without_a_priority_is_a_lane_of_its_own() -> None:
    assert lane_named("default.p-3") == ("default", -3)
    assert lane_named("work") == ("work", 0)
    assert lane_named("a.pb") == ("a.pb", 0)


def test_the_event_is_read_back_as_it_was_written() -> None:
    desk = Desk()
    join(desk)
    event = decode_event(desk.journal[-1])
    assert msgspec.json.decode(msgspec.json.encode(event))["type"] == "WorkflowsRegistered"
    book = JobBook()
    book.replay(desk.journal)
    assert book.state == desk.book.state


# Mailboxes of workflows


def dispatch(desk: Desk) -> list[outbox.Dispatch]:
    orders = to_dispatch(desk.book, desk.at)
    for order in orders:
        desk.do(RecordDispatched(job_id=order.job_id, workflow=order.workflow, attempt=order.attempt))
    return orders


def test_work_goes_to_the_mailbox_of_its_workflow_and_version_and_is_revoked_there() -> None:
    desk = Desk()
    submit(desk, "old", "encode", {"path": "a"}, queue="gpu")
    (old,) = dispatch(desk)
    assert old.mailbox == "gpu.p0", "nobody has registered yet"
    join(desk)
    submit(desk, "any", "encode", {"path": "a"})
    desk.submit("one", spec("encode", version="1", arguments={"path": "a"}))
    assert [order.mailbox for order in dispatch(desk)] == ["gpu.p5/encode/", "gpu.p5/encode/1"]
    for job_id in ("old", "any", "one"):
        desk.do(CancelJob(job_id=job_id))
    revoked = [mailbox for job_id in ("old", "any", "one") for mailbox, _ in outbox.live_messages(desk.book, job_id)]
    assert revoked == ["gpu.p0", "gpu.p5/encode/", "gpu.p5/encode/1"]


def test_a_workflow_that_was_sent_once_stays_in_its_mailbox_because_its_key_fences_there() -> None:
    desk = Desk()
    submit(desk, "j", "report")
    dispatch(desk)
    desk.do(RecordStarted(job_id="j", workflow="report", attempt=1, worker="w1"))
    join(desk)
    desk.fail("j", "report")
    desk.at += 60
    (again,) = dispatch(desk)
    assert (again.attempt, again.mailbox) == (2, "default.p0")


def test_what_was_sent_and_not_recorded_is_sent_again_to_the_same_mailbox_though_the_catalogue_came_into_force() -> (
    None
):
    desk = Desk()
    submit(desk, "j", "report")
    (sent,) = to_dispatch(desk.book, desk.at)
    join(desk)  # before the leader could record what it had sent
    (again,) = to_dispatch(desk.book, desk.at)
    assert (again.key, again.generation, again.mailbox) == (sent.key, sent.generation, sent.mailbox)


def test_a_worker_that_registered_nothing_releases_only_what_lies_where_it_looks() -> None:
    """A worker of the first release knows the mailbox that all workflows share, and no other."""
    desk = Desk()
    submit(desk, "shared", "report", delay=10.0)
    join(desk)
    leave(desk)
    submit(desk, "own", "report")
    desk.at += 20.0
    assert sent(desk) == [], "nobody serves them"
    desk.do(JudgeWorker(worker="old", verdict="route", reason="well", incarnation="o1"))
    assert sent(desk) == ["shared"]
    join(desk, "w2")
    assert sent(desk) == ["shared", "own"]


def test_work_that_started_before_it_was_recorded_as_sent_is_revoked_where_it_is() -> None:
    desk = Desk()
    join(desk)
    submit(desk, "j", "report")
    (order,) = to_dispatch(desk.book, desk.at)
    desk.do(RecordStarted(job_id="j", workflow="report", attempt=1, worker="w1"))
    desk.do(RecordDispatched(job_id="j", workflow="report", attempt=1))
    desk.do(CancelJob(job_id="j"))
    assert outbox.live_messages(desk.book, "j") == [(order.mailbox, order.key)]


def test_what_was_sent_and_is_served_no_more_is_taken_back_and_sent_again_with_a_higher_generation() -> None:
    desk = Desk()
    join(desk)
    desk.do(SetQueue(queue="default", max_running=1))
    submit(desk, "j", "report")
    submit(desk, "next", "report")
    assert [order.generation for order in dispatch(desk)] == [1]
    assert outbox.to_withdraw(desk.book) == []
    leave(desk)
    join(desk, "w2", (encode,))
    assert outbox.to_withdraw(desk.book) == [("j", "report")]
    desk.do(RecordWithdrawn(job_id="j", workflow="report", attempt=1))
    assert desk.do(RecordWithdrawn(job_id="j", workflow="report", attempt=1)).outcome is Outcome.ALREADY
    assert outbox.to_withdraw(desk.book) == []
    assert desk.book.in_queue["default"] == 0, "parked work counts against no limit"
    assert dispatch(desk) == []
    assert "was taken back from the engine" in str(why(desk.book, "j"))
    join(desk, "w3")
    (order,) = [order for order in to_dispatch(desk.book, desk.at, limit=10) if order.job_id == "j"] or dispatch(desk)
    assert (order.job_id in ("j", "next"), order.attempt) == (True, 1)
    generations = {name: desk.book.jobs[name].workflows["report"].generation for name in ("j", "next")}
    assert generations == {"j": 2, "next": 1}

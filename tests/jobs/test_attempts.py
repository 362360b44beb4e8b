from __future__ import annotations

import pytest
from tests.jobs.desk import Desk, spec

from tenure.backoff import Retry
from tenure.errors import LimitError
from tenure.jobs import Outcome, Rule
from tenure.jobs.attempts import UNFENCED, RecordDispatched, RecordStarted
from tenure.jobs.endings import CancelJob, ConfirmCleaned
from tenure.jobs.outbox import live_messages, next_dispatch_at, standing, to_dispatch
from tenure.jobs.queues import SetQueue
from tenure.jobs.states import AttemptCause, OnFailure
from tenure.jobs.workers import EvictWorker, ForgetWorker, JudgeWorker


def sent(desk: Desk, **options: object) -> list[tuple[str, int]]:
    return [(order.key, order.generation) for order in to_dispatch(desk.book, desk.at, **options)]  # type: ignore[arg-type]


def test_redeliveries_of_an_attempt_and_attempts_count_together_and_each_message_carries_what_is_left() -> None:
    desk = Desk()
    desk.submit("j", spec("w", retry=Retry(max_attempts=4, delay=0)))
    tries = lambda: [order.tries for order in to_dispatch(desk.book, desk.at)]  # noqa: E731
    assert tries() == [4]
    desk.run()
    failed = desk.fail(cause=AttemptCause.CRASH, redelivered=1)  # its worker died once before this failure was told
    assert failed.events[0].next_attempt == 2  # type: ignore[attr-defined]
    assert tries() == [2]
    desk.run(attempt=2)
    desk.fail(attempt=2, cause=AttemptCause.ERROR)
    assert tries() == [1]
    desk.run(attempt=3)
    last = desk.fail(attempt=3, cause=AttemptCause.CRASH, redelivered=1, error="worker_died: its worker died once")
    assert [type(event).__name__ for event in last.events] == ["AttemptFailed", "JobEnded"]
    assert desk.state() == "failed"
    assert desk.book.job("j").workflows["w"].redelivered == 2


def test_a_new_leader_sends_again_what_lacks_its_dispatched_record() -> None:
    desk = Desk()
    desk.submit("j", spec("a"), spec("b"))
    assert sent(desk) == [("j/a", 1), ("j/b", 1)]
    desk.do(RecordDispatched(job_id="j", workflow="a", attempt=1))
    desk.elect("m2")
    assert sent(desk) == [("j/b", 1)]
    assert desk.do(RecordDispatched(job_id="j", workflow="a", attempt=1)).outcome is Outcome.ALREADY


def test_after_orders_workflows_and_the_rest_runs_in_parallel() -> None:
    desk = Desk()
    desk.submit("j", spec("a"), spec("b"), spec("c", after=("a", "b")), spec("d", after=("c",)))
    assert sent(desk) == [("j/a", 1), ("j/b", 1)]
    for name in "ab":
        desk.run("j", name)
        assert ("j/c", 1) not in sent(desk)
        desk.result("j", name)
    assert sent(desk) == [("j/c", 1)]
    desk.run("j", "c")
    desk.result("j", "c")
    desk.run("j", "d")
    assert desk.state() == "running"
    desk.result("j", "d")
    assert desk.state() == "completed"


def test_a_delayed_job_is_sent_when_its_time_comes_and_its_timeout_starts_then() -> None:
    desk = Desk()
    desk.submit("j", delay=60.0)
    assert sent(desk) == []
    assert next_dispatch_at(desk.book, desk.at) == 60.0
    assert desk.book.job("j").timeout_tracking.started_at == 60.0
    desk.at = 60.0
    assert sent(desk) == [("j/w", 1)]


def test_higher_priorities_go_first_to_their_own_mailbox() -> None:
    desk = Desk()
    desk.submit("low")
    desk.submit("high", priority=5)
    orders = to_dispatch(desk.book, desk.at)
    assert [(order.job_id, order.mailbox) for order in orders] == [("high", "default.p5"), ("low", "default.p0")]
    assert [order.job_id for order in to_dispatch(desk.book, desk.at, limit=1)] == ["high"]


def test_a_paused_queue_gives_nothing_and_a_full_one_no_more_than_its_limit() -> None:
    desk = Desk()
    for number in range(4):
        desk.submit(f"j{number}")
    desk.do(SetQueue(queue="default", paused=True))
    assert sent(desk) == []
    desk.do(SetQueue(queue="default", paused=False, max_running=2))
    assert sent(desk) == [("j0/w", 1), ("j1/w", 1)]
    desk.run("j0")
    assert sent(desk) == [("j1/w", 1)]
    desk.result("j0")
    assert sent(desk) == [("j1/w", 1), ("j2/w", 1)]
    with pytest.raises(LimitError, match="max_running is 0"):
        desk.do(SetQueue(queue="default", max_running=0))


def test_a_failed_attempt_rests_longer_each_time_and_then_fails_the_job() -> None:
    desk = Desk()
    desk.submit("j", spec(retry=Retry(max_attempts=3, delay=10, factor=2, jitter=0)))
    for attempt, rest in ((1, 10.0), (2, 20.0)):
        desk.run(attempt=attempt)
        desk.fail(attempt=attempt, error="ValueError: no")
        assert sent(desk) == []
        assert next_dispatch_at(desk.book, desk.at) == desk.at + rest
        desk.at += rest
        assert sent(desk) == [("j/w", attempt + 1)]
    desk.run(attempt=3)
    desk.fail(attempt=3, error="ValueError: no")
    info = desk.book.job("j")
    assert (info.state, info.reason) == ("failed", "workflow 'w' failed for good at attempt 3: it raised an error")


def test_jitter_is_within_its_share_and_the_same_on_every_replay() -> None:
    rests = set()
    for number in range(50):
        desk = Desk()
        desk.submit(f"j{number}", spec(retry=Retry(delay=100, jitter=0.2)))
        desk.run(f"j{number}")
        event = desk.fail(f"j{number}").events[0]
        rests.add(event.not_before)
    assert len(rests) > 40
    assert all(80 <= rest <= 120 for rest in rests)


def test_an_error_that_no_retry_helps_is_final_at_once() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    desk.fail(retryable=False)
    assert desk.state() == "failed"


def test_a_dead_letter_is_final_and_says_so_at_once() -> None:
    desk = Desk()
    desk.submit()
    decision = desk.fail(cause=AttemptCause.DEAD_LETTER, error="delivered 5 times without being settled")
    assert decision.events[0].rule is Rule.ENGINE_SAID
    assert desk.state() == "failed"


def test_a_final_failure_fails_the_job_and_cancels_the_rest() -> None:
    desk = Desk()
    desk.submit("j", spec("a", retry=Retry(max_attempts=1)), spec("b"), spec("c", after=("a",)))
    desk.run("j", "a")
    desk.run("j", "b", worker="w2")
    desk.fail("j", "a")
    info = desk.book.job("j")
    assert (info.state, info.workflows["b"].state, info.workflows["c"].state) == ("failed", "cancelled", "cancelled")
    assert live_messages(desk.book, "j") == [("default.p0", "j/b"), ("default.p0", "j/c")]
    desk.elect("m2")  # the leader died before it revoked
    assert list(desk.book.uncleaned) == ["j"]
    desk.do(ConfirmCleaned(job_id="j"))
    assert not desk.book.uncleaned
    assert desk.do(ConfirmCleaned(job_id="j")).outcome is Outcome.ALREADY


def test_on_failure_continue_lets_the_rest_and_what_comes_after_go_on() -> None:
    desk = Desk()
    once = Retry(max_attempts=1)
    desk.submit("j", spec("a", retry=once, on_failure=OnFailure.CONTINUE), spec("b", after=("a",)))
    desk.run("j", "a")
    desk.fail("j", "a")
    assert desk.state() == "running"
    desk.run("j", "b")
    desk.result("j", "b")
    info = desk.book.job("j")
    assert (info.state, info.completed_workflows, info.failed_workflows) == ("completed", 1, 1)
    assert info.reason == "all 2 workflows ended, 1 failed"


def test_a_job_in_which_nothing_completed_has_not_completed() -> None:
    desk = Desk()
    desk.submit("j", spec(retry=Retry(max_attempts=1), on_failure=OnFailure.CONTINUE))
    desk.run()
    desk.fail()
    assert desk.state() == "failed"


def test_a_repeated_result_is_already_recorded() -> None:
    desk = Desk()
    desk.submit("j", spec("a"), spec("b"))
    desk.run("j", "a")
    desk.result("j", "a", result=42)
    again = desk.result("j", "a", result=42)
    assert (again.outcome, again.reason, again.events) == (Outcome.ALREADY, "already recorded", [])
    assert desk.book.job("j").workflows["a"].result == 42


def test_a_result_may_overtake_the_records_of_its_dispatch_and_start() -> None:
    desk = Desk()
    desk.submit()
    assert desk.result().outcome is Outcome.ACCEPTED
    assert desk.state() == "completed"
    assert sent(desk) == []


def test_a_result_of_a_lower_attempt_is_refused_and_recorded_once() -> None:
    desk = Desk()
    desk.submit()
    desk.run(worker="w1")
    desk.do(EvictWorker(worker="w1", reason="silent"))
    first = desk.result(attempt=1, worker="w1", delivery=1)
    assert (first.outcome, first.rule) == (Outcome.REFUSED, Rule.STALE_ATTEMPT)
    assert first.reason == "attempt 1 was replaced by attempt 2"
    assert desk.result(attempt=1, worker="w1", delivery=1).events == []
    assert desk.kinds().count("ResultRefused") == 1
    assert desk.state() == "running"


def test_a_result_of_a_lower_delivery_of_the_same_attempt_is_refused_by_its_fence() -> None:
    desk = Desk()
    desk.submit()
    desk.run(worker="w1", delivery=1)
    desk.do(RecordStarted(job_id="j", workflow="w", attempt=1, worker="w2", delivery=2))
    refused = desk.result(attempt=1, delivery=1, worker="w1")
    assert (refused.outcome, refused.rule) == (Outcome.REFUSED, Rule.STALE_DELIVERY)
    assert desk.result(attempt=1, delivery=2, worker="w2").outcome is Outcome.ACCEPTED


def test_an_outcome_counts_from_the_worker_that_holds_the_delivery_and_a_later_delivery_may_be_anybodys() -> None:
    desk = Desk()
    desk.submit("j", spec("w", retry=Retry(max_attempts=3, delay=0)))
    desk.run(worker="w1", delivery=2)
    for refused in (
        desk.result(worker="evil", delivery=2, result="forged"),
        desk.fail(worker="evil", delivery=2),
        desk.advance(2**53 - 1, worker="evil", delivery=2),
        desk.result(worker="evil", delivery=UNFENCED, result="forged"),
    ):
        assert (refused.outcome, refused.rule) == (Outcome.REFUSED, Rule.STALE_DELIVERY)
    assert desk.book.job("j").workflows["w"].steps == 0
    assert desk.state() == "running"
    assert not standing(desk.book, "j", "w", 1, 2, "evil").wanted
    assert standing(desk.book, "j", "w", 1, 2, "w1").wanted
    # Nobody reported the start of delivery 3: short work ends before its first report.
    assert desk.result(worker="w2", delivery=3, result="true").outcome is Outcome.ACCEPTED
    assert desk.book.job("j").workflows["w"].result == "true"


def test_an_attempt_that_still_rests_can_have_no_outcome() -> None:
    desk = Desk()
    desk.submit("j", spec("w", retry=Retry(max_attempts=3, delay=10, jitter=0)))
    desk.run()
    desk.fail()
    early = desk.result(attempt=2, worker="evil", delivery=1, result="forged")
    assert (early.outcome, early.rule, early.reason) == (
        Outcome.REFUSED,
        Rule.STALE_ATTEMPT,
        "attempt 2 was not sent yet",
    )
    assert desk.fail(attempt=2, worker="evil", delivery=1).outcome is Outcome.REFUSED
    desk.at += 10
    assert desk.result(attempt=2, worker="w2", delivery=1).outcome is Outcome.ACCEPTED


def test_a_result_for_an_ended_job_is_refused_and_recorded() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    desk.do(CancelJob(job_id="j"))
    late = desk.result(worker="w1", delivery=1)
    assert (late.outcome, late.rule, late.reason) == (Outcome.REFUSED, Rule.JOB_ENDED, "the job had ended: cancelled")
    assert desk.state() == "cancelled"
    assert desk.kinds()[-1] == "ResultRefused"


def test_results_that_were_never_asked_for_are_refused() -> None:
    desk = Desk()
    desk.submit("j", spec("a"), spec("b", after=("a",)))
    assert desk.result("nobody").outcome is Outcome.REFUSED
    assert desk.result("j", "nothing").outcome is Outcome.REFUSED
    assert desk.result("j", "a", attempt=2).reason == "attempt 2 was never issued"
    assert desk.result("j", "b").reason == "attempt 1 was never issued"


def test_refusals_of_one_workflow_do_not_fill_the_journal() -> None:
    desk = Desk()
    desk.submit()
    desk.do(CancelJob(job_id="j"))
    for delivery in range(1, 100):
        assert desk.result(delivery=delivery).outcome is Outcome.REFUSED
    assert desk.kinds().count("ResultRefused") == 20


def test_an_evicted_workers_attempts_are_issued_anew_elsewhere_in_one_append() -> None:
    desk = Desk()
    desk.submit("j", spec("a"), spec("b"))
    desk.submit("k")
    desk.run("j", "a", worker="w1")
    desk.run("j", "b", worker="w2")
    desk.run("k", worker="w1")
    decision = desk.do(EvictWorker(by="m1", worker="w1", reason="no report for 31 s"))
    assert [type(event).__name__ for event in decision.events] == ["WorkerEvicted", "AttemptFailed", "AttemptFailed"]
    assert decision.events[0].jobs == ("j", "k")
    assert sent(desk) == [("j/a", 2), ("k/w", 2)]
    assert to_dispatch(desk.book, desk.at)[0].excluded == ("w1",)
    assert desk.do(EvictWorker(worker="w1", reason="again")).outcome is Outcome.ALREADY


def test_an_evicted_incarnation_is_remembered_until_it_is_forgotten_and_another_start_is_not_taken_for_it() -> None:
    desk = Desk()
    desk.submit()
    desk.run(worker="w1", incarnation="first")
    assert desk.do(ForgetWorker(worker="w1", reason="it left")).outcome is Outcome.NOTHING
    desk.do(JudgeWorker(worker="w1", verdict="route", reason="it answers", incarnation="first"))
    assert desk.do(ForgetWorker(worker="w1", reason="it left")).outcome is Outcome.REFUSED
    desk.do(EvictWorker(worker="w1", reason="silent", incarnation="first"))
    record = desk.book.state.workers["w1"]
    assert (record.verdict, record.incarnation) == ("evict", "first")
    desk.do(JudgeWorker(worker="w1", verdict="route", reason="it came back", incarnation="second"))
    assert desk.do(EvictWorker(worker="w1", reason="late", incarnation="first")).outcome is Outcome.ACCEPTED
    assert desk.book.state.workers["w1"].verdict == "route"
    assert desk.do(ForgetWorker(worker="w1", reason="it left")).outcome is Outcome.ACCEPTED
    assert "w1" not in desk.book.state.workers


def test_only_the_evicted_incarnation_loses_its_work() -> None:
    desk = Desk()
    desk.submit()
    desk.run(worker="w1", incarnation="second")
    desk.do(JudgeWorker(worker="w1", verdict="route", reason="healthy", incarnation="second"))
    decision = desk.do(EvictWorker(worker="w1", reason="the first start is gone", incarnation="first"))
    assert [type(event).__name__ for event in decision.events] == ["WorkerEvicted"]
    assert desk.book.job("j").workflows["w"].state == "running"


def test_poison_does_not_spread_beyond_its_attempts() -> None:
    desk = Desk()
    desk.submit()
    for attempt in (1, 2, 3):
        desk.run(worker=f"w{attempt}", attempt=attempt)
        desk.do(EvictWorker(worker=f"w{attempt}", reason="crashed"))
    assert desk.state() == "failed"
    assert desk.book.job("j").workflows["w"].excluded == ["w1", "w2", "w3"]


def test_eviction_that_ends_a_job_with_several_workflows_there_ends_it_once() -> None:
    desk = Desk()
    once = Retry(max_attempts=1)
    desk.submit("j", spec("a", retry=once), spec("b", retry=once))
    desk.submit("k", *(spec(name, retry=once, on_failure=OnFailure.CONTINUE) for name in "ab"))
    for job_id in "jk":
        for name in "ab":
            desk.run(job_id, name, worker="w1")
    desk.do(EvictWorker(worker="w1", reason="silent"))
    assert (desk.state("j"), desk.state("k")) == ("failed", "failed")
    assert desk.kinds().count("JobEnded") == 2


def test_an_eviction_that_ends_a_job_has_its_messages_revoked() -> None:
    """Nobody settles the message of an evicted worker: the engine would deliver it again for ever."""
    desk = Desk()
    desk.submit("j", spec("a", retry=Retry(max_attempts=1)), spec("b"))
    for name in "ab":
        desk.run("j", name, worker="w1")
    desk.do(EvictWorker(worker="w1", reason="silent"))
    assert list(desk.book.uncleaned) == ["j"]
    assert sorted(key for _, key in live_messages(desk.book, "j")) == ["j/a", "j/b"]


def test_a_workers_report_is_answered_with_what_it_should_stop() -> None:
    desk = Desk()
    desk.submit()
    desk.run(worker="w1", delivery=2)
    assert standing(desk.book, "j", "w", 1, 2).wanted
    assert standing(desk.book, "j", "w", 1, 1).reason == "delivery 1 was replaced by delivery 2"
    desk.do(EvictWorker(worker="w1", reason="silent"))
    assert standing(desk.book, "j", "w", 1).reason == "attempt 1 was replaced by attempt 2"
    assert standing(desk.book, "nobody", "w", 1).reason == "its job is not known"
    assert not standing(desk.book, "j", "nothing", 1).wanted
    desk.do(CancelJob(job_id="j", reason="enough"))
    assert standing(desk.book, "j", "w", 2).reason == "its job ended: cancelled: enough"


def test_progress_is_journaled_at_most_every_quarter_of_the_stuck_threshold() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    for second in range(1, 121):
        desk.at = float(second)
        desk.advance(second)
    assert desk.kinds().count("ProgressRecorded") == 4
    assert desk.progress.last("j") == 120.0
    assert desk.progress.steps("j", "w") == 120


def test_a_counter_that_does_not_rise_is_no_progress() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    desk.at = 40.0
    desk.advance(5)
    desk.at = 90.0
    assert desk.advance(5).reason == "the counter has not risen"
    assert desk.progress.last("j") == 40.0


def test_a_report_of_progress_tells_of_a_start_whose_word_was_lost() -> None:
    desk = Desk()
    desk.submit()
    assert [type(event).__name__ for event in desk.advance(3, worker="w7").events] == ["WorkflowStarted"]
    assert desk.book.on_worker == {"w7": {("j", "w"): None}}


@pytest.mark.parametrize(("steps", "fraction"), [(-1, None), (1, float("nan")), (1, -0.1), (1, 1.1)])
def test_impossible_progress_is_rejected_with_a_clear_error(steps: int, fraction: float | None) -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    with pytest.raises(LimitError, match=r"steps is|fraction is"):
        desk.advance(steps, fraction=fraction)


def test_a_large_result_belongs_into_the_store() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    with pytest.raises(LimitError, match=r"result of 'w' is 20,002 bytes, .* Put it into the store"):
        desk.result(result="x" * 20_000)
    desk.result(result_key="results/j/w")
    assert desk.book.job("j").workflows["w"].result_key == "results/j/w"

from __future__ import annotations

from typing import Any

import pytest
from tests.jobs.desk import Desk, spec, submission

from tenure.backoff import Retry
from tenure.errors import ConfigurationError, LimitError, OutOfBoundsError, SubmissionConflictError
from tenure.jobs import Outcome
from tenure.jobs.endings import ArchiveJob, CancelJob, ForgetOld
from tenure.jobs.settings import JobSettings
from tenure.jobs.submission import SubmitJob
from tenure.jobs.unique_jobs import RETRY_OF


def test_a_job_without_workflows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"workflows is 0 items, and must be a list of 1 to 1,000"):
        Desk().do(SubmitJob(submission=submission("j").__class__(job_id="j", workflows=())))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout_seconds": 0}, "timeout_seconds is 0"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds is nan"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds is inf"),
        ({"timeout_seconds": 1e9}, "between 0.001 and 31,536,000"),
        ({"delay": -1}, "delay is -1"),
        ({"idempotency_key": "k" * 201}, r"idempotency_key is .*\(201 characters\)"),
        ({"stuck_threshold": -1, "timeout_seconds": 300}, "stuck_threshold is -1"),
    ],
)
def test_a_wrong_number_names_its_field(options: dict[str, Any], said: str) -> None:
    with pytest.raises(LimitError, match=said):
        Desk().submit("j", **options)


@pytest.mark.parametrize("name", ["", "x" * 201, "new\nline", "new line\n", "\u202eabc", "\x7f", "a\ud800"])
def test_an_id_is_printable_and_not_too_long(name: str) -> None:
    with pytest.raises(LimitError, match="job_id is"):
        Desk().submit(name)


def test_a_workflow_name_has_no_slash_because_its_key_has_one() -> None:
    with pytest.raises(OutOfBoundsError, match=r"workflows\[0\].name is 'a/b'"):
        Desk().submit("j", spec("a/b"))


def test_workflow_names_are_unique_and_after_names_workflows_of_the_job() -> None:
    with pytest.raises(ConfigurationError, match="'a' appears twice"):
        Desk().submit("j", spec("a"), spec("a"))
    with pytest.raises(ConfigurationError, match=r"comes after 'b', which is not in this job. Its workflows are: a"):
        Desk().submit("j", spec("a", after=("b",)))


def test_workflows_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="in a circle: a, b"):
        Desk().submit("j", spec("a", after=("b",)), spec("b", after=("a",)), spec("c"))


def test_arguments_and_submissions_have_a_size_limit_with_a_remedy() -> None:
    with pytest.raises(LimitError, match=r"arguments of 'w' is .* bytes, and must be at most 131,072 bytes. Submit it"):
        Desk().submit("j", spec(arguments={"x": "y" * 140_000}))
    many = [spec(f"w{number}", arguments={"x": "y" * 100_000}) for number in range(4)]
    with pytest.raises(LimitError, match=r"submission is .* bytes"):
        Desk().submit("j", *many)
    with pytest.raises(LimitError, match="workflows is 1,001 items"):
        Desk().submit("j", *[spec(f"w{number}") for number in range(1_001)])


@pytest.mark.parametrize(
    "retry",
    [
        Retry(max_attempts=0),
        Retry(max_attempts=101),
        Retry(delay=-1),
        Retry(delay=10, max_delay=5),
        Retry(factor=0.5),
        Retry(jitter=2),
    ],
)
def test_a_retry_policy_that_makes_no_sense_is_refused(retry: Retry) -> None:
    with pytest.raises(LimitError, match=r"of 'w' is|workflows\[0\]\.retry\.[a-z_]+ is"):
        Desk().submit("j", spec(retry=retry))


def test_an_upright_ladder_is_accepted_and_a_leaning_one_is_printed() -> None:
    Desk().submit("j", spec(stall=60), stuck_threshold=120, timeout_seconds=300)
    with pytest.raises(ConfigurationError, match=r"stall of 'w' 200 s < stuck_threshold 120 s < timeout_seconds 300 s"):
        Desk().submit("j", spec(stall=200), stuck_threshold=120, timeout_seconds=300)
    with pytest.raises(ConfigurationError, match="stuck_threshold 400 s < timeout_seconds 300 s does not hold"):
        Desk().submit("j", stuck_threshold=400, timeout_seconds=300)
    with pytest.raises(ConfigurationError, match=r"stall of 'w' 400 s < stuck_threshold \(derived\)"):
        Desk().submit("j", spec(stall=400), timeout_seconds=300)


def test_an_unset_stuck_threshold_is_derived_from_the_longest_stall() -> None:
    desk = Desk()
    desk.submit("plain")
    desk.submit("long", spec("a", stall=600), spec("b", stall=10))
    assert desk.book.job("plain").timeout_tracking.stuck_threshold == 120.0
    assert desk.book.job("long").timeout_tracking.stuck_threshold == 1_200.0


def test_an_operators_stuck_threshold_wins_and_a_stall_that_is_not_below_it_is_refused_with_the_ladder() -> None:
    desk = Desk(settings=JobSettings(stuck_threshold=90.0, stuck_is_explicit=True))
    desk.submit("plain", spec(stall=60))  # derived, it would be 120 s
    assert desk.book.job("plain").timeout_tracking.stuck_threshold == 90.0
    with pytest.raises(ConfigurationError, match=r"stall of 'w' 90 s < --stuck of the manager 90 s does not hold"):
        desk.submit("long", spec(stall=90))
    with pytest.raises(ConfigurationError, match=r"--stuck of the manager 90 s < timeout_seconds 500 s does not hold"):
        desk.submit("long", spec(stall=90), timeout_seconds=500.0)
    desk.submit("own", spec(stall=600), stuck_threshold=700)  # what the submission asks for is nearer to it
    assert desk.book.job("own").timeout_tracking.stuck_threshold == 700.0


def test_the_same_submission_twice_is_one_job() -> None:
    desk = Desk()
    assert desk.submit("j").outcome is Outcome.ACCEPTED
    again = desk.submit("j")
    assert (again.outcome, again.job_id, again.events) == (Outcome.ALREADY, "j", [])


def test_the_same_id_with_other_contents_is_a_conflict() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=100)
    with pytest.raises(SubmissionConflictError, match="job id 'j' belongs to job 'j'"):
        desk.submit("j", timeout_seconds=200)


def test_an_idempotency_key_finds_its_job_under_another_id() -> None:
    desk = Desk()
    desk.submit("first", idempotency_key="k")
    again = desk.submit("second", idempotency_key="k", submitted_by="another client")
    assert (again.outcome, again.job_id) == (Outcome.ALREADY, "first")
    with pytest.raises(SubmissionConflictError, match="idempotency key 'k' belongs to job 'first'"):
        desk.submit("third", idempotency_key="k", timeout_seconds=1)


def test_a_resend_by_the_gates_successor_is_the_same_job() -> None:
    desk = Desk()
    desk.submit("j", gate_addr=("g1", 1), gate_epoch=1, global_submitted_at=5.0)
    assert desk.submit("j", gate_addr=("g2", 1), gate_epoch=2, global_submitted_at=6.0).outcome is Outcome.ALREADY


def test_a_cancel_that_overtakes_its_submission_ends_the_job_once() -> None:
    desk = Desk()
    assert desk.do(CancelJob(by="ada", job_id="j", reason="changed my mind")).outcome is Outcome.ACCEPTED
    assert desk.do(CancelJob(job_id="j")).outcome is Outcome.ALREADY
    desk.at = 5.0
    assert desk.submit("j").outcome is Outcome.ACCEPTED
    info = desk.book.job("j")
    assert (info.state, info.reason, info.ended_at) == ("cancelled", "changed my mind", 5.0)
    assert not desk.book.state.tombstones
    assert desk.submit("j").outcome is Outcome.ALREADY
    assert desk.kinds().count("JobEnded") == 1


def ended_and_archived(desk: Desk, job_id: str = "j") -> None:
    desk.submit(job_id, idempotency_key=f"key of {job_id}")
    desk.run(job_id)
    desk.result(job_id)
    desk.at += desk.settings.archive_after + 1
    assert desk.do(ArchiveJob(job_id=job_id)).outcome is Outcome.ACCEPTED


def test_a_submission_retried_after_its_job_was_archived_is_the_same_job() -> None:
    desk = Desk()
    ended_and_archived(desk)
    assert "j" not in desk.book.jobs
    assert desk.submit("j", idempotency_key="key of j").outcome is Outcome.ALREADY
    assert desk.submit("other", idempotency_key="key of j").job_id == "j"
    assert desk.do(CancelJob(job_id="j")).reason == "it had ended before: completed"


def test_a_live_or_fresh_job_is_not_archived_and_says_why() -> None:
    desk = Desk()
    desk.submit("j")
    assert desk.do(ArchiveJob(job_id="j")).reason == "it is pending"
    desk.run()
    desk.result()
    assert desk.do(ArchiveJob(job_id="j")).reason == "it ended a short while ago"


def test_a_job_whose_messages_are_not_revoked_is_not_archived() -> None:
    desk = Desk()
    desk.submit("j")
    desk.do(CancelJob(job_id="j"))
    desk.at = 1e5
    assert desk.do(ArchiveJob(job_id="j")).reason == "its messages are not revoked yet"


def test_ids_outlive_archiving_until_their_memory_ends() -> None:
    desk = Desk(settings=JobSettings(archive_after=10, id_memory=100))
    ended_and_archived(desk)
    desk.do(CancelJob(job_id="never came"))
    desk.at += 100
    assert desk.do(ForgetOld()).outcome is Outcome.ACCEPTED
    assert not desk.book.state.archive
    assert not desk.book.state.tombstones
    assert not desk.book.keys
    assert desk.do(ForgetOld()).outcome is Outcome.NOTHING


def test_memory_of_ids_is_bounded_and_says_when_it_forgot_early() -> None:
    desk = Desk(settings=JobSettings(max_remembered=3))
    for number in range(5):
        ended_and_archived(desk, f"j{number}")
    assert list(desk.book.state.archive) == ["j2", "j3", "j4"]
    assert desk.book.state.forgotten_early == 2
    assert set(desk.book.keys) == {"key of j2", "key of j3", "key of j4"}


def test_a_retry_that_an_earlier_release_took_with_its_derived_threshold_is_the_same_job_after_the_upgrade() -> None:
    desk, labels = Desk(), {RETRY_OF: "j"}
    desk.submit("j~2", spec(stall=100), stuck_threshold=200.0, labels=labels)
    assert desk.submit("j~2", spec(stall=100), labels=labels).outcome is Outcome.ALREADY
    with pytest.raises(SubmissionConflictError):
        desk.submit("j~2", spec(stall=90), labels=labels)

"""What an exception says about the next attempt: in a function's rules, on a plain queue, in a loop, and in a datacenter."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest

import tenure
from tenure import JobFailed, Permanent, Retry, RetryAfter, workflow
from tenure.clock import ManualClock
from tenure.engines import MemoryEngine
from tenure.errors import (
    ConfigurationError,
    LimitError,
    ProviderRateLimitedError,
    ProviderRefusedError,
    ProviderUnavailableError,
)
from tenure.logs import NodeLog
from tenure.testing import TestDatacenter
from tenure.work import Ending, FunctionLoop
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.loop_messages import DeadLetterPolicy
from tenure.work.retry_verdict import ANY_ERROR, RetryRules
from tenure.work.settler import Settler


class BadInput(Permanent):
    pass


GIVE_UP = RetryRules(give_up_on=(FileNotFoundError, KeyError))
RETRY_ON = RetryRules(give_up_on=(FileNotFoundError,), retry_on=(OSError,))


@pytest.mark.parametrize(
    ("rules", "error", "final", "rest_s", "said"),
    [
        (ANY_ERROR, ValueError("x"), False, None, ""),
        (ANY_ERROR, Permanent("no such user"), True, None, "raised Permanent"),
        (ANY_ERROR, BadInput(), True, None, "raised BadInput"),
        (ANY_ERROR, RetryAfter(30), False, 30.0, "asked for this rest"),
        (GIVE_UP, KeyError("x"), True, None, "give_up_on of the workflow names KeyError"),
        (GIVE_UP, ValueError("x"), False, None, ""),
        (RETRY_ON, ConnectionResetError(), False, None, ""),  # a subclass
        (RETRY_ON, ValueError("x"), True, None, "retry_on of the workflow does not name ValueError"),
        (RETRY_ON, FileNotFoundError(), True, None, "give_up_on"),  # in both: giving up wins
        (RETRY_ON, RetryAfter(5), False, 5.0, "asked"),  # what is raised beats what is declared
        (RetryRules(retry_on=()), ValueError(), True, None, "does not name ValueError"),
        (RetryRules(retry_on=(Permanent,)), Permanent("x"), True, None, "raised Permanent"),
        (
            ANY_ERROR,
            ExceptionGroup("two", [ValueError(), ExceptionGroup("in", [Permanent("x")])]),
            True,
            None,
            "raised",
        ),
        (ANY_ERROR, ExceptionGroup("two", [RetryAfter(5), RetryAfter(9), ValueError()]), False, 9.0, "asked"),
        (RETRY_ON, ExceptionGroup("two", [OSError(), ValueError()]), True, None, "ValueError"),
        (RETRY_ON, ExceptionGroup("two", [OSError(), OSError()]), False, None, ""),
        (ANY_ERROR, ProviderRefusedError(401, "key"), True, None, "provider refused"),
        (ANY_ERROR, ProviderRateLimitedError(40.0), False, 40.0, "provider asked"),
        (ANY_ERROR, ProviderRateLimitedError(10.0**9), False, RetryAfter.MOST_S, "provider asked"),
        (ANY_ERROR, ProviderUnavailableError("away"), False, None, ""),
    ],
)
def test_the_verdict_on_an_exception(
    rules: RetryRules, error: BaseException, final: bool, rest_s: float | None, said: str
) -> None:
    verdict = rules.verdict(error)
    assert (verdict.final, verdict.rest_s) == (final, rest_s)
    assert said in verdict.said
    assert bool(said) is bool(verdict.said)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 31 * 86_400, True, "30"])
def test_a_rest_that_makes_no_sense_is_refused_where_it_is_raised(seconds: Any) -> None:
    with pytest.raises(LimitError, match="RetryAfter is"):
        RetryAfter(seconds)


@pytest.mark.parametrize("rules", [{"give_up_on": ["ValueError"]}, {"retry_on": [ValueError()]}, {"retry_on": 3}])
def test_rules_that_name_no_class_of_exceptions_are_refused_where_they_are_written(rules: Any) -> None:
    with pytest.raises(ConfigurationError, match="no class of exceptions"):

        @workflow(**rules)
        def work(ctx: Any) -> None: ...


def test_both_pass_through_a_pool_of_processes_which_pickles_them() -> None:
    again = pickle.loads(pickle.dumps(RetryAfter(30, "busy")))
    assert (again.seconds, str(again)) == (30.0, "to be tried again after 30 s: busy")
    assert str(pickle.loads(pickle.dumps(Permanent("no such user")))) == "no such user"
    assert {"Permanent", "RetryAfter"} <= set(tenure.__all__)


@pytest.mark.parametrize(
    ("said", "word"),
    [({"final": True}, "dead letter"), ({"rest_s": 40.0}, "retried in 40.0 s"), ({"rest_s": 1e6}, "retried in 43200")],
)
def test_a_plain_queue_does_as_the_work_said(said: Any, word: str) -> None:
    engine = MemoryEngine(clock=ManualClock())
    work = engine.mailbox("work", WorkItem, WorkResult)
    work.send(WorkItem(workflow="w", job_id="j"))
    [message] = work.receive(1, 60)
    failure = WorkFailure(cause=Cause.EXCEPTION, reason="because", **said)
    result = WorkResult(
        job_id="j", workflow_id="", workflow="w", attempt=1, fence=message.fence, worker="w", failure=failure
    )
    settler = Settler(engine, clock=ManualClock(), random=Random(1), log=NodeLog("worker"))
    assert settler.settle(message, result, managed=False, retry=Retry(max_attempts=5)).startswith(word)


@pytest.mark.parametrize("policy", [None, DeadLetterPolicy()])
def test_a_loop_gives_up_at_once_or_rests_for_as_long_as_it_was_asked_to(policy: DeadLetterPolicy | None) -> None:
    clock = ManualClock()
    mailbox = MemoryEngine(clock=clock).mailbox("work")

    def work(message: Any, heartbeat: Any) -> None:
        raise Permanent("no such user") if message.body == "bad" else RetryAfter(100)

    loop: FunctionLoop[Any, Any] = FunctionLoop(mailbox, work, clock=clock, dead_letters=policy)
    mailbox.send("bad")
    mailbox.send("busy")
    loop.run(max_iterations=2, wait_time_seconds=0)
    assert (loop.endings[Ending.DEAD_LETTER], loop.endings[Ending.FAILED]) == (1, 1)
    assert "Permanent: no such user (not worth a retry)" in mailbox.dead_letters.list()[0].reason
    clock.advance(99)
    assert mailbox.receive(1, 60) == []
    clock.advance(1.1)
    assert [one.body for one in mailbox.receive(1, 60)] == ["busy"]


def test_errors_that_a_policy_excludes_are_never_given_up_whatever_they_say() -> None:
    assert DeadLetterPolicy(exclude_errors=(BadInput,)).verdict(1, BadInput("x")) is None


STARTED: dict[str, int] = {}


@workflow(retry=Retry(max_attempts=3, delay=1, jitter=0), give_up_on=[KeyError], retry_on=[OSError])
def choosy(ctx: Any, what: str) -> str:
    STARTED[what] = ctx.attempt
    if ctx.attempt == 1 or what not in ("busy", "away"):
        raise {
            "bad": Permanent("no such user"),
            "key": KeyError("k"),
            "type": TypeError("t"),
            "busy": RetryAfter(7_200, "quota"),
            "away": ConnectionError("c"),
        }[what]
    return "done"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("bad", "it raised Permanent, which says that another attempt cannot help"),
        ("key", "give_up_on of the workflow names KeyError"),
        ("type", "retry_on of the workflow does not name TypeError"),
    ],
)
def test_a_job_is_given_up_at_its_first_attempt_and_why_says_who_decided(
    tenure_dc: TestDatacenter, what: str, said: str
) -> None:
    job = tenure_dc.submit(choosy, what=what)
    with pytest.raises(JobFailed) as caught:
        job.wait()
    assert STARTED[what] == 1
    assert f"no further one, because {said}" in str(caught.value)
    assert f"No further attempt: {said}" in job.why()


def test_a_job_rests_for_as_long_as_it_asked_and_why_says_so(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(choosy, what="busy")
    tenure_dc.advance(minutes=119)
    assert STARTED["busy"] == 1
    assert "Attempt 2 follows after 2 h (it raised RetryAfter and asked for this rest)" in job.why()
    tenure_dc.advance(minutes=2)
    assert job.wait() == "done"
    assert tenure_dc.submit(choosy, what="away").wait() == "done"


@workflow(max_attempts=2, retry=Retry(delay=1, jitter=0))
def depending(ctx: Any, what: str) -> None:
    with ctx.depends("s3"):
        raise Permanent("bad key") if what == "bad" else OSError("away")


def test_what_is_permanent_says_nothing_about_the_thing_that_the_work_depends_on(tenure_dc: TestDatacenter) -> None:
    """A failure on a named thing is followed by a rest of 5 s at least, and is evidence that the thing is down."""
    for what, named in (("bad", ""), ("away", "s3")):
        job = tenure_dc.submit(depending, what=what)
        with pytest.raises(JobFailed):
            job.wait()
        [line] = [one for one in job.why().splitlines() if "attempt 1, failed" in one]
        assert ("Attempt 2 follows after 5 s" in line) is bool(named)

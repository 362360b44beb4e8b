"""The sentence that answers "who ended my job, and what do I do?"."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec

from tenure.backoff import Retry
from tenure.jobs.answer import CAUSE_ANSWERS, quoted
from tenure.jobs.reason_text import CAUSES
from tenure.jobs.states import AttemptCause
from tenure.jobs.why import attempts_to_look_at, why
from tenure.jobs.why_answer import AttemptEvidence, Why, evidence_lines, evidence_of, first_stack
from tenure.work.delivery import Cause

ONCE = spec("w", retry=Retry(max_attempts=1))


def ended(cause: AttemptCause, word: str, error: str, **evidence: object) -> Why:
    desk = Desk(at=1_000.0)
    desk.submit("j", ONCE)
    desk.run("j", "w", worker="w1")
    desk.at += 5
    desk.fail("j", "w", cause=cause, worker="w1", error=f"{word}: {error}", evidence={"cause": word, **evidence})
    return why(desk.book, "j")


def test_every_cause_of_a_worker_has_words_and_an_answer() -> None:
    told_elsewhere = {Cause.DRAINED}  # it is handed over, and never fails an attempt
    assert {cause.value for cause in Cause} - told_elsewhere <= set(CAUSE_ANSWERS)
    assert {cause.value for cause in Cause} <= set(CAUSES)
    assert {cause.value for cause in AttemptCause} <= set(CAUSES)


@pytest.mark.parametrize(
    ("cause", "word", "error", "who", "what"),
    [
        (
            AttemptCause.ERROR,
            "exception",
            "MemoryError: ",
            "It ran out of the memory that it may have",
            "--memory-limit",
        ),
        (AttemptCause.ERROR, "exception", "KeyError: 'x'", "Your code raised KeyError: 'x'", "tenure retry j"),
        (AttemptCause.ERROR, "timeout", "ran for 61 s, past its timeout", "Its own timeout", "timeout="),
        (AttemptCause.CRASH, "memory", "killed by the kernel for memory", "The kernel killed it for memory", "memory"),
        (AttemptCause.CRASH, "killed", "the slot process died of SIGSEGV", "Native code crashed", "extension"),
        (AttemptCause.CRASH, "killed", "SIGKILL, not ours", "A signal killed its process", "Tenure did not do it"),
        (AttemptCause.CRASH, "exited", "exit code 7", "Your code ended its own process", "os._exit"),
        (AttemptCause.STALL, "stall", "no beat for 60 s", "It stopped beating, so Tenure killed it", "ctx.silence"),
        (
            AttemptCause.STALL,
            "stall",
            "spinning: 412 beats in 10 min, item 7 of 20 throughout",
            "It beat without getting any further, so Tenure killed it: spinning: 412 beats in 10 min",
            "ctx.polling",
        ),
        (AttemptCause.ERROR, "bad_arguments", "n: expected int", "Its arguments do not fit", "Submit it with others"),
    ],
)
def test_each_end_says_who_and_what_next(cause: AttemptCause, word: str, error: str, who: str, what: str) -> None:
    told = ended(cause, word, error)
    assert told.answer.startswith(who)
    assert what in told.next_step
    assert "attempt 1 of 1, on w1" in told.answer
    assert "raised an error" not in str(told) or word == "exception"
    assert str(told).split("\n")[:2] == [f"{told.answer}.", f"Next: {told.next_step}."]


def test_the_place_in_the_users_code_is_in_the_answer() -> None:
    told = ended(AttemptCause.ERROR, "exception", "KeyError: 'x'", place="/app/jobs.py:7, in encode")
    assert "at /app/jobs.py:7, in encode" in told.answer
    told = ended(
        AttemptCause.STALL, "stall", "no beat for 60 s; its slot was killed", place="/app/jobs.py:7, in encode"
    )
    assert "its slot was killed; it stood at /app/jobs.py:7, in encode" in told.answer


def test_an_error_without_a_message_is_its_name() -> None:
    told = ended(AttemptCause.ERROR, "exception", "MemoryError: ", place="/app/jobs.py:7, in encode")
    assert "that it may have: MemoryError, at /app/jobs.py:7" in told.answer


def test_a_job_that_goes_on_says_what_became_of_the_attempt_before() -> None:
    desk = Desk(at=1_000.0)
    desk.submit("j", spec("w", retry=Retry(max_attempts=3, delay=5, jitter=0)))
    desk.run("j", "w", worker="w1")
    desk.fail("j", "w", cause=AttemptCause.ERROR, worker="w1", error="exception: boom", evidence={"cause": "exception"})
    told = why(desk.book, "j")
    assert told.answer.startswith("Nothing has ended it")
    assert "Your code raised boom" in told.answer
    assert attempts_to_look_at(desk.book.job("j")) == [("w", 1, "")]


def test_a_second_delivery_names_whose_lease_was_lost_and_how_long_it_was_silent() -> None:
    desk = Desk(at=1_000.0)
    desk.submit("j", ONCE)
    desk.run("j", "w", worker="w1")
    desk.at += 40
    desk.advance(1, "j", "w", worker="w2", delivery=2, evidence={"silent_for": 32.0})
    assert "(delivery 2: w1 lost the lease of delivery 1, and was last heard 32 s before)" in str(why(desk.book, "j"))


@given(st.text(min_size=1))
def test_copied_commands_are_one_word_of_a_shell(text: str) -> None:
    assert shlex.split(quoted(text)) == [text]


def test_evidence_of_any_record_can_be_shown() -> None:
    kept = {
        "cause": "stall",
        "reason": "r",
        "evidence": {"beats": "[[0.0,1],[7.0,2]]", "silent_s": "6.5", "note": "frame 4", "peak_memory": "1 GB"},
    }
    found = evidence_of("w", 2, "w1", kept, ("12:00:00 info hello",))
    assert (found.beats, found.silent_s, found.facts) == (((0.0, 1), (7.0, 2)), 6.5, {"peak_memory": "1 GB"})
    said = "\n".join(evidence_lines(found))
    for part in ("'w', attempt 2, on w1", "2 in 7 s, the last one 6.5 s", "frame 4", "peak memory: 1 GB", "hello"):
        assert part in said
    for odd in (None, 7, {"evidence": 7}, {"evidence": {"beats": "no", "silent_s": "x"}}):
        assert evidence_of("w", 1, "", odd, ()).beats == ()


def test_a_long_traceback_keeps_its_error_and_a_long_dump_its_innermost_call() -> None:
    lines = "\n".join(f"line {number}" for number in range(100))
    trace = first_stack(AttemptEvidence(workflow="w", attempt=1, traceback=lines))
    dump = first_stack(AttemptEvidence(workflow="w", attempt=1, stacks=lines))
    assert (trace[0], trace[-1]) == ("line 0", "line 99")
    assert dump[:3] == ["line 0", "line 1", "line 2"]
    assert len(trace) == len(dump) == 14

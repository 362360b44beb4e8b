from __future__ import annotations

import threading

import pytest

from tenure.errors import LimitError
from tenure.testing import FakeEngine
from tenure.work.loop_messages import CallThread, DeadLetterPolicy


def test_calls_are_made_in_order_elsewhere_and_whoever_asks_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    go, ended = threading.Event(), threading.Event()
    made: list[object] = []

    def fails() -> None:
        raise ValueError("no disk")

    with CallThread("test") as thread:
        thread.take(lambda: made.append(go.wait(30)))
        thread.take(fails)
        thread.take(lambda: made.append(threading.current_thread().name))
        thread.take(ended.set)
        assert made == []
        go.set()
    assert ended.wait(30), "what was taken before the end is made"
    assert made == [True, "tenure-calls-test"]
    assert "no disk" in caplog.text


class BadInput(ValueError):
    pass


@pytest.mark.parametrize(
    ("count", "error", "gives_up"),
    [
        (1, RuntimeError("x"), False),
        (2, RuntimeError("x"), False),
        (3, RuntimeError("x"), True),  # the threshold
        (9, RuntimeError("x"), True),
        (1, BadInput("x"), True),  # included: at once, subclasses too
        (1, ValueError("x"), True),
        (1, ConnectionError("x"), False),  # excluded: never
        (99, ConnectionResetError("x"), False),
        (99, KeyError("x"), False),  # in both: excluded wins
        (1, KeyError("x"), False),
    ],
)
def test_the_verdict_by_count_and_error(count: int, error: Exception, gives_up: bool) -> None:
    policy = DeadLetterPolicy(3, include_errors=(ValueError, KeyError), exclude_errors=(ConnectionError, KeyError))
    reason = policy.verdict(count, error)
    assert (reason is not None) is gives_up
    if reason is not None:
        assert f"{type(error).__name__}: x" in reason


def test_by_default_the_fifth_failure_is_the_last() -> None:
    policy = DeadLetterPolicy()
    assert [policy.verdict(count, RuntimeError()) is not None for count in range(1, 7)] == [False] * 4 + [True] * 2
    assert policy.verdict(5, RuntimeError("boom")) == "failed in attempt 5 of 5: RuntimeError: boom"
    assert policy.verdict(5, RuntimeError()) == "failed in attempt 5 of 5: RuntimeError"


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(LimitError, match="max_delivery_count is 0"):
        DeadLetterPolicy(0)
    with pytest.raises(LimitError, match="include_errors"):
        DeadLetterPolicy(include_errors=("ValueError",))  # type: ignore[arg-type]


def test_a_loop_that_follows_the_verdict_gives_up_in_time_and_tells_the_sender(tenure_engine: FakeEngine) -> None:
    mailbox, replies = tenure_engine.mailbox("work"), tenure_engine.mailbox("replies")
    policy = DeadLetterPolicy(2, include_errors=(ValueError,), exclude_errors=(ConnectionError,))
    raises = {"bad": ValueError("no"), "flaky": RuntimeError("again"), "offline": ConnectionError("gone")}
    ids = {name: mailbox.send(name, reply_to=replies) for name in raises}
    for _ in range(3):
        for message in mailbox.receive(10):
            reason = policy.verdict(message.delivery_count, raises[message.body])
            if reason is None:
                message.nack()
            else:
                message.dead_letter(reason)
    letters = {letter.id: letter for letter in mailbox.dead_letters.list()}
    assert set(letters) == {ids["bad"], ids["flaky"]}
    assert letters[ids["bad"]].delivery_count == 1
    assert letters[ids["flaky"]].delivery_count == 2
    assert mailbox.depth() == (1, 0, 0)
    told = {news.failure.message_id: news.failure.reason for news in replies.receive(10) if news.failure}
    assert told == {id: letter.reason for id, letter in letters.items()}

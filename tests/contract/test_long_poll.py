"""Waiting for a message: woken at once, by whatever makes one visible, and never in the way of closing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.case import Background, EngineCase
from tests.patience import wait_until
from tests.process.stillness import Stillness

from tenure.clock import ManualClock
from tenure.engines import Engine, Mailbox, Outgoing
from tenure.engines.contracts import Message

LONG = 60.0  # a poll that ends much sooner was woken
SOON = 45.0  # generous: the machine may be busy


def poll(mailbox: Mailbox[Any, Any], **options: Any) -> Background[list[Message[Any, Any]]]:
    """A long poll in another thread, and time for it to begin."""
    options = {"wait_time_seconds": LONG, "visibility_timeout": 60, **options}
    waiting = Background(lambda: mailbox.receive(**options))
    time.sleep(0.1)
    return waiting


def bodies(waiting: Background[list[Message[Any, Any]]]) -> list[Any]:
    return [message.body for message in waiting.result(SOON)]


def test_a_sent_message_wakes_a_poll(case: EngineCase, live: Engine) -> None:
    waiting = poll(live.mailbox("work"))
    case.live().mailbox("work").send("x")
    assert bodies(waiting) == ["x"]


def test_a_ready_message_is_not_held_back_for_a_full_batch(live: Engine) -> None:
    mailbox = live.mailbox("work")
    mailbox.send("x")
    begun = time.monotonic()
    assert [message.body for message in mailbox.receive(10, 60, LONG)] == ["x"]
    assert time.monotonic() - begun < SOON
    waiting = poll(mailbox, max_messages=10)
    mailbox.send("y")
    assert bodies(waiting) == ["y"]


def sent_late(mailbox: Mailbox[Any, Any]) -> Callable[[], object]:
    mailbox.send("x", delay=0.3)
    return lambda: None


def run_out(mailbox: Mailbox[Any, Any]) -> Callable[[], object]:
    mailbox.send("x")
    mailbox.receive(1, 0.3)
    return lambda: None


def nacked(mailbox: Mailbox[Any, Any]) -> Callable[[], object]:
    mailbox.send("x")
    return mailbox.receive(1, 60)[0].nack


def nacked_with_a_delay(mailbox: Mailbox[Any, Any]) -> Callable[[], object]:
    mailbox.send("x")
    (message,) = mailbox.receive(1, 60)
    return lambda: message.nack(0.2)


def released(mailbox: Mailbox[Any, Any]) -> Callable[[], object]:
    mailbox.send("x")
    return mailbox.receive(1, 60)[0].release


def replayed(mailbox: Mailbox[Any, Any]) -> Callable[[], object]:
    sent = mailbox.send("x")
    mailbox.receive(1, 60)[0].dead_letter("broken")
    return lambda: mailbox.dead_letters.replay(sent)


def replied(mailbox: Mailbox[Any, Any]) -> Callable[[], object]:
    mailbox.send("question", reply_to=mailbox)
    (message,) = mailbox.receive(1, 60)
    return lambda: message.settle("x")


def sent_later_than_a_later_one(mailbox: Mailbox[Any, Any]) -> Callable[[], object]:
    mailbox.send("much later", delay=LONG)
    return lambda: mailbox.send("x", delay=0.2)


CAUSES = [
    sent_late,
    run_out,
    nacked,
    nacked_with_a_delay,
    released,
    replayed,
    replied,
    sent_later_than_a_later_one,
]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_whatever_makes_a_message_visible_wakes_a_poll(
    live: Engine, cause: Callable[[Mailbox[Any, Any]], Callable[[], object]]
) -> None:
    mailbox = live.mailbox("work")
    act = cause(mailbox)
    waiting = poll(live.mailbox("work"))
    act()
    assert bodies(waiting) == ["x"]


def test_a_poll_ends_empty_when_its_time_is_over(live: Engine) -> None:
    begun = time.monotonic()
    assert live.mailbox("work").receive(1, 60, 0.3) == []
    assert time.monotonic() - begun >= 0.29


@pytest.mark.exact
@pytest.mark.threads
def test_time_that_passes_ends_a_poll(case: EngineCase, engine: Engine) -> None:
    assert isinstance(case.clock, ManualClock)
    mailbox = engine.mailbox("work")
    waiting = Background(lambda: mailbox.receive(1, 60, 20))
    case.clock.until_waiting(1)
    case.pass_time(20)
    assert waiting.result() == []
    mailbox.send("x", delay=10)
    waiting = Background(lambda: mailbox.receive(1, 60, 20))
    case.clock.until_waiting(1)
    case.pass_time(10)
    assert [message.body for message in waiting.result()] == ["x"]


def test_wake_ends_every_poll_of_its_handle_and_no_other(live: Engine) -> None:
    mine, other = live.mailbox("work"), live.mailbox("work")
    mine_waiting, other_waiting = [poll(mine), poll(mine)], poll(other)
    mine.wake()
    assert [waiting.result(SOON) for waiting in mine_waiting] == [[], []]
    assert other_waiting.running
    mine.send("x")
    assert bodies(other_waiting) == ["x"]


def test_wake_before_a_poll_lets_the_next_one_not_wait(live: Engine) -> None:
    mailbox = live.mailbox("work")
    mailbox.wake()
    begun = time.monotonic()
    assert mailbox.receive(1, 60, LONG) == []
    assert time.monotonic() - begun < SOON
    waiting = poll(mailbox)  # and only that one
    mailbox.send("x")
    assert bodies(waiting) == ["x"]


def test_closing_the_handle_ends_its_polls(live: Engine) -> None:
    mailbox = live.mailbox("work")
    waiting = poll(mailbox)
    mailbox.close()
    assert waiting.result(SOON) == []


def test_closing_the_engine_ends_polls(live: Engine) -> None:
    waiting = poll(live.mailbox("work"))
    following = Background(lambda: live.journal("log").follow(0, LONG))
    time.sleep(0.1)
    live.close()
    assert waiting.result(SOON) == []
    assert following.result(SOON) == []


def test_a_message_that_cannot_be_decoded_does_not_end_a_poll(live: Engine) -> None:
    numbers = live.mailbox("work", int)
    waiting = poll(numbers)
    live.mailbox("work").send("not a number")
    wait_until(lambda: numbers.dead_letters.count() == 1)
    assert waiting.running
    numbers.send(7)
    assert bodies(waiting) == [7]


def test_several_polls_share_several_messages(live: Engine) -> None:
    mailbox = live.mailbox("work")
    waiting = [poll(live.mailbox("work")) for _ in range(4)]
    mailbox.send_many([Outgoing(n) for n in range(3)])
    mailbox.send(3)
    assert sorted(body for poll_ in waiting for body in bodies(poll_)) == [0, 1, 2, 3]


def test_messages_that_become_visible_together_wake_as_many_polls(live: Engine) -> None:
    mailbox = live.mailbox("work")
    waiting = [poll(live.mailbox("work")) for _ in range(3)]
    mailbox.send_many([Outgoing(n, delay=0.3) for n in range(3)])
    assert sorted(body for poll_ in waiting for body in bodies(poll_)) == [0, 1, 2]


def test_a_poll_that_leaves_hands_its_watch_on_to_the_next(live: Engine) -> None:
    """The first one to wait may be the one that knows when the delayed message is due."""
    mailbox, leaving = live.mailbox("work"), live.mailbox("work")
    first = poll(leaving)
    second = poll(mailbox)
    mailbox.send("x", delay=0.4)
    leaving.close()
    assert first.result(SOON) == []
    assert bodies(second) == ["x"]


def test_idle_polls_cost_next_to_nothing(live: Engine) -> None:
    waiting = [poll(live.mailbox("work")) for _ in range(3)]
    before = time.process_time()
    time.sleep(1.0)
    spent = time.process_time() - before
    for _ in waiting:
        live.mailbox("work").send("x")
    for each in waiting:
        each.result(SOON)
    assert spent < 0.2, f"{spent:.2f} s of CPU in an idle second"


def test_waking_up_is_quick(live: Engine) -> None:
    """No sleeping in steps: the median of a few is far under the 174 ms that a sleeping poll took."""
    mailbox, sender = live.mailbox("work"), live.mailbox("work")
    delays: list[float] = []
    with Stillness() as machine:
        for _ in range(9):
            begun = threading.Event()

            def wait(begun: threading.Event = begun) -> float:
                begun.set()
                mailbox.receive(1, 60, LONG)[0].acknowledge()
                return time.monotonic()

            waiting = Background(wait)
            begun.wait(SOON)
            time.sleep(0.02)
            sent_at = time.monotonic()
            sender.send("x")
            delays.append(waiting.result(SOON) - sent_at)
    assert sorted(delays)[4] < 0.1 or machine.excuses(0.1), delays

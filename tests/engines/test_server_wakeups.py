"""Long polls on a listener without a server: what it hears, when it is lost, and how polls end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from random import Random

import pytest
from tests.patience import wait_until

from tenure.backoff import Backoff
from tenure.clock import SystemClock
from tenure.engines.long_poll import LongPolls, LookResult, Poll
from tenure.engines.server_wakeups import ServerWakeups
from tenure.errors import EngineUnavailableError


class Listener:
    """Hears what a test says, and notes what it was asked to listen to."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._ours, self.theirs = socket.socketpair()
        script.listeners.append(self)

    def fileno(self) -> int:
        return self._ours.fileno()

    def listen(self, topics: Iterable[str]) -> None:
        while self._script.silent:
            time.sleep(0.01)
        if self._script.deaf:
            raise EngineUnavailableError("it does not listen")
        self._script.topics.update(topics)

    def ignore(self, topics: Iterable[str]) -> None:
        self._script.topics.difference_update(topics)

    def heard(self) -> list[str]:
        if self._script.deaf:
            raise EngineUnavailableError("it hears nothing")
        heard, self._script.news = self._script.news, []
        return heard

    def idle(self) -> None:
        self._script.idle += 1

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()


class Script:
    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.topics: set[str] = set()
        self.news: list[str] = []
        self.deaf = False
        self.silent = False
        self.idle = 0

    def say(self, topic: str) -> None:
        self.news.append(topic)
        self.listeners[-1].theirs.send(b"x")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def wakeups(script: Script) -> Iterator[ServerWakeups]:
    made = ServerWakeups("test", lambda: Listener(script), SystemClock(), Backoff(Random(1), first_s=0.01, most_s=0.02))
    yield made
    made.close()
    assert "tenure-test-listener" not in {thread.name for thread in threading.enumerate()}


class Waiter:
    """A poll in a thread, which finds whatever was put into `there`."""

    def __init__(self, polls: LongPolls, wait_s: float = 10.0) -> None:
        self.polls, self.looks = polls, 0
        self.there: list[int] = []
        self.found: list[int] | None = None
        self._thread = threading.Thread(target=self._run, args=(wait_s,))
        self._thread.start()

    def _run(self, wait_s: float) -> None:
        self.found = self.polls.poll(wait_s, self._look)

    def _look(self) -> LookResult[int]:
        self.looks += 1
        return LookResult(list(self.there))

    def result(self) -> list[int] | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.found


def waiting(wakeups: ServerWakeups, topic: str) -> Waiter:
    waited = wakeups.topic(topic)
    before = waited.waiting
    waiter = Waiter(wakeups.long_polls(topic))
    wait_until(lambda: waited.listening and waited.waiting > before)
    time.sleep(0.05)  # it looks once more after it began to listen
    return waiter


def test_what_is_heard_wakes_who_waits_for_it_and_nobody_else(wakeups: ServerWakeups, script: Script) -> None:
    one, two = waiting(wakeups, "a"), waiting(wakeups, "b")
    looks = two.looks
    one.there.append(1)
    script.say("a")
    assert one.result() == [1]
    assert two.looks == looks
    two.polls.close()
    assert two.result() == []


def test_news_that_came_with_an_answer_are_not_left_lying(wakeups: ServerWakeups, script: Script) -> None:
    """They have been read then, and no byte on the wire announces them."""
    one = waiting(wakeups, "a")
    one.there.append(1)
    listen = Listener.listen

    class Chatty(Listener):
        def listen(self, topics: Iterable[str]) -> None:
            listen(self, topics)
            script.news.append("a")

    script.listeners[0].__class__ = Chatty
    begun = time.monotonic()
    two = waiting(wakeups, "b")
    assert one.result() == [1]
    assert time.monotonic() - begun < 20
    two.polls.close()
    two.result()


def test_a_lost_listener_rings_every_topic_and_is_replaced(
    wakeups: ServerWakeups, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = waiting(wakeups, "a"), waiting(wakeups, "b")
    looks = one.looks, two.looks
    script.deaf = True
    script.say("a")
    wait_until(lambda: one.looks > looks[0] and two.looks > looks[1])
    assert "it hears nothing; consumers look every 1 s" in caplog.text
    script.deaf = False
    script.topics.clear()
    wait_until(lambda: script.topics == {"a", "b"})
    one.there.append(1)
    script.say("a")
    assert one.result() == [1]
    two.polls.close()
    two.result()


@pytest.mark.parametrize(("failures", "survives"), [(1, True), (2, False)])
def test_a_waiter_whose_idle_connection_broke_looks_once_more_and_a_server_that_is_down_is_an_error(
    wakeups: ServerWakeups, failures: int, survives: bool
) -> None:
    polls, looks = wakeups.long_polls("a"), 0

    def look() -> LookResult[int]:
        nonlocal looks
        looks += 1
        if looks == 1:
            return LookResult([], due_in=0.01)
        if looks <= 1 + failures:
            raise EngineUnavailableError("reset")
        return LookResult([7])

    if survives:
        assert polls.poll(10, look) == [7]
    else:
        with pytest.raises(EngineUnavailableError):
            polls.poll(10, look)


def test_the_first_look_of_a_poll_is_not_repeated(wakeups: ServerWakeups) -> None:
    looks: list[int] = []

    def look() -> LookResult[int]:
        looks.append(1)
        raise EngineUnavailableError("down")

    with pytest.raises(EngineUnavailableError):
        wakeups.long_polls("a").poll(10, look)
    assert len(looks) == 1


def test_wake_ends_the_polls_of_one_handle_or_the_next_one(wakeups: ServerWakeups) -> None:
    first = waiting(wakeups, "a")
    other = waiting(wakeups, "a")
    first.polls.wake()
    assert first.result() == []
    other.there.append(2)
    wakeups.topic("a").ring()
    assert other.result() == [2]
    first.polls.wake()
    assert Waiter(first.polls).result() == []


def test_a_wait_ends_when_something_is_due(wakeups: ServerWakeups) -> None:
    polls, looks = wakeups.long_polls("a"), 0

    def look() -> LookResult[int]:
        nonlocal looks
        looks += 1
        return LookResult([7]) if looks > 2 else LookResult([], due_in=0.05)

    begun = time.monotonic()
    assert polls.poll(60, look) == [7]
    assert 0.04 < time.monotonic() - begun < 30


def test_closing_the_wakeups_lets_nobody_wait_for_a_subscription(wakeups: ServerWakeups) -> None:
    wakeups.close()
    assert not wakeups.watch(wakeups.topic("a"), 10, Poll(lambda: None))


def test_a_poll_that_waits_for_a_silent_server_to_subscribe_ends_at_once_when_it_is_woken_or_closed(
    wakeups: ServerWakeups, script: Script
) -> None:
    script.silent = True
    for end in (LongPolls.wake, LongPolls.close):
        waiter = Waiter(wakeups.long_polls("a"))
        wait_until(lambda: wakeups.topic("a").waiting == 1)
        time.sleep(0.05)
        begun = time.monotonic()
        end(waiter.polls)
        assert waiter.result() == []
        assert time.monotonic() - begun < 20
    script.silent = False

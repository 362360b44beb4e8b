"""Messages that are handed to a consumer which waits, in the step that sends them, and what becomes of those that nobody takes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from queue import SimpleQueue
from typing import Any

import pytest
import redis
from tests.engines.opening import opener
from tests.engines.waiting import Poll
from tests.patience import wait_until
from tools.servers.redis import DURABLE

from tenure.engines import Engine, Outgoing, server_wakeups
from tenure.engines.contracts import Settlement
from tenure.engines.redis import RedisEngine, handover
from tenure.engines.redis import connections as scripts
from tenure.engines.redis.connections import script
from tenure.engines.redis.engine import RedisWakeupListener
from tenure.errors import EngineWentBackError, ReceiptHandleExpiredError
from tools.servers import FaultProxy, Valkey

Opened = Callable[..., RedisEngine]


@pytest.fixture(params=["valkey", "redis"])
def server_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(server_name: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{server_name}_url"))


@pytest.fixture
def opened(namespace: str, url: str) -> Iterator[Opened]:
    yield from opener(RedisEngine, url, f"namespace={namespace}")


@pytest.fixture(autouse=True)
def listeners_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine: one that begins anew lets its waiters look once more, and they are counted here."""
    monkeypatch.setattr(server_wakeups, "IDLE_S", 600.0)


class Keys:
    """The keys of one namespace, as an operator sees them."""

    def __init__(self, url: str, namespace: str) -> None:
        self.client: Any = redis.Redis.from_url(url)
        self._prefix = f"{{{namespace}}}:"

    def __call__(self, name: str) -> str:
        return self._prefix + name

    def offers(self, mailbox: str = "work") -> int:
        return int(self.client.zcard(self(f"o:{mailbox}")))

    def scripts_run(self) -> int:
        rows = self.client.info("commandstats")
        return sum(rows[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in rows)


@pytest.fixture
def keys(url: str, namespace: str) -> Iterator[Keys]:
    made = Keys(url, namespace)
    yield made
    made.client.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """Half a second for consumers to answer in, in place of ten."""
    monkeypatch.setitem(scripts._CONSTANTS, "{handed}", 500_000)
    monkeypatch.setattr(handover, "HANDED_S", 0.5)
    script.cache_clear()
    yield 0.5
    script.cache_clear()


def listening(mailbox: Any) -> Any:
    """A mailbox whose listener has begun, so that a poll looks once and then waits."""
    topic = mailbox.polls.topic
    if not topic.listening:
        poll = Poll(lambda: mailbox.receive(1, 300, 600))
        wait_until(lambda: topic.listening and topic.rings > 0)
        mailbox.wake()
        assert poll.result() == []
    return mailbox


def waiting(keys: Keys, mailbox: Any, *, offers: int = 1, lease: float = 300, **options: Any) -> Poll:
    """A consumer that waits, and whose offer the server has."""
    listening(mailbox)
    wait_until(lambda: keys.offers(mailbox.name) == offers - 1)
    poll = Poll(lambda: mailbox.receive(1, lease, 60, **options))
    wait_until(lambda: keys.offers(mailbox.name) == offers)
    wait_until(lambda: mailbox.polls.topic.waiting > 0)
    return poll


def deaf(engine: RedisEngine, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """From now on this process is told of hand-overs and does not hear: what it was told."""
    missed: list[bytes] = []
    monkeypatch.setattr(engine.offers, "hand_over", missed.append)
    return missed


# What is handed over


@pytest.mark.parametrize("lease", [5.0, 300.0])
@pytest.mark.parametrize("provisional", [False, True])
def test_a_message_is_handed_over_by_the_call_that_sends_it(
    opened: Opened, keys: Keys, lease: float, provisional: bool
) -> None:
    poll = waiting(keys, opened().mailbox("work"), lease=lease, provisional=provisional)
    sender = opened().mailbox("work")
    before, begun = keys.scripts_run(), time.clock_gettime(time.CLOCK_BOOTTIME)
    sender.send({"n": 1})
    (message,) = poll.result()
    # The send, and a word back where there is something to say. No claim.
    confirmed = 0 if provisional and lease < 10 else 1
    wait_until(lambda: keys.scripts_run() == before + 1 + confirmed)
    assert message.body == {"n": 1}
    assert (message.delivery_count, message.forgiven, message.fence) == (1, 0, (0, 1))
    wait_until(lambda: message.lease_left(begun) > lease - 3)
    assert message.lease_until - time.clock_gettime(time.CLOCK_BOOTTIME) <= lease
    assert sender.depth() == (0, 0, 1)
    message.extend_visibility(lease)
    message.acknowledge()
    assert sender.depth() == (0, 0, 0)
    wait_until(lambda: not list(keys.client.scan_iter(keys("[no]:*"))) or not confirmed)
    with pytest.raises(ReceiptHandleExpiredError):
        message.acknowledge()


def test_everything_that_a_claim_tells_is_told(opened: Opened, keys: Keys) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send("old", key="job/ä 1", generation=1)
    (old,) = mailbox.receive(1, 60)
    old.extend_visibility(60, b"\xff\n\x00half")
    poll = waiting(keys, opened().mailbox("work"))
    sent = mailbox.send(["body\n", "ü"], key="job/ä 1", generation=2**52, reply_to="replies/1")
    (message,) = poll.result()
    assert (message.id, message.body, message.key, message.generation) == (sent, ["body\n", "ü"], "job/ä 1", 2**52)
    assert (message.reply_to, message.checkpoint, message.failure) == ("replies/1", b"\xff\n\x00half", None)
    assert abs(message.enqueued_at - engine.now()) < 60
    with pytest.raises(ReceiptHandleExpiredError):
        old.acknowledge()
    mailbox.send("newer", key="job/ä 1", generation=2**52 + 1)
    with pytest.raises(ReceiptHandleExpiredError):
        message.acknowledge()


def test_replies_and_failures_are_handed_over(opened: Opened, keys: Keys) -> None:
    mailbox, replies = opened().mailbox("work"), opened().mailbox("replies")
    mailbox.send_many([Outgoing("a", reply_to="replies"), Outgoing("b", reply_to="replies")])
    first, second = mailbox.receive(2, 60)
    for act in (lambda: first.settle("done"), lambda: second.dead_letter("no use")):
        poll = waiting(keys, replies)
        before = keys.scripts_run()
        act()
        (answer,) = poll.result()
        wait_until(lambda before=before: keys.scripts_run() == before + 2)
        assert answer.body == "done" if answer.failure is None else answer.failure.reason == "no use"
        answer.acknowledge()


def test_a_batch_is_handed_to_as_many_as_wait_and_the_rest_is_queued(opened: Opened, keys: Keys) -> None:
    for number, batch in enumerate(([Outgoing(n) for n in range(4)], [Outgoing(n, key=f"k{n}") for n in range(4)])):
        polls = [waiting(keys, opened().mailbox("work"), offers=count + 1) for count in range(2)]
        sender = opened().mailbox("work")
        sender.send_many(batch)
        taken = [message for poll in polls for message in poll.result()]
        assert sorted(message.body for message in taken) == [0, 1], number
        assert [message.body for message in sender.receive(10, 60)] == [2, 3]
        sender.purge()


def test_who_waits_for_several_is_handed_the_first_and_claims_the_rest_together(opened: Opened, keys: Keys) -> None:
    mailbox, sender = listening(opened().mailbox("work")), opened().mailbox("work")
    poll = Poll(lambda: mailbox.receive(10, 60, 60))
    wait_until(lambda: keys.offers() == 1 and mailbox.polls.topic.waiting > 0)
    before = keys.scripts_run()
    sender.send_many([Outgoing(n) for n in range(4)])
    assert [message.body for message in poll.result()] == [0]
    assert keys.scripts_run() <= before + 2  # the send and the confirmation: nothing was looked for
    assert [message.body for message in mailbox.receive(10, 60)] == [1, 2, 3]


# What is not handed over. A stand-in for a consumer, so that nothing happens by itself.


class StandIn:
    """Subscribed like a process that waits, with offers of its own making."""

    def __init__(self, engine: RedisEngine, keys: Keys) -> None:
        self._keys = keys
        self.got: list[bytes] = []
        self.listener = RedisWakeupListener(engine.connections, "stand-in.1", self.got.append)
        self.listener.listen(["m:work"])
        keys.client.set(keys("w:stand-in"), 7)

    def offer(self, token: str, *, seconds: float = 60, address: str = "stand-in.1", counter: str = "stand-in") -> None:
        seconds_now, micros = self._keys.client.time()
        until_us = (seconds_now + seconds) * 1_000_000 + micros
        self._keys.client.zadd(self._keys("o:work"), {f"{token} {counter} {address} 60000000 1": until_us})

    def heard(self) -> list[str]:
        """The tokens that something was handed to."""
        self.listener.heard()
        got, self.got[:] = list(self.got), []
        return [payload.split(b'"')[1].decode() for payload in got]


@pytest.fixture
def stand_in(opened: Opened, keys: Keys) -> Iterator[StandIn]:
    made = StandIn(opened(), keys)
    with closing(made.listener):
        yield made


def test_the_freshest_offer_goes_first_and_those_of_processes_that_ended_are_passed_over(
    opened: Opened, keys: Keys, stand_in: StandIn
) -> None:
    mailbox = opened().mailbox("work")
    stand_in.offer("lapsed", seconds=-1)
    stand_in.offer("a", seconds=20)
    stand_in.offer("b", seconds=30)
    stand_in.offer("ended", seconds=40, address="ended.1")
    stand_in.offer("closed", seconds=50, counter="closed")
    mailbox.send(1)
    wait_until(lambda: stand_in.heard() == ["b"])
    assert keys.client.get(keys("w:stand-in")) == b"8"  # a write of theirs, which they can miss
    assert keys.offers() == 2
    mailbox.send(2)
    wait_until(lambda: stand_in.heard() == ["a"])
    mailbox.send(3)
    assert stand_in.heard() == []
    assert mailbox.depth() == (1, 0, 2)


def test_what_is_due_or_delayed_or_large_is_queued(opened: Opened, stand_in: StandIn) -> None:
    mailbox = opened().mailbox("work")
    stand_in.offer("a")
    mailbox.send("x" * 70_000)
    assert mailbox.depth() == (1, 0, 0)
    mailbox.send("after it")  # nobody overtakes
    assert mailbox.depth() == (2, 0, 0)
    mailbox.purge()
    mailbox.send("later", delay=60)
    assert mailbox.depth() == (0, 1, 0)
    mailbox.send("now")  # before what is not due yet
    assert mailbox.depth() == (0, 1, 1)
    wait_until(lambda: stand_in.heard() == ["a"])
    mailbox.purge()
    mailbox.send("x")
    mailbox.receive(1, 0.05)
    time.sleep(0.1)
    stand_in.offer("b")
    mailbox.send("y")  # the lease of x ran out
    assert mailbox.depth() == (2, 0, 0)
    assert stand_in.heard() == []


def test_offers_leave_nothing_behind(opened: Opened, keys: Keys, stand_in: StandIn) -> None:
    for number in range(500):
        stand_in.offer(f"lapsed-{number}", seconds=-1)
    engine = opened()
    poll = waiting(keys, engine.mailbox("work"))  # its claim swept them away
    assert 0 < keys.client.pttl(keys("o:work")) <= 35_000
    engine.mailbox("work").send("x")
    poll.result()[0].acknowledge()
    assert keys.offers() == 0
    wait_until(lambda: not keys.client.keys(keys("n:*").replace("{", "\\{")))
    assert engine.offers.is_empty


# Consumers that do not take it


def test_a_consumer_that_is_cut_off_holds_it_only_for_the_moment_in_which_it_should_have_answered(
    short: float, opened: Opened, keys: Keys, server_name: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(f"{server_name}_server")
    with FaultProxy(server.host, server.port) as proxy:
        engine = opened(url=server.url_of(0, port=proxy.port))
        mailbox = opened().mailbox("work", max_delivery_count=1)
        poll = waiting(keys, engine.mailbox("work"))
        proxy.partition()  # the server does not know
        begun = time.monotonic()
        mailbox.send("x")
        assert mailbox.depth() == (0, 0, 1)
        (message,) = mailbox.receive(1, 60, 60)
        assert time.monotonic() - begun >= short - 0.05
        # Its number may be known to whoever did not answer, so the fence grew; it was no try.
        assert (message.delivery_count, message.attempt) == (2, 1)
        proxy.heal()  # and now it hears of it, too late
        time.sleep(0.3)
        message.acknowledge()
        mailbox.send("y")
        assert [(taken.body, taken.delivery_count) for taken in poll.result()] == [("y", 1)]
        assert mailbox.dead_letters.count() == 0


STOPPED = """
import sys
from tenure.engines import Engine
with Engine.open(sys.argv[1]) as engine:
    print("waits", flush=True)
    [message] = engine.mailbox("work").receive(1, 1.0, 60, provisional=sys.argv[2] == "provisional")
    print(message.body, message.delivery_count, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["provisional", "counted"])
def test_a_process_that_was_stopped_while_it_waited_does_not_take_it_when_it_goes_on(
    opened: Opened, keys: Keys, url: str, namespace: str, stage: str
) -> None:
    command = [sys.executable, "-c", STOPPED, f"{url}?namespace={namespace}", stage]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            wait_until(lambda: keys.offers() == 1)
            process.send_signal(signal.SIGSTOP)
            mailbox = opened().mailbox("work")
            mailbox.send("x")
            (message,) = mailbox.receive(1, 60, 60)
            assert (message.delivery_count, message.attempt) == (2, 1)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.3)
            message.acknowledge()
            mailbox.send("y")
            assert process.stdout.read().split() == ["waits", "y", "1"]
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_process_that_was_killed_gets_nothing(opened: Opened, keys: Keys, url: str, namespace: str) -> None:
    with subprocess.Popen([sys.executable, "-c", STOPPED, f"{url}?namespace={namespace}", "counted"]) as process:
        wait_until(lambda: keys.offers() == 1)
        process.kill()
    wait_until(lambda: keys.client.execute_command("PUBSUB", "CHANNELS", keys("hand:*")) == [])
    mailbox = opened().mailbox("work")
    mailbox.send("x")
    assert mailbox.depth() == (1, 0, 0)
    assert [message.delivery_count for message in mailbox.receive(1, 60)] == [1]


ENDS: dict[str, Callable[[RedisEngine, Any], None]] = {
    "wake": lambda engine, mailbox: mailbox.wake(),
    "close": lambda engine, mailbox: mailbox.close(),
    "close of the engine": lambda engine, mailbox: engine.close(),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_poll_that_ends_while_something_is_on_its_way_gives_it_back_at_once(
    opened: Opened, keys: Keys, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    engine, other = opened(), opened().mailbox("work")
    missed = deaf(engine, monkeypatch)
    mailbox = engine.mailbox("work")
    poll = waiting(keys, mailbox)
    other.send("x")
    wait_until(lambda: len(missed) == 1)
    assert other.depth() == (0, 0, 1)
    ENDS[end](engine, mailbox)
    (message,) = other.receive(1, 60, 60)
    assert (message.delivery_count, message.forgiven) == (1, 0)
    assert poll.result() == []


def test_an_interrupted_receive_gives_back_what_is_on_its_way(
    opened: Opened, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = opened(), opened().mailbox("work")
    missed = deaf(engine, monkeypatch)
    mailbox = listening(engine.mailbox("work"))

    def interrupted(*_: Any) -> None:
        other.send("x")
        wait_until(lambda: len(missed) == 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(mailbox.polls, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mailbox.receive(1, 300, 60)
    (message,) = other.receive(1, 60, 60)
    assert message.delivery_count == 1


def test_a_poll_that_ends_by_its_time_withdraws_its_offer(opened: Opened, keys: Keys) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    listening(mailbox)
    assert mailbox.receive(1, 300, 0.5) == []
    wait_until(lambda: keys.offers() == 0)
    mailbox.send("x")
    assert mailbox.depth() == (1, 0, 0)


def test_a_forked_child_that_closes_leaves_the_offers_of_its_parent_alone(
    opened: Opened, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened()
    poll = waiting(keys, engine.mailbox("work"))
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        engine.offers.close()
    engine.commands.close()  # whatever it told was answered
    assert keys.offers() == 1
    opened().mailbox("work").send("x")
    assert [message.body for message in poll.result()] == ["x"]  # confirmed the slow way


def test_a_hand_over_whose_news_were_lost_with_the_listener_is_found_by_the_next_look(
    opened: Opened, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = opened(), opened().mailbox("work")
    missed = deaf(engine, monkeypatch)
    poll = waiting(keys, engine.mailbox("work"))
    other.send("x")
    wait_until(lambda: len(missed) == 1)
    keys.client.client_kill_filter(_type="pubsub")
    (message,) = poll.result()
    assert (message.body, message.delivery_count) == ("x", 1)
    engine.offers._open.clear()
    type(engine.offers).hand_over(engine.offers, missed[0])  # the old news: nobody waits for them
    message.acknowledge()


def test_a_hand_over_to_an_offer_that_nobody_remembers_goes_back_at_once(
    opened: Opened, keys: Keys, stand_in: StandIn
) -> None:
    """As after a claim that left an offer, and whose answer was lost."""
    engine, other = opened(), opened().mailbox("work")
    listening(engine.mailbox("work"))
    wait_until(lambda: keys.offers() == 0)
    stand_in.offer("forgotten", address=engine.offers.address)
    other.send("x")
    (message,) = other.receive(1, 60, 60)
    assert message.delivery_count == 1


def test_what_cannot_be_decoded_becomes_a_dead_letter_and_the_wait_goes_on(opened: Opened, keys: Keys) -> None:
    engine, other = opened(), opened().mailbox("work")
    poll = waiting(keys, engine.mailbox("work", int))
    other.send("no number")
    wait_until(lambda: other.dead_letters.count() == 1)
    wait_until(lambda: keys.offers() == 1)
    other.send(5)
    assert [message.body for message in poll.result()] == [5]


# The answer


def test_a_lease_is_a_short_one_until_the_server_has_answered(
    short: float, opened: Opened, keys: Keys, server_name: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(f"{server_name}_server")
    with FaultProxy(server.host, server.port) as proxy:
        engine, other = opened(url=server.url_of(0, port=proxy.port)), opened().mailbox("work")
        poll = waiting(keys, engine.mailbox("work"))
        proxy.cut_answer(script("confirm").sha)
        other.send("x")
        (message,) = poll.result()
        begun = engine.clock.boottime()
        wait_until(lambda: proxy.fired == 1)
        assert message.lease_left(begun) < 0.6 or message.lease_left(begun) > 200  # told once more, and answered
        wait_until(lambda: message.lease_left(begun) > 200)
        time.sleep(short + 0.2)
        assert other.receive(1, 60) == []
        message.acknowledge()


def test_the_attribute_asks_nobody_and_the_question_takes_in_the_answer(opened: Opened, keys: Keys) -> None:
    poll = waiting(keys, opened().mailbox("work"))
    sender = opened().mailbox("work")
    before, begun = keys.scripts_run(), time.clock_gettime(time.CLOCK_BOOTTIME)
    sender.send("x")
    (message,) = poll.result()
    wait_until(lambda: keys.scripts_run() == before + 2)  # the send, and the confirmation, which is answered by now
    assert message.lease_until < begun + 100
    wait_until(lambda: message.lease_left(begun) > 200)
    assert message.lease_until > begun + 200


def test_a_confirmation_that_never_arrived_is_told_again(
    short: float, opened: Opened, keys: Keys, server_name: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(f"{server_name}_server")
    with FaultProxy(server.host, server.port) as proxy:
        engine, other = opened(url=server.url_of(0, port=proxy.port)), opened().mailbox("work")
        poll = waiting(keys, engine.mailbox("work"))
        proxy.cut_request(script("confirm").sha)
        other.send("x")
        (message,) = poll.result()
        wait_until(lambda: proxy.fired == 1)
        begun = engine.clock.boottime()
        wait_until(lambda: message.lease_left(begun) > 200 or engine.clock.boottime() > begun + 30)
        assert message.lease_left(begun) > 200
        message.acknowledge()


def test_scripts_that_the_server_forgot_are_sent_with_the_answer(short: float, opened: Opened, keys: Keys) -> None:
    poll = waiting(keys, opened().mailbox("work"))
    sender = opened().mailbox("work")
    keys.client.script_flush()
    sender.send("x")
    (message,) = poll.result()
    begun = time.clock_gettime(time.CLOCK_BOOTTIME)
    wait_until(lambda: message.lease_left(begun) > 200)


def test_calls_with_a_receipt_need_not_wait_for_the_answer(opened: Opened, keys: Keys) -> None:
    engine, sender = opened(), opened().mailbox("work")
    for act in ("acknowledge", "release", "nack", "extend_visibility"):
        poll = waiting(keys, engine.mailbox("work"))
        sender.send(act)
        (message,) = poll.result()
        getattr(message, act)(*([60] if act == "extend_visibility" else []))
        engine.commands.read_answers()
        if act in ("release", "nack"):
            (again,) = sender.receive(1, 60, 60)
            assert again.delivery_count == (1 if act == "release" else 2)
        sender.purge()


def test_a_lost_hand_over_is_a_write_that_the_server_lost(opened: Opened, keys: Keys) -> None:
    engine, sender = opened(), opened().mailbox("work")
    poll = waiting(keys, engine.mailbox("work"), lease=5, provisional=True)
    sender.send("x")
    (message,) = poll.result()
    counter = keys(f"w:{engine.offers.address.partition('.')[0]}")
    keys.client.decr(counter)  # as after a restart that lost the last moment
    with pytest.raises(EngineWentBackError):
        message.acknowledge()
    keys.client.incr(counter)


@pytest.mark.slow
def test_with_replicas_to_wait_for_nothing_is_handed_over(own_server: Callable[[Any], Any], namespace: str) -> None:
    """A message belongs to its consumer only when the replicas know that: it claims, and waits for them."""
    primary = own_server(Valkey(DURABLE))
    own_server(Valkey(DURABLE, replica_of=primary))
    keys = Keys(primary.url, namespace)
    with Engine.open(f"{primary.url}?wait=1&namespace={namespace}") as engine:
        assert isinstance(engine, RedisEngine)
        poll = Poll(lambda: engine.mailbox("work").receive(1, 60, 60))
        wait_until(lambda: engine.wakeups.topic("m:work").listening)
        time.sleep(0.1)
        assert keys.offers() == 0
        engine.mailbox("work").send("x")
        assert [message.body for message in poll.result()] == ["x"]
    keys.client.close()


@pytest.mark.slow
def test_in_a_cluster_nothing_is_handed_over_and_all_works(own_server: Callable[[Any], Any]) -> None:
    server = own_server(Valkey({**DURABLE, "cluster-enabled": "yes"}))
    server.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    wait_until(lambda: "cluster_state:ok" in server.command("CLUSTER", "INFO"))
    with Engine.open(server.url) as engine:
        assert isinstance(engine, RedisEngine)
        assert not engine.hands_over
        poll = Poll(lambda: engine.mailbox("work").receive(1, 60, 60))
        wait_until(lambda: engine.wakeups.topic("m:work").listening)
        engine.mailbox("work").send("x")
        poll.result()[0].acknowledge()


# Consumers of several mailboxes


def consumer_of(engine: RedisEngine, sender: Any) -> Any:
    """A consumer of two mailboxes whose last message came from `work`, and whose listener has begun."""
    consumer: Any = engine.consumer()
    consumer.cover([["other"], ["work"]])
    sender.send("first")
    (message,) = consumer.exchange(visibility_timeout=10, provisional=True).messages
    consumer.exchange([Settlement(message)], max_messages=0)
    poll = Poll(lambda: consumer.exchange(wait_time_seconds=60))
    wait_until(lambda: consumer.polls.topic.listening and consumer.polls.topic.rings > 0)
    consumer.wake()
    assert poll.result().messages == []
    return consumer


def consumer_waiting(keys: Keys, consumer: Any) -> Poll:
    wait_until(lambda: keys.offers() == 0)
    poll = Poll(
        lambda: consumer.exchange(
            max_messages=3, visibility_timeout=10, wait_time_seconds=60, provisional=True, claim_id="c"
        )
    )
    wait_until(lambda: keys.offers() == 1 and consumer.polls.topic.waiting > 0)
    return poll


def test_a_consumer_gets_the_next_message_of_a_mailbox_without_another_look(opened: Opened, keys: Keys) -> None:
    sender = opened().mailbox("work")
    consumer = consumer_of(opened(), sender)
    poll = consumer_waiting(keys, consumer)
    before = keys.scripts_run()
    sender.send("x", reply_to="answers")
    (message,) = poll.result().messages
    assert keys.scripts_run() == before + 1  # the send, and nothing else
    assert (message.body, message.mailbox, message.delivery_count) == ("x", "work", 1)
    assert 7 < message.lease_left(time.clock_gettime(time.CLOCK_BOOTTIME)) <= 10
    assert sender.depth() == (0, 0, 1)
    assert consumer.exchange([Settlement(message, "done")], max_messages=0).lost == []
    assert sender.depth() == (0, 0, 0)
    assert [one.body for one in opened().mailbox("answers").receive()] == ["done"]


def test_a_consumer_with_an_offer_in_one_mailbox_finds_what_is_sent_to_another(opened: Opened, keys: Keys) -> None:
    sending = opened()
    consumer = consumer_of(opened(), sending.mailbox("work"))
    poll = consumer_waiting(keys, consumer)
    sending.mailbox("other").send("y")
    assert [message.mailbox for message in poll.result().messages] == ["other"]
    wait_until(lambda: keys.offers() == 0)  # it waits no longer, so nothing may be handed to it
    sending.mailbox("work").send("x")
    assert sending.mailbox("work").depth() == (1, 0, 0)


@pytest.mark.parametrize("end", ["wake", "close"])
def test_a_consumer_that_stops_waiting_gives_back_what_is_on_its_way(
    opened: Opened, keys: Keys, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    engine, other = opened(), opened().mailbox("work")
    missed = deaf(engine, monkeypatch)
    consumer = consumer_of(engine, other)
    poll = consumer_waiting(keys, consumer)
    other.send("x")
    wait_until(lambda: len(missed) == 1)
    assert other.depth() == (0, 0, 1)
    getattr(consumer, end)()
    found = other.receive(1, 60, 60)
    assert [(message.body, message.delivery_count) for message in found] == [("x", 1)]
    assert poll.result().messages == []


def test_a_consumer_that_is_woken_makes_no_further_look(opened: Opened, keys: Keys) -> None:
    """A supervisor wakes it because an outcome is to be settled: that waits for the poll to end."""
    consumer = consumer_of(opened(), opened().mailbox("work"))
    poll = consumer_waiting(keys, consumer)
    before = keys.scripts_run()
    consumer.wake()
    assert poll.result().messages == []
    wait_until(lambda: keys.offers() == 0)
    assert keys.scripts_run() == before + 1  # it takes its offer back


# What the listening thread gives to the consumer's owner itself


def test_what_is_handed_over_can_be_taken_before_the_exchange_returns(opened: Opened, keys: Keys) -> None:
    sender, taken = opened().mailbox("work"), SimpleQueue[Any]()
    consumer = consumer_of(opened(), sender)
    consumer.take_at_once(taken.put)
    for number in range(3):
        poll = consumer_waiting(keys, consumer)
        before = keys.scripts_run()
        sender.send(number)
        message = taken.get(timeout=10)
        assert poll.result().messages == []  # it is given once
        assert keys.scripts_run() == before + 1
        assert (message.body, message.mailbox) == (number, "work")
        assert 7 < message.lease_left(time.clock_gettime(time.CLOCK_BOOTTIME)) <= 10
        assert sender.depth() == (0, 0, 1)
        assert consumer.exchange([Settlement(message)], max_messages=0).lost == []
    assert sender.depth() == (0, 0, 0)
    assert taken.empty()


@pytest.mark.parametrize("end", ["wake", "close"])
def test_what_was_taken_stays_taken_when_the_consumer_stops_waiting_at_that_moment(
    opened: Opened, keys: Keys, end: str
) -> None:
    sender, entered, goes_on, taken = opened().mailbox("work"), threading.Event(), threading.Event(), list[Any]()
    consumer = consumer_of(opened(), sender)

    def take(message: Any) -> None:
        entered.set()
        assert goes_on.wait(10)
        taken.append(message)

    consumer.take_at_once(take)
    poll = consumer_waiting(keys, consumer)
    sender.send("x")
    assert entered.wait(10)
    getattr(consumer, end)()
    goes_on.set()
    assert poll.result().messages == []
    assert sender.depth() == (0, 0, 1)
    taken[0].acknowledge()  # its receipt is good: nothing was given back
    assert sender.depth() == (0, 0, 0)


def test_who_waits_no_longer_takes_nothing(opened: Opened, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, other, taken = opened(), opened().mailbox("work"), SimpleQueue[Any]()
    hear = engine.offers.hand_over
    missed = deaf(engine, monkeypatch)
    consumer = consumer_of(engine, other)
    consumer.take_at_once(taken.put)
    poll = consumer_waiting(keys, consumer)
    other.send("x")
    wait_until(lambda: len(missed) == 1)
    consumer.wake()
    assert poll.result().messages == []
    hear(missed[0])
    assert taken.empty()
    assert [message.body for message in other.receive(1, 60, 60)] == ["x"]


def test_a_lease_that_has_to_be_confirmed_is_not_given_away_before(opened: Opened, keys: Keys) -> None:
    sender, taken = opened().mailbox("work"), SimpleQueue[Any]()
    consumer = consumer_of(opened(), sender)
    consumer.take_at_once(taken.put)
    wait_until(lambda: keys.offers() == 0)
    poll = Poll(lambda: consumer.exchange(visibility_timeout=300, wait_time_seconds=60))
    wait_until(lambda: keys.offers() == 1 and consumer.polls.topic.waiting > 0)
    sender.send("x")
    assert [message.body for message in poll.result().messages] == ["x"]
    assert taken.empty()


@pytest.mark.slow
def test_many_consumers_and_senders_lose_and_repeat_nothing(opened: Opened) -> None:
    engines = [opened() for _ in range(3)]
    taken: list[int] = []
    lock, count = threading.Lock(), 600

    def consume(number: int) -> None:
        mailbox = engines[number % 3].mailbox("work")
        while len(taken) < count:
            for message in mailbox.receive(1, 60, 0.05 + 0.01 * number, provisional=number % 2 == 0):
                message.acknowledge()
                with lock:
                    taken.append(message.body)

    def send(number: int) -> None:
        mailbox = engines[number].mailbox("work")
        for n in range(number, count, 3):
            mailbox.send(n)
            time.sleep(0.001 * (n % 4))

    threads = [threading.Thread(target=consume, args=(n,)) for n in range(6)]
    threads += [threading.Thread(target=send, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive()
    assert sorted(taken) == list(range(count))
    assert engines[0].mailbox("work").depth() == (0, 0, 0)

"""What is particular to the memory engine: no threads, no growth, no herd, the same run every time."""

from __future__ import annotations

import threading
import time

import pytest

from tenure.clock import ManualClock, SystemClock
from tenure.engines import Engine, InMemoryMailbox, MemoryEngine, Outgoing
from tenure.engines.contracts import KEY_MEMORY_S
from tenure.errors import ConfigurationError, KeyRefusedError, ReceiptHandleExpiredError


class CountingClock(SystemClock):
    """Counts how often a waiting thread got up."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = 0
        self.parked = 0

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        self.parked += 1
        answer = super().wait(condition, timeout)
        self.woken += 1
        return answer


def test_there_is_no_thread_however_many_mailboxes_there_are() -> None:
    before = threading.active_count()
    engine = MemoryEngine()
    for number in range(50):
        engine.mailbox(f"m{number}").send("x", delay=10)
    assert threading.active_count() == before


def test_one_message_wakes_one_of_many_waiting_consumers() -> None:
    clock = CountingClock()
    engine = MemoryEngine(clock)
    threads = [threading.Thread(target=engine.mailbox("work").receive, args=(1, 60, 30)) for _ in range(20)]
    for thread in threads:
        thread.start()
    while clock.parked < 20:
        time.sleep(0.005)
    engine.mailbox("work").send("x")
    while clock.woken < 1:
        time.sleep(0.005)
    time.sleep(0.2)
    # One for the message; the first in line may have got up once more, to note when its lease runs out.
    assert clock.woken <= 2
    engine.close()
    for thread in threads:
        thread.join(60)


def test_a_moment_that_many_wait_for_wakes_one_of_them() -> None:
    clock = CountingClock()
    engine = MemoryEngine(clock)
    threads = [threading.Thread(target=engine.mailbox("work").receive, args=(1, 60, 30)) for _ in range(20)]
    for thread in threads:
        thread.start()
    while clock.parked < 20:
        time.sleep(0.005)
    engine.mailbox("work").send("x", delay=0.2)
    while engine.mailbox("work").depth() != (0, 0, 1):
        time.sleep(0.02)
    assert clock.woken <= 4
    engine.close()
    for thread in threads:
        thread.join(60)


def test_settled_messages_leave_nothing_behind() -> None:
    clock = ManualClock()
    mailbox = InMemoryMailbox(clock=clock)
    mailbox.send("kept")
    mailbox.receive(1, 43_200)
    for _ in range(12_000):
        mailbox.send("x")
        mailbox.receive(1, 300)[0].acknowledge()
    state = mailbox.box.state
    assert len(state.timers) < 200
    assert len(state.records) == 1


def test_replaced_and_withdrawn_messages_leave_nothing_behind() -> None:
    mailbox = InMemoryMailbox(clock=ManualClock())
    mailbox.send_many([Outgoing("other") for _ in range(10)])
    for generation in range(2_000):
        mailbox.send("x", key="job", generation=generation, delay=0 if generation % 2 else 10)
    assert mailbox.depth() == (11, 0, 0)
    assert len(mailbox.box.state.ready) < 200
    assert len(mailbox.box.state.timers) < 200


def test_keys_are_forgotten_a_day_after_their_message_ended() -> None:
    clock = ManualClock()
    mailbox = InMemoryMailbox(clock=clock)
    for number in range(100):
        mailbox.send("x", key=f"k{number}")
    mailbox.revoke("never sent")
    for message in mailbox.receive(99, 43_200):
        message.acknowledge()
    clock.advance(KEY_MEMORY_S - 0.001)
    for key in ("k0", "k98", "k99", "never sent"):
        with pytest.raises(KeyRefusedError):
            mailbox.send("y", key=key)
    clock.advance(0.001)
    mailbox.send("y", key="k0")
    assert len(mailbox.box.state.keys.records) == 2  # the one that still lives, and the new one
    with pytest.raises(KeyRefusedError):
        mailbox.send("y", key="k99")


def test_a_key_that_ended_twice_is_remembered_from_its_last_end() -> None:
    clock = ManualClock()
    mailbox = InMemoryMailbox(clock=clock)
    for generation in (1, 2):
        mailbox.send("x", key="k", generation=generation)
        mailbox.receive()[0].acknowledge()
        clock.advance(KEY_MEMORY_S / 2 + 1)
    with pytest.raises(KeyRefusedError):
        mailbox.send("x", key="k", generation=2)


def test_a_dead_letter_replayed_after_a_purge_still_has_leases_that_end() -> None:
    """Its old timer went with the purge, so it must not be counted on."""
    clock = ManualClock()
    mailbox = InMemoryMailbox(clock=clock)
    sent = mailbox.send("x")
    mailbox.receive(1, 10)[0].dead_letter("no")
    mailbox.purge()
    assert mailbox.dead_letters.replay(sent)
    mailbox.receive(1, 20)
    clock.advance(20)
    assert [message.delivery_count for message in mailbox.receive()] == [3]


def test_the_same_calls_and_ids_give_the_same_run() -> None:
    def run() -> list[tuple[str, str, int]]:
        clock = ManualClock()
        mailbox = MemoryEngine(clock, ids=lambda: "seeded").mailbox("work")
        mailbox.send_many([Outgoing(n, delay=n % 3) for n in range(9)])
        seen = []
        for _ in range(6):
            for message in mailbox.receive(2, 2):
                seen.append((message.id, message.receipt_handle, message.delivery_count))
            clock.advance(1)
        return seen

    assert run() == run()
    assert len(run()) == 10


def test_stepping_the_wall_clock_changes_no_lease_and_no_timestamp() -> None:
    clock = ManualClock()
    engine = MemoryEngine(clock)
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    (message,) = mailbox.receive(1, 60)
    before = engine.now()
    for step in (-7_200, 14_400):
        clock.step_wall(step)
        assert engine.now() == before
        message.extend_visibility(60)
    clock.advance(60)
    with pytest.raises(ReceiptHandleExpiredError):
        message.acknowledge()


def test_a_refusal_says_why_the_delivery_is_over() -> None:
    clock = ManualClock()
    mailbox = InMemoryMailbox(clock=clock)

    def refusal(end: str) -> str:
        mailbox.send("x", key=f"{end}/{clock.monotonic()}")
        (message,) = mailbox.receive(1, 10)
        {
            "settled": lambda: message.acknowledge(),
            "nacked": lambda: message.nack(40_000),
            "ran out": lambda: clock.advance(10),
            "replaced": lambda: mailbox.send("y", key=message.key, generation=1, delay=40_000),
            "revoked": lambda: mailbox.revoke(message.key or ""),
            "purged": lambda: mailbox.purge(),
        }[end]()
        with pytest.raises(ReceiptHandleExpiredError) as refused:
            message.acknowledge()
        mailbox.purge()
        return refused.value.reason

    assert refusal("settled") == "it was acknowledged"
    assert refusal("nacked") == "it was nacked"
    assert refusal("ran out") == "its lease ran out"
    assert refusal("replaced") == "generation 1 of its key replaced it"
    assert refusal("revoked") == "its key was revoked"
    assert refusal("purged") == "the mailbox was purged"


def test_standalone_mailboxes_answer_to_each_other() -> None:
    """Each has an engine of its own; the documents pass one as the reply_to of another."""
    requests, replies = InMemoryMailbox(), InMemoryMailbox()  # even under the same name
    requests.send("x", reply_to=replies)
    (message,) = requests.receive()
    message.settle("answer")
    requests.send("y", reply_to=replies)
    requests.receive()[0].dead_letter("no")
    first, second = replies.receive(10)
    assert first.body == "answer"
    assert second.failure is not None
    assert requests.approximate_count() == 0


def test_the_news_of_a_dead_letter_does_not_wait_for_the_poll_that_made_it() -> None:
    requests, replies = InMemoryMailbox(max_delivery_count=1), InMemoryMailbox()
    requests.send("x", reply_to=replies)
    requests.receive(1, 0.1)
    thread = threading.Thread(target=requests.receive, args=(1, 60, 60))
    thread.start()
    (news,) = replies.receive(1, 60, 30)
    assert news.failure is not None
    assert thread.is_alive()
    requests.close()
    thread.join(60)


def test_two_mailboxes_that_answer_each_other_from_two_threads_do_not_lock_up() -> None:
    one, two = InMemoryMailbox(name="one"), InMemoryMailbox(name="two")
    questions = {}
    for mine, other in ((one, two), (two, one)):
        for number in range(500):
            mine.send(number, reply_to=other)
        questions[mine] = mine.receive(500, 300)
    failed: list[BaseException] = []

    def answer(mailbox: InMemoryMailbox[int, int]) -> None:
        try:
            for message in questions[mailbox]:
                message.settle(message.body)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=answer, args=(mailbox,)) for mailbox in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failed
    for mailbox in (one, two):
        assert sorted(message.body for message in mailbox.receive(1_000)) == list(range(500))


def test_a_memory_url_names_nothing() -> None:
    with Engine.open("memory://") as one, Engine.open("memory://") as two:
        one.mailbox("work").send("x")
        assert two.mailbox("work").approximate_count() == 0
    for url in ("memory://shared", "memory:///path", "memory://?x=1"):
        with pytest.raises(ConfigurationError, match="always new and private"):
            Engine.open(url)


def test_importing_the_engines_does_not_load_any_of_them() -> None:
    import subprocess
    import sys

    code = "import sys, tenure.engines; print([m for m in sys.modules if m.startswith('tenure.engines.memory')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"

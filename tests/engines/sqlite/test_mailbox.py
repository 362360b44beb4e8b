"""What is particular to this engine's mailbox; what every engine promises is in tests/contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.engines.sqlite.conftest import Opener

from tenure.clock import ManualClock
from tenure.engines import Engine, Outgoing
from tenure.engines.contracts import Message, Settlement
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite import SqliteEngine, open_sqlite
from tenure.errors import MailboxError, ReceiptHandleExpiredError


def test_a_batch_is_acknowledged_in_one_commit_and_tells_what_was_not_ours(
    engine: SqliteEngine, clock: ManualClock
) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send_many([Outgoing(n, key=f"k{n}" if n % 2 else None) for n in range(6)])
    short = mailbox.receive(2, 5)
    kept = mailbox.receive(4, 60)
    clock.advance(5)
    with engine.database.reader as tx:
        (before,) = tx.execute("PRAGMA data_version").fetchone()
    assert mailbox.acknowledge_many([*short, *kept]) == short
    with engine.database.reader as tx:
        (after,) = tx.execute("PRAGMA data_version").fetchone()
    assert after == before + 1
    assert [message.body for _ in range(2) for message in mailbox.receive(10)] == [0, 1]
    assert mailbox.acknowledge_many([]) == []


def test_a_batch_of_messages_of_several_files_is_acknowledged_one_by_one(
    engine: SqliteEngine, tmp_path: Path, clock: ManualClock
) -> None:
    with open_sqlite(f"sqlite:///{tmp_path}/other.db", clock) as other:
        for each in (engine, other):
            each.mailbox("work").send("x")
        mixed = [*engine.mailbox("work").receive(), *other.mailbox("work").receive()]
        assert engine.mailbox("work").acknowledge_many(mixed) == []
        assert engine.mailbox("work").approximate_count() == other.mailbox("work").approximate_count() == 0


def test_a_row_that_is_used_again_does_not_revive_an_old_receipt(engine: SqliteEngine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("old")
    (old,) = mailbox.receive()
    mailbox.purge()
    mailbox.send("new")  # the row of the highest number was deleted, so its number is given out again
    (new,) = mailbox.receive()
    assert old.receipt_handle.split("-")[:2] == new.receipt_handle.split("-")[:2]
    with pytest.raises(ReceiptHandleExpiredError, match="purged"):
        old.acknowledge()
    new.acknowledge()


def test_a_dead_receipt_says_why(opened: Opener, clock: ManualClock) -> None:
    mailbox = opened().mailbox("work")
    mailbox.send("x", key="k")
    (first,) = mailbox.receive(1, 10)
    first.nack()
    with pytest.raises(ReceiptHandleExpiredError, match="given back"):
        first.extend_visibility(1)
    (second,) = mailbox.receive(1, 10)
    with pytest.raises(ReceiptHandleExpiredError, match="another delivery"):
        first.extend_visibility(1)
    clock.advance(12.5)
    with pytest.raises(ReceiptHandleExpiredError, match=r"ran out 2\.500 s ago"):
        second.acknowledge()
    mailbox.revoke("k")
    with pytest.raises(ReceiptHandleExpiredError, match="revoked"):
        second.nack()


KEYS = st.sampled_from([None, "a", "b"])


ACTS: dict[str, Callable[[Message[Any, Any]], None]] = {
    "acknowledge": lambda message: message.acknowledge(),
    "nack": lambda message: message.nack(2),
    "release": lambda message: message.release(),
    "settle": lambda message: message.settle("done"),
    "dead_letter": lambda message: message.dead_letter("no use"),
    "extend": lambda message: message.extend_visibility(10),
    "extend a little": lambda message: message.extend_visibility(1, b"checkpoint"),
}


class SameAsMemory(RuleBasedStateMachine):
    """The same calls, at the same moments, have the same outcome here and in the memory engine."""

    folder: Path
    number = 0

    def __init__(self) -> None:
        super().__init__()
        SameAsMemory.number += 1
        self.clock = ManualClock()
        url = f"sqlite:///{self.folder}/{SameAsMemory.number}.db?synchronous=normal"
        self.engines: tuple[Engine, Engine] = (open_sqlite(url, self.clock), MemoryEngine(self.clock))
        self.boxes = [engine.mailbox("work", max_delivery_count=3) for engine in self.engines]
        self.replies = [engine.mailbox("replies") for engine in self.engines]
        self.held: list[tuple[Message[Any, Any], Message[Any, Any]]] = []
        self.sent = 0

    def teardown(self) -> None:
        for engine in self.engines:
            engine.close()

    def both(self, outcomes: list[Any]) -> Any:
        assert outcomes[0] == outcomes[1]
        self.clock.advance(0.001)  # so that no two things happen at the same moment
        return outcomes[0]

    @staticmethod
    def outcome(call: Any) -> Any:
        try:
            return call()
        except MailboxError as error:
            return type(error).__name__

    @rule(key=KEYS, generation=st.integers(0, 20), delay=st.sampled_from([0, 0, 5]))
    def send(self, key: str | None, generation: int, delay: float) -> None:
        self.sent += 1

        def send_to(box: Any) -> bool:
            return bool(box.send(self.sent, key=key, generation=generation, reply_to="replies", delay=delay))

        self.both([self.outcome(lambda box=box: send_to(box)) for box in self.boxes])

    @rule(
        lease=st.sampled_from([3, 20]),
        provisional=st.booleans(),
        acts=st.lists(st.lists(st.sampled_from(sorted(ACTS)), max_size=3), min_size=1, max_size=4),
    )
    def receive_all_and_act(self, lease: float, provisional: bool, acts: list[list[str]]) -> None:
        found = [sorted(self.all_of(box, lease, provisional), key=lambda message: message.body) for box in self.boxes]
        self.both([[(m.body, m.key, m.fence, m.checkpoint, m.lease_until) for m in each] for each in found])
        pairs = list(zip(*found, strict=True))
        for number, pair in enumerate(pairs):
            for act in acts[number % len(acts)]:
                self.act(pair, act)
        self.held = (self.held + pairs)[-8:]

    @staticmethod
    def all_of(box: Any, lease: float, provisional: bool) -> list[Message[Any, Any]]:
        """In several batches: suspect messages come alone."""
        found: list[Message[Any, Any]] = []
        while batch := box.receive(1_000, lease, provisional=provisional):
            found += batch
        return found

    @rule(which=st.integers(0, 7), act=st.sampled_from(sorted(ACTS)))
    def act_later(self, which: int, act: str) -> None:
        if self.held:
            self.act(self.held[which % len(self.held)], act)

    def act(self, pair: tuple[Message[Any, Any], Message[Any, Any]], act: str) -> None:
        self.both([self.outcome(lambda m=m: ACTS[act](m)) for m in pair])

    @rule(key=st.sampled_from(["b", "c"]))  # never "a": that one goes on
    def revoke(self, key: str) -> None:
        self.both([box.revoke(key) for box in self.boxes])

    @rule(really=st.integers(0, 3))
    def purge(self, really: int) -> None:
        if not really:  # now and then: it makes an end of everything that was built up
            self.both([box.purge() for box in self.boxes])

    @rule()
    def replay(self) -> None:
        letters = [box.dead_letters.list() for box in self.boxes]
        told = [
            [(d.body, d.cause, d.delivery_count, d.key, d.generation, d.checkpoint) for d in each] for each in letters
        ]
        if self.both(told):
            pairs = zip(self.boxes, letters, strict=True)
            self.both([self.outcome(lambda box=box, d=d: box.dead_letters.replay(d[0].id)) for box, d in pairs])

    @rule(seconds=st.sampled_from([1, 4, 12, 30, 90_000]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def read_replies(self) -> None:
        found = [box.receive(1_000, 1_000) for box in self.replies]
        told = [sorted(repr((m.body, m.failure and (m.failure.cause, m.failure.key))) for m in each) for each in found]
        self.both(told)

    @invariant()
    def the_depths_agree(self) -> None:
        assert self.boxes[0].depth() == self.boxes[1].depth()


@pytest.mark.slow
def test_the_same_calls_have_the_same_outcome_as_in_the_memory_engine(tmp_path: Path) -> None:
    SameAsMemory.folder = tmp_path
    run_state_machine_as_test(
        SameAsMemory,
        settings=settings(
            max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def statements(engine: SqliteEngine, act: Callable[[], Any]) -> list[str]:
    """The statements that the writer runs meanwhile."""
    seen: list[str] = []
    with engine.database.writer as tx:
        connection = tx
    connection.set_trace_callback(seen.append)
    act()
    connection.set_trace_callback(None)
    return seen


def test_a_group_and_the_next_claims_are_one_commit(opened: Opener) -> None:
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([["a", "b"], ["c"]])
    for name in "abc":
        engine.mailbox(name).send_many([Outgoing(number, reply_to="replies") for number in range(10)])
    found = consumer.exchange(max_messages=15, visibility_timeout=60).messages
    group = [Settlement(each, "done") for each in found]
    seen = statements(engine, lambda: consumer.exchange(group, max_messages=15, visibility_timeout=60))
    assert seen.count("COMMIT") == 1
    assert engine.mailbox("replies").depth().ready == 15


def cost(engine: SqliteEngine, mailboxes: int) -> int:
    consumer = engine.consumer()
    consumer.cover([[f"w{mailboxes}/{number}" for number in range(mailboxes)]])
    engine.mailbox(f"w{mailboxes}/{mailboxes - 1}").send_many([Outgoing(number) for number in range(30)])
    return len(statements(engine, lambda: consumer.exchange(visibility_timeout=60)))


def test_five_hundred_mailboxes_of_which_one_has_work_take_one_statement_more_than_one(opened: Opener) -> None:
    engine = opened()
    assert cost(engine, 500) == cost(engine, 1) + 1


def test_a_lost_ring_for_a_covered_mailbox_is_made_good(opened: Opener) -> None:
    """A sender that died between commit and ring: the file itself is looked at once a second."""
    from tests.contract.case import Background

    engine: Engine = opened(live=True)
    consumer = engine.consumer()
    consumer.cover([["a", "b"]])
    poll = Background(lambda: consumer.exchange(wait_time_seconds=30).messages)
    other: SqliteEngine = opened(live=True)
    other.wakeups.ring = lambda name: None  # type: ignore[method-assign]
    other.mailbox("b").send("x")
    assert [message.body for message in poll.result(10)] == ["x"]


def test_messages_for_several_mailboxes_are_one_commit(opened: Opener) -> None:
    engine = opened()
    mailboxes = [engine.mailbox(name) for name in "abc"] * 5
    batches = [(mailbox, [Outgoing("x", key=str(place))]) for place, mailbox in enumerate(mailboxes)]
    assert statements(engine, lambda: engine.send_across(batches)).count("COMMIT") == 1


def synced(seen: list[str]) -> int:
    """The commits among these statements that wait for the disk."""
    commits, waits = 0, True
    for statement in seen:
        if statement.startswith("PRAGMA synchronous"):
            waits = "full" in statement
        commits += waits and statement == "COMMIT"
    assert waits, "the next transaction would not wait for the disk"
    return commits


def test_a_provisional_claim_waits_for_no_sync(opened: Opener) -> None:
    engine = opened()
    consumer, mailbox = engine.consumer(), engine.mailbox("a")
    consumer.cover([["a"]])
    mailbox.send_many([Outgoing(number, reply_to="replies") for number in range(4)])
    found = list[Any]()

    def claim(**options: Any) -> None:
        found.extend(consumer.exchange(visibility_timeout=60, provisional=True, **options).messages)

    assert synced(statements(engine, claim)) == 0
    assert synced(statements(engine, lambda: mailbox.receive(1, 60, provisional=True))) == 0
    group = [Settlement(each, "done") for each in found]
    assert synced(statements(engine, lambda: claim(settlements=group))) == 1, "what is settled is durable"
    assert synced(statements(engine, lambda: found[-1].extend_visibility(60))) == 1, "and so is a confirmed start"
    assert synced(statements(engine, lambda: mailbox.receive(1, 60))) == 1


def test_a_provisional_claim_of_a_suspect_message_is_synced(opened: Opener, clock: ManualClock) -> None:
    """It is counted, and the count must not be lost with the machine that the message brings down."""
    engine = opened()
    mailbox, consumer = engine.mailbox("a"), engine.consumer()
    consumer.cover([["a"]])
    mailbox.send("x")
    for claim in (
        lambda: mailbox.receive(1, 5, provisional=True),
        lambda: consumer.exchange(visibility_timeout=5, provisional=True),
    ):
        mailbox.receive(1, 5, provisional=True)
        clock.advance(6)
        assert synced(statements(engine, claim)) == 1
        clock.advance(6)


def test_with_synchronous_normal_no_transaction_changes_the_setting(opened: Opener) -> None:
    engine = opened("?synchronous=normal")
    mailbox = engine.mailbox("a")
    mailbox.send("x")
    assert not [one for one in statements(engine, lambda: mailbox.receive(1, 60, provisional=True)) if "PRAGMA" in one]


def test_a_claim_that_fails_leaves_no_transaction_unsynced(opened: Opener) -> None:
    engine = opened()
    with pytest.raises(ZeroDivisionError), engine.database.writer.unsynced:
        raise ZeroDivisionError
    assert engine.database.writer.read("PRAGMA synchronous") == [(2,)]

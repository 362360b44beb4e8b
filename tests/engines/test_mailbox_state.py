"""The mailbox state machine against SQLite, which shares no rule with it: any sequence of calls has the same answers on both.

Memory and NATS fold one machine, so that they agree proves nothing. A plan of calls is played on a memory and on a SQLite engine with one manual
clock; each answer and all that can be seen of the mailbox must be equal. Some things the contract leaves open, and the two engines
do them differently. Plans stay out of their way:

- Of messages that become visible in the same moment either may come first. So each call comes a millisecond after the one before, and of a
  batch, whose leases would end together, all but one are extended at once, each to another moment.
- Of two messages that were released either may come first: one is released at a time.
- A message that has used up its deliveries, or cannot be decoded, may end a batch early: batches have neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from tenure.clock import ManualClock
from tenure.engines import Engine, MemoryEngine, Outgoing
from tenure.engines.contracts import KEY_MEMORY_S, NO_REPLY, Message, Settlement, Withdrawal
from tenure.engines.mailbox_keys import MailboxKeys
from tenure.engines.mailbox_records import STARTED, MessageRecord
from tenure.engines.mailbox_state import MailboxState
from tenure.errors import TenureError

LIMIT = 3
KEYS = (None, None, "a", "b", "c")
DELAYS = (0, 0, 4)
LEASES = (1, 4, 10)
SPANS = (1, 4, 10, 10, KEY_MEMORY_S)
CHECKPOINTS = (None, b"", b"one", b"two")
KINDS = (
    "nothing",  # first: the steps that a difference does not need shrink to it
    *("send", "send", "send_many", "poison", "receive", "receive", "receive", "batch", "pass_time", "pass_time"),
    *("acknowledge", "acknowledge_many", "settle", "reply", "nack", "nack", "release", "release", "extend", "extend"),
    *("reject", "adopt", "write", "revoke", "replay", "delete", "purge"),
    *("exchange", "exchange", "exchange_group", "exchange_again", "extend_many", "withdraw", "withdraw", "elsewhere"),
)
plans = st.lists(st.tuples(st.sampled_from(KINDS), *[st.integers(0, 59)] * 3), min_size=40, max_size=100)
Plan = list[tuple[str, int, int, int]]


def answer(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except TenureError as error:
        # The texts about receipts and keys name ids, which differ.
        return type(error).__name__


def seen(message: Message[Any, Any]) -> tuple[Any, ...]:
    """Everything of a delivery but its id and its receipt."""
    failure = message.failure
    news = None if failure is None else (failure.cause, failure.reason, failure.key, failure.generation)
    counted = (message.delivery_count, message.forgiven, message.attempt, message.suspect, message.fence)
    content = (message.body, message.key, message.generation, message.checkpoint, message.reply_to, news)
    return (*content, *counted, round(message.lease_until, 4), round(message.enqueued_at, 4))


class Side:
    """One of the two engines, and the deliveries that it gave out."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.name = name
        self.work = engine.mailbox(name, int, int, max_delivery_count=LIMIT)
        self.any = engine.mailbox(name)
        self.replies = engine.mailbox(f"{name}/replies")
        self.store = engine.store("results")
        self.consumer = engine.consumer(int, int, max_delivery_count=LIMIT)
        self.consumer.cover([[name, f"{name}/b"], [f"{name}/c"]])
        self.others = [engine.mailbox(f"{name}/{letter}") for letter in "bc"]
        self.claims = 0
        self.held: list[Message[Any, Any]] = []
        self.bodies = 0
        self.released: Message[Any, Any] | None = None

    def outgoing(self, a: int, b: int, c: int) -> Outgoing[Any]:
        self.bodies += 1
        key = KEYS[a % 5]
        reply_to = self.replies.name if c % 2 else None
        generation = self.bodies // 4 + b % 3  # mostly a newer one, sometimes one that is refused
        return Outgoing(self.bodies, key, generation if key else 0, reply_to, DELAYS[c % 3])

    def nothing(self, a: int, b: int, c: int) -> Any:
        return None

    def send(self, a: int, b: int, c: int) -> Any:
        one = self.outgoing(a, b, c)
        options = {"key": one.key, "generation": one.generation, "reply_to": one.reply_to, "delay": one.delay}
        refused = answer(lambda: self.any.send(one.body, **options) and None)
        if refused is None:
            self.gone(one.key)
        return refused

    def send_many(self, a: int, b: int, c: int) -> Any:
        batch = [self.outgoing(a + n, b + n, c) for n in range(3)]
        accepted = [one.refused is None for one in self.any.send_many(batch)]
        for one, is_in in zip(batch, accepted, strict=True):
            self.gone(one.key if is_in else None)
        return accepted

    def poison(self, a: int, b: int, c: int) -> Any:
        self.any.send(f"no number {a}", reply_to=self.replies)

    def receive(self, a: int, b: int, c: int) -> Any:
        return self.take(self.work.receive(1, LEASES[a % 3], provisional=b % 2 == 0))

    def take(self, found: list[Message[Any, Any]]) -> Any:
        self.held += found
        if any(self.released is not None and message.id == self.released.id for message in found):
            self.released = None
        return [seen(message) for message in found]

    def batch(self, a: int, b: int, c: int) -> Any:
        found = self.any.receive(1 + a % 4, LEASES[b % 3], provisional=c % 2 == 0)
        for number, message in enumerate(found[1:], 1):
            message.extend_visibility(10 + b % 3 + number / 7)
        return self.take(found)

    def elsewhere(self, a: int, b: int, c: int) -> Any:
        """Sends to the other mailboxes that the consumer covers, and now and then what it cannot read."""
        self.bodies += 1
        reply_to = self.replies.name if c % 2 else None
        self.others[a % 2].send(self.bodies if b % 10 else "poison", reply_to=reply_to, delay=DELAYS[c % 3])

    def exchange(self, a: int, b: int, c: int) -> Any:
        self.claims += 1
        done = self.consumer.exchange(
            visibility_timeout=LEASES[a % 3],
            provisional=b % 2 == 0,
            fair=c % 4 == 0,
            claim_id=f"c{self.claims}" if c % 2 else "",
        )
        return [message.mailbox[len(self.name) :] for message in done.messages], self.take(done.messages)

    def exchange_group(self, a: int, b: int, c: int) -> Any:
        """Settles some, which may be over or repeated, and claims one."""
        group = [Settlement(m, b if m.reply_to and c % 2 else NO_REPLY) for m in self.held[-1 - a % 4 :]]
        done = self.consumer.exchange(group, max_messages=c % 2, visibility_timeout=LEASES[b % 3])
        return [seen(message) for message in done.lost], self.take(done.messages)

    def exchange_again(self, a: int, b: int, c: int) -> Any:
        done = self.consumer.exchange(visibility_timeout=LEASES[b % 3], claim_id=f"c{self.claims - a % 3}")
        return self.take(done.messages)

    def extend_many(self, a: int, b: int, c: int) -> Any:
        """All to one moment would end together: see above."""
        return [seen(message) for message in self.consumer.extend(self.held[-1 - a % 4 :][:1], 3 + b % 9)]

    def withdraw(self, a: int, b: int, c: int) -> Any:
        key = "abc"[a % 3]
        done = self.work.withdraw(key, self.bodies // 4 + b % 3)
        if done is Withdrawal.WITHDRAWN:
            self.gone(key)
        return done

    def act(self, a: int, do: Callable[[Message[Any, Any]], Any]) -> Any:
        """Does it with a delivery, which may be over."""
        return answer(lambda: do(self.held[-1 - a % min(4, len(self.held))])) if self.held else None

    def acknowledge(self, a: int, b: int, c: int) -> Any:
        return self.act(a, lambda message: message.acknowledge())

    def acknowledge_many(self, a: int, b: int, c: int) -> Any:
        ended = self.held[-1 - a % 3 :]
        return [seen(message) for message in self.work.acknowledge_many(ended)]

    def settle(self, a: int, b: int, c: int) -> Any:
        return self.act(a, lambda message: message.settle(b))

    def reply(self, a: int, b: int, c: int) -> Any:
        return self.act(a, lambda message: message.reply(b))

    def nack(self, a: int, b: int, c: int) -> Any:
        return self.act(a, lambda message: message.nack(DELAYS[b % 3]))

    def release(self, a: int, b: int, c: int) -> Any:
        def do(message: Message[Any, Any]) -> None:
            message.release()
            self.released = message

        return self.act(a, do) if self.released is None else None

    def extend(self, a: int, b: int, c: int) -> Any:
        def do(message: Message[Any, Any]) -> float:
            message.extend_visibility((0, 3, 12)[b % 3], CHECKPOINTS[c % 4])
            return round(message.lease_until, 4)

        return self.act(a, do)

    def reject(self, a: int, b: int, c: int) -> Any:
        return self.act(a, lambda message: message.dead_letter("no"))

    def adopt(self, a: int, b: int, c: int) -> Any:
        return self.act(a, lambda message: self.held.append(self.any.adopt(message.ticket)))

    def write(self, a: int, b: int, c: int) -> Any:
        """A holder writes under its fence."""
        return self.act(a, lambda message: self.store.put(f"{self.name}/{message.key}", b"", fence=message.fence))

    def revoke(self, a: int, b: int, c: int) -> Any:
        key = "abc"[a % 3]
        if b % 6:
            return None
        self.gone(key)
        return self.work.revoke(key)

    def gone(self, key: str | None) -> None:
        """The message of this key was withdrawn, or replaced."""
        if self.released is not None and key is not None and self.released.key == key:
            self.released = None

    def dead(self, a: int) -> str:
        letters = self.work.dead_letters.list()
        return letters[a % len(letters)].id if letters else "none"

    def replay(self, a: int, b: int, c: int) -> Any:
        return answer(lambda: self.work.dead_letters.replay(self.dead(a)))

    def delete(self, a: int, b: int, c: int) -> Any:
        letters = self.work.dead_letters
        return letters.purge() if b % 10 == 0 else letters.delete(self.dead(a))

    def purge(self, a: int, b: int, c: int) -> Any:
        if a % 8:
            return None
        self.released = None
        return self.work.purge()

    def state(self) -> Any:
        """Everything that can be seen from outside."""
        letters = [
            (x.body, x.cause, x.reason, x.delivery_count, x.key, x.generation, x.checkpoint, round(x.died_at, 4))
            for x in self.work.dead_letters.list()
        ]
        others = [(box.depth(), box.dead_letters.count()) for box in self.others]
        return self.work.depth(), self.replies.depth(), letters, self.work.dead_letters.count(), others

    def drain(self) -> Any:
        return [seen(message) for message in self.replies.receive(1_000)]


class Pair:
    """A memory and a SQLite engine on one clock."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.engines = (MemoryEngine(self.clock), Engine.open(f"sqlite:///{folder / 'a.db'}", clock=self.clock))
        self.plans = 0
        self.usual = MailboxKeys.most_unpacked

    def play(self, plan: Plan) -> None:
        """Raises `AssertionError` at the first difference."""
        self.plans += 1
        # By the plan alone, so that it is the same when the plan is played again: few ended keys stay records, or all.
        MailboxKeys.most_unpacked = (0, 1, self.usual)[len(plan) % 3]
        one, other = (Side(engine, f"m{self.plans}") for engine in self.engines)
        for kind, a, b, c in plan:
            self.clock.advance(0.001)
            if kind == "pass_time":
                self.clock.advance(SPANS[a % 5])
            else:
                assert getattr(one, kind)(a, b, c) == getattr(other, kind)(a, b, c), kind
            assert one.state() == other.state(), kind
        assert one.drain() == other.drain()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    both = Pair(tmp_path_factory.mktemp("differential"))
    yield both
    MailboxKeys.most_unpacked = both.usual
    for engine in both.engines:
        engine.close()


def quietly(examples: int, *phases: Phase) -> settings:
    return settings(
        max_examples=examples,
        phases=phases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(300)
def test_any_sequence_of_calls_has_the_same_answers_on_sqlite(pair: Pair) -> None:
    quietly(480 if os.environ.get("TENURE_SOAK") else 60, Phase.generate, Phase.shrink)(given(plans)(pair.play))()


def never_suspect(self: MailboxState, record: MessageRecord, now: float) -> None:
    kept = record.suspect
    RULES["run_out"](self, record, now)
    record.suspect = kept


def gives_used_numbers_again(self: MailboxState, record: MessageRecord) -> None:
    was_started = record.stage is STARTED
    RULES["release"](self, record)
    if was_started:
        record.count, record.base = record.count - 1, record.base - 1


def shortens_leases(self: MailboxState, record: MessageRecord, due: float) -> None:
    self._hold(record, due)


def forgets_the_checkpoint(self: MailboxState, record: MessageRecord, now: float) -> None:
    RULES["admit"](self, record, now)
    record.checkpoint = None


def replays_with_the_old_count(self: MailboxState, message: str, now: float) -> bool:
    record = self.dead[message][0] if message in self.dead else None
    base = record.base if record is not None else 0
    done: bool = RULES["replay"](self, message, now)
    if record is not None:
        record.base = base
    return done


def withdraws_leased_ones(self: MailboxState, name: str, generation: int, now: float) -> Withdrawal:
    done: Withdrawal = RULES["withdraw"](self, name, generation, now)
    if done is Withdrawal.LEASED:
        self._withdraw(self.records[self.keys.records[name].live or ""], "it was withdrawn")
        self.keys.records[name].live = None
    return done


MUTANTS: dict[str, Callable[..., Any]] = {
    "withdraw": withdraws_leased_ones,
    "run_out": never_suspect,
    "release": gives_used_numbers_again,
    "_hold_longer": shortens_leases,
    "admit": forgets_the_checkpoint,
    "replay": replays_with_the_old_count,
}
RULES: dict[str, Callable[..., Any]] = {name: getattr(MailboxState, name) for name in MUTANTS}


def packs_what_has_a_checkpoint(self: MailboxKeys, now: float) -> None:
    if self.ended and (key := self.records.get(self.ended[0][1])) is not None and key.live is None:
        key.checkpoint = None
    PACK(self, now)


PACK: Callable[..., Any] = MailboxKeys.pack_oldest


@pytest.mark.timeout(300)
def test_packing_that_loses_a_checkpoint_is_found(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MailboxKeys, "pack_oldest", packs_what_has_a_checkpoint)
    assert differs_somewhere(pair)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rule", MUTANTS)
def test_a_machine_with_one_rule_changed_is_found(rule: str, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MailboxState, rule, MUTANTS[rule])
    assert differs_somewhere(pair), f"{MUTANTS[rule].__name__} made no difference"


def differs_somewhere(pair: Pair) -> bool:
    def differs(plan: Plan) -> bool:
        try:
            pair.play(plan)
        except AssertionError:
            return True
        return False

    try:
        find(plans, differs, settings=quietly(400, Phase.generate))
    except NoSuchExample:
        return False
    return True

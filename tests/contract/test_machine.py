"""Any sequence of calls: the engine does what the model in `model.py` does."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from tests.contract.case import EngineCase
from tests.contract.model import LIMIT, Mail, Model
from tests.soak import sized

from tenure.engines.contracts import Message, Settlement
from tenure.errors import KeyRefusedError, ReceiptHandleExpiredError

KEYS = st.sampled_from([None, None, "a", "b"])
DELAYS = st.sampled_from([0, 0, 4])
SPANS = st.sampled_from([1, 4, 10])
EXAMPLES = {"memory": 80, "fake": 10}  # the fake is the memory engine underneath; others are slower
Delivery = tuple[Message[Any, Any], Mail, int]


class Machine(RuleBasedStateMachine):
    held = Bundle("held")

    def __init__(self, case: EngineCase, name: str) -> None:
        super().__init__()
        self.case = case
        self.mailbox = case.engine.mailbox(name, int, int, max_delivery_count=LIMIT)
        self.replies = case.engine.mailbox(f"{name}/replies")
        self.consumer = case.engine.consumer(int, int, max_delivery_count=LIMIT)
        self.consumer.cover([[f"{name}/empty", name], [f"{name}/more"]])
        self.model = Model()
        self.bodies = itertools.count()
        self.fences: dict[str, tuple[int, int]] = {}
        self.settled: set[tuple[str, int]] = set()

    @rule(key=KEYS, generation=st.integers(0, 3), delay=DELAYS)
    def send(self, key: str | None, generation: int, delay: float) -> None:
        body = next(self.bodies)
        generation = generation if key else 0
        if self.model.accepts(key, generation):
            id = self.mailbox.send(body, key=key, generation=generation, delay=delay, reply_to=self.replies)
            self.model.send(id, body, key, generation, delay)
        else:
            with pytest.raises(KeyRefusedError):
                self.mailbox.send(body, key=key, generation=generation, delay=delay)

    @rule(
        target=held,
        most=st.sampled_from([1, 2, 10]),
        lease=st.sampled_from([0, 4, 10, 10]),
        provisional=st.booleans(),
        consumer=st.booleans(),
    )
    def receive(self, most: int, lease: float, provisional: bool, consumer: bool) -> Any:
        ready = self.model.of("ready")
        used_up = [mail for mail in ready if mail.used_up]
        most = 1_000 if used_up else most  # so that it surely meets them
        if consumer:
            options = {"visibility_timeout": lease, "provisional": provisional}
            messages = self.consumer.exchange(max_messages=most, **options).messages
        else:
            messages = self.mailbox.receive(most, lease, provisional=provisional)
        ready = [mail for mail in ready if not mail.used_up]
        suspects = [mail for mail in ready if mail.suspect]
        buried = {letter.id for letter in self.mailbox.dead_letters.list()}
        for mail in used_up:  # a suspect one before it may have ended the batch
            assert mail.id in buried or suspects
            if mail.id in buried:
                self.model.end(mail, "dead")
                self.model.replies.append(mail.id)
        by_id = {mail.id: mail for mail in ready}
        got = [by_id[message.id] for message in messages]
        if any(mail.suspect for mail in got):
            assert len(got) == 1
        elif suspects:
            assert 1 <= len(got) <= min(most, len(ready) - len(suspects))
        else:
            assert len(got) == min(most, len(ready))
        fresh = [mail for mail in got if mail.fresh]
        assert fresh == [mail for mail in ready if mail.fresh][: len(fresh)]  # first in, first out
        deliveries = [
            (message, mail, self.claim(message, mail, lease, provisional))
            for message, mail in zip(messages, got, strict=True)
        ]
        return multiple(*deliveries)

    def claim(self, message: Message[Any, Any], mail: Mail, lease: float, provisional: bool) -> int:
        expected = (mail.body, mail.key, mail.generation, mail.checkpoint, mail.count + 1)
        seen = (message.body, message.key, message.generation, message.checkpoint, message.delivery_count)
        assert seen == expected
        assert (message.forgiven, message.suspect) == (mail.base, mail.suspect)
        return self.model.claim(mail, lease, provisional)

    def act(self, delivery: Delivery, call: Any) -> bool:
        """Do it if it is ours, see it refused if it is not."""
        _, mail, number = delivery
        if self.model.ours(mail, number):
            call()
            return True
        with pytest.raises(ReceiptHandleExpiredError):
            call()
        return False

    @rule(delivery=held)
    def acknowledge(self, delivery: Delivery) -> None:
        if self.act(delivery, delivery[0].acknowledge):
            self.model.end(delivery[1])

    @rule(delivery=consumes(held))
    def settle(self, delivery: Delivery) -> None:
        if self.act(delivery, lambda: delivery[0].settle(1)):
            self.model.end(delivery[1])
            self.model.replies.append(delivery[1].id)

    @rule(first=held, second=held)
    def settle_both(self, first: Delivery, second: Delivery) -> None:
        """In one group, in which each stands for itself. What this consumer settled before is done."""
        both = {id(each[1]): each for each in (first, second) if (each[1].id, each[2]) not in self.settled}
        ours = [each for each in both.values() if self.model.ours(each[1], each[2])]
        group = [Settlement(message, 1) for message, _, _ in both.values()]
        lost = self.consumer.exchange(group, max_messages=0).lost
        assert {message.id for message in lost} == {each[1].id for each in both.values() if each not in ours}
        for _, mail, number in ours:
            self.model.end(mail)
            self.model.replies.append(mail.id)
            self.settled.add((mail.id, number))

    @rule(key=st.sampled_from(["a", "b"]), generation=st.integers(0, 3))
    def withdraw(self, key: str, generation: int) -> None:
        assert self.mailbox.withdraw(key, generation) == self.model.withdraw(key, generation)

    @rule(delivery=held, delay=DELAYS)
    def nack(self, delivery: Delivery, delay: float) -> None:
        if self.act(delivery, lambda: delivery[0].nack(delay)):
            self.model.nack(delivery[1], delay)
            if delivery[1].state == "dead":
                self.model.replies.append(delivery[1].id)

    @rule(delivery=held)
    def release(self, delivery: Delivery) -> None:
        if self.act(delivery, delivery[0].release):
            self.model.release(delivery[1])

    @rule(delivery=held, seconds=st.sampled_from([0, 3, 12]), checkpoint=st.sampled_from([None, b"", b"one", b"two"]))
    def extend(self, delivery: Delivery, seconds: float, checkpoint: bytes | None) -> None:
        message, mail, _ = delivery
        if self.act(delivery, lambda: message.extend_visibility(seconds, checkpoint)):
            self.model.extend(mail, seconds, checkpoint)
            fence = (mail.generation, mail.count)
            # Once started, a delivery's fence is never seen again; nor is that of a claim that ran out.
            assert self.fences.setdefault(f"{mail.id} {fence}", (mail.delivery, 0)) == (mail.delivery, 0)

    @rule(delivery=held)
    def reject(self, delivery: Delivery) -> None:
        if self.act(delivery, lambda: delivery[0].dead_letter("no")):
            self.model.end(delivery[1], "dead")
            self.model.replies.append(delivery[1].id)

    @rule(seconds=SPANS)
    def pass_time(self, seconds: float) -> None:
        self.case.pass_time(seconds)
        self.model.pass_time(seconds)

    @rule(key=st.sampled_from(["a", "b"]))
    def revoke(self, key: str) -> None:
        assert self.mailbox.revoke(key) == self.model.revoke(key)

    @rule(choice=st.integers(0, 5))
    def replay(self, choice: int) -> None:
        dead = self.model.of("dead")
        if not dead:
            assert not self.mailbox.dead_letters.replay("none")
            return
        mail = dead[choice % len(dead)]
        if self.model.may_replay(mail):
            assert self.mailbox.dead_letters.replay(mail.id)
            self.model.replay(mail)
        else:
            with pytest.raises(KeyRefusedError):
                self.mailbox.dead_letters.replay(mail.id)

    @rule(rarely=st.integers(0, 9))
    def purge(self, rarely: int) -> None:
        if rarely == 0:
            assert self.mailbox.purge() == self.model.purge()

    @invariant()
    def the_mailbox_holds_what_the_model_holds(self) -> None:
        model = self.model
        assert self.mailbox.depth() == (len(model.of("ready")), len(model.of("delayed")), len(model.of("leased")))
        assert {letter.id for letter in self.mailbox.dead_letters.list()} == {mail.id for mail in model.of("dead")}
        assert self.replies.depth().ready == len(model.replies)


@pytest.mark.exact
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_any_sequence_of_calls_does_what_the_model_does(case: EngineCase) -> None:
    examples = EXAMPLES.get(case.name, 12) * sized("times as many sequences of calls to each engine", short=1, long=8)
    numbers = itertools.count()
    run_state_machine_as_test(
        lambda: Machine(case, f"m{next(numbers)}"),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.contract.acts import ACTS, assert_every_act_is_refused

from tenure.clock import ManualClock
from tenure.engines import InMemoryMailbox
from tenure.errors import ConfigurationError, MailboxConnectionError, ReceiptHandleExpiredError
from tenure.testing import FakeEngine, FakeMailbox, FakeMessage, create_test_message


def test_a_message_counts_how_often_it_was_extended() -> None:
    message = create_test_message()
    assert message.extend_visibility_calls == 0
    for _ in range(3):
        message.extend_visibility(60)
    assert message.extend_visibility_calls == 3


def test_refused_extensions_are_counted_too() -> None:
    clock = ManualClock()
    message = create_test_message(visibility_timeout=1, clock=clock)
    clock.advance(1)
    with pytest.raises(ReceiptHandleExpiredError):
        message.extend_visibility(60)
    assert message.extend_visibility_calls == 1


def test_the_mailbox_counts_over_all_its_messages(tenure_mailbox: FakeMailbox[Any, Any]) -> None:
    tenure_mailbox.send("x")
    tenure_mailbox.send("y")
    for message in tenure_mailbox.receive(2):
        message.extend_visibility(60)
        message.extend_visibility(60)
        message.acknowledge()
    assert tenure_mailbox.extend_visibility_call_count == 4
    assert tenure_mailbox.calls == {"send": 2, "receive": 1, "extend_visibility": 4, "acknowledge": 2}


def test_a_receipt_can_be_made_to_expire(tenure_mailbox: FakeMailbox[Any, Any]) -> None:
    tenure_mailbox.send("x", reply_to="replies")
    (first,) = tenure_mailbox.receive(1, 300)
    tenure_mailbox.expire(first)
    assert_every_act_is_refused(first)
    (second,) = tenure_mailbox.receive(1, 300)
    assert second.delivery_count == 2
    with pytest.raises(ReceiptHandleExpiredError):
        tenure_mailbox.expire(first)
    second.acknowledge()


def test_an_expired_receipt_wakes_a_waiting_consumer() -> None:
    mailbox = FakeMailbox[Any, Any]()
    message = create_test_message("x", mailbox=mailbox)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(mailbox.receive(1, 60, 30)))
    thread.start()
    while not mailbox.box.waiters:
        time.sleep(0.001)
    mailbox.expire(message)
    thread.join(60)
    assert [each.body for each in got] == ["x"]


@pytest.mark.parametrize("act", list(ACTS))
def test_without_a_connection_every_call_on_a_message_fails_and_changes_nothing(
    tenure_mailbox: FakeMailbox[Any, Any], act: str
) -> None:
    tenure_mailbox.send("x", reply_to="replies")
    (message,) = tenure_mailbox.receive(1, 300)
    tenure_mailbox.lose_connection()
    with pytest.raises(MailboxConnectionError):
        ACTS[act](message)
    tenure_mailbox.restore_connection()
    assert tenure_mailbox.depth() == (0, 0, 1)
    ACTS[act](message)


def test_a_lost_connection_is_never_an_empty_queue(tenure_mailbox: FakeMailbox[Any, Any]) -> None:
    tenure_mailbox.lose_connection()
    for call in (
        lambda: tenure_mailbox.send("x"),
        lambda: tenure_mailbox.send_many([]),
        tenure_mailbox.receive,
        tenure_mailbox.depth,
        tenure_mailbox.purge,
        lambda: tenure_mailbox.revoke("k"),
        lambda: tenure_mailbox.dead_letters,
    ):
        with pytest.raises(MailboxConnectionError):
            call()
    tenure_mailbox.restore_connection()
    assert tenure_mailbox.receive() == []


def test_a_connection_lost_while_waiting_ends_the_wait_with_an_error(
    tenure_mailbox: FakeMailbox[Any, Any], tenure_clock: ManualClock
) -> None:
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            tenure_mailbox.receive(1, 60, 30)
        except MailboxConnectionError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    tenure_clock.until_waiting(1)
    tenure_mailbox.lose_connection()
    thread.join(60)
    assert len(errors) == 1


def test_a_connection_is_lost_for_one_handle_only(tenure_engine: FakeEngine) -> None:
    mine, other = tenure_engine.mailbox("work"), tenure_engine.mailbox("work")
    mine.send("x")
    mine.lose_connection()
    assert [message.body for message in other.receive()] == ["x"]


def test_what_no_sender_could_send_can_be_injected(tenure_engine: FakeEngine) -> None:
    mailbox = tenure_engine.mailbox("work", int, max_delivery_count=3)
    poison = mailbox.inject(b"\xff{", reply_to="replies")
    mailbox.inject("not a number")
    mailbox.inject(7, delivery_count=2, checkpoint=b"half", enqueued_at=5.0)
    (message,) = mailbox.receive()
    assert (message.body, message.delivery_count, message.checkpoint, message.enqueued_at) == (7, 3, b"half", 5.0)
    assert [letter.cause for letter in mailbox.dead_letters.list()] == ["undecodable", "undecodable"]
    (news,) = tenure_engine.mailbox("replies").receive()
    assert news.failure is not None
    assert news.failure.message_id == poison
    message.nack()
    assert mailbox.dead_letters.count() == 3
    with pytest.raises(ConfigurationError):
        mailbox.inject(1, delivery_count=-1)


def test_a_fake_stands_in_wherever_an_in_memory_mailbox_is_wanted(tenure_mailbox: FakeMailbox[Any, Any]) -> None:
    assert isinstance(tenure_mailbox, InMemoryMailbox)
    assert isinstance(create_test_message(), FakeMessage)


def test_the_plugin_costs_every_pytest_run_next_to_nothing() -> None:
    import subprocess
    import sys

    code = (
        "import sys, tenure.testing.pytest_plugin; "
        "print([m for m in sys.modules if m in ('msgspec', 'asyncio') or m.startswith('tenure.engines')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tenure.engines" not in shown.stdout
    assert "msgspec" not in shown.stdout

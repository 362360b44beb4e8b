"""Connections that break at the worst moment, in front of a real server: what happened, happened once and is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.engines.servers.conftest import Kind

from tenure.engines import Engine, Outgoing
from tenure.engines.contracts import Fence
from tenure.errors import (
    EngineUnavailableError,
    KeyRefusedError,
    MailboxConnectionError,
    ReceiptHandleExpiredError,
    SequenceConflictError,
)
from tools.servers import FaultProxy

pytestmark = pytest.mark.slow
Opened = Callable[..., Engine]


def test_a_send_whose_answer_was_lost_has_happened_once(through: Engine, proxy: FaultProxy, opened: Opened) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("first")
    proxy.cut_answer(b"marker")
    with pytest.raises(MailboxConnectionError):
        mailbox.send("marker")
    assert proxy.fired == 1
    assert [message.body for message in opened().mailbox("work").receive(10)] == ["first", "marker"]


def test_a_keyed_send_whose_answer_was_lost_is_refused_when_it_is_repeated(through: Engine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    proxy.cut_answer(b"marker")
    with pytest.raises(MailboxConnectionError):
        mailbox.send("marker", key="job/1", generation=1)
    with pytest.raises(KeyRefusedError):
        mailbox.send("marker", key="job/1", generation=1)
    assert mailbox.depth() == (1, 0, 0)


@pytest.mark.parametrize("cut", ["cut_request", "cut_mid_request"])
def test_a_send_that_never_arrived_whole_has_not_happened(through: Engine, proxy: FaultProxy, cut: str) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("first")
    getattr(proxy, cut)(b"marker")
    with pytest.raises(MailboxConnectionError):
        mailbox.send("marker")
    assert proxy.fired == 1
    assert mailbox.depth() == (1, 0, 0)


def test_a_batch_is_queued_whole_or_not_at_all(through: Engine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    proxy.cut_mid_request(b"marker")
    with pytest.raises(MailboxConnectionError):
        mailbox.send_many([Outgoing("marker" + "x" * 1_000) for _ in range(50)])
    assert mailbox.depth() == (0, 0, 0)


def test_a_claim_whose_answer_was_lost_is_an_error_and_its_messages_come_with_the_next(
    kind: Kind, through: Engine, proxy: FaultProxy
) -> None:
    mailbox = through.mailbox("work")
    mailbox.send_many([Outgoing(n) for n in range(3)])
    proxy.cut_answer(kind.in_claims)
    with pytest.raises(MailboxConnectionError):
        mailbox.receive(3, 300)
    assert proxy.fired == 1
    again = mailbox.receive(3, 300)
    assert [(message.body, message.delivery_count) for message in again] == [(0, 1), (1, 1), (2, 1)]


def test_an_acknowledgement_whose_answer_was_lost_holds(kind: Kind, through: Engine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("x")
    (message,) = mailbox.receive(1, 60)
    proxy.cut_answer(kind.token(message))
    with pytest.raises(MailboxConnectionError):
        message.acknowledge()
    with pytest.raises(ReceiptHandleExpiredError, match="settled"):
        message.acknowledge()
    assert mailbox.depth() == (0, 0, 0)


def test_an_acknowledgement_that_was_lost_can_be_repeated(kind: Kind, through: Engine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("x")
    (message,) = mailbox.receive(1, 60)
    proxy.cut_request(kind.token(message))
    with pytest.raises(MailboxConnectionError):
        message.acknowledge()
    message.acknowledge()
    assert mailbox.depth() == (0, 0, 0)


@pytest.mark.parametrize(("cut", "replies"), [("cut_answer", 1), ("cut_request", 0)])
def test_reply_and_acknowledgement_happen_both_or_neither(
    kind: Kind, through: Engine, proxy: FaultProxy, cut: str, replies: int
) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("x", reply_to="replies")
    (message,) = mailbox.receive(1, 60)
    getattr(proxy, cut)(kind.token(message))
    with pytest.raises(MailboxConnectionError):
        message.settle("done")
    assert through.mailbox("replies").approximate_count() == replies
    assert mailbox.approximate_count() == 1 - replies


def test_a_dead_letter_and_its_failure_reply_happen_both_or_neither(
    kind: Kind, through: Engine, proxy: FaultProxy
) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("x", reply_to="replies")
    (message,) = mailbox.receive(1, 60)
    proxy.cut_answer(kind.token(message))
    with pytest.raises(MailboxConnectionError):
        message.dead_letter("no use")
    assert mailbox.dead_letters.count() == 1
    (news,) = through.mailbox("replies").receive()
    assert news.failure is not None
    assert news.failure.reason == "no use"


def test_an_extension_whose_answer_was_lost_holds_and_may_be_repeated(
    kind: Kind, through: Engine, proxy: FaultProxy, opened: Opened
) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("x")
    (message,) = mailbox.receive(1, 1.0)
    before = message.lease_until
    proxy.cut_answer(kind.token(message))
    with pytest.raises(MailboxConnectionError):
        message.extend_visibility(60, checkpoint=b"half")
    assert message.lease_until == before  # what we may rely on did not grow by an answer that never came
    message.extend_visibility(60)
    time.sleep(1.0)
    assert opened().mailbox("work").receive() == []


def test_an_append_whose_answer_was_lost_is_found_by_its_id_and_not_repeated(
    through: Engine, proxy: FaultProxy
) -> None:
    journal = through.journal("log")
    journal.append([b"a"], epoch=1, expect=0, append_id="1")
    proxy.cut_answer(b"marker")
    with pytest.raises(EngineUnavailableError):
        journal.append([b"marker"], epoch=1, expect=1, append_id="2")
    assert journal.find("2", after=1) == 2
    with pytest.raises(SequenceConflictError):
        journal.append([b"marker"], epoch=1, expect=1, append_id="2")
    assert [entry.append_id for entry in journal.read()] == ["1", "2"]


def test_an_append_that_never_arrived_is_not_found(through: Engine, proxy: FaultProxy) -> None:
    journal = through.journal("log")
    journal.append([b"a"], epoch=1, expect=0, append_id="1")
    proxy.cut_mid_request(b"marker")
    with pytest.raises(EngineUnavailableError):
        journal.append([b"marker"], epoch=1, expect=1, append_id="2")
    assert journal.find("2", after=1) is None
    assert journal.append([b"marker"], epoch=1, expect=1, append_id="2") == 2


def test_a_campaign_whose_answer_was_lost_is_won_again_in_a_higher_epoch(
    through: Engine, proxy: FaultProxy, opened: Opened
) -> None:
    election = through.election("chief")
    proxy.cut_answer(b"candidate-a")
    with pytest.raises(EngineUnavailableError):
        election.campaign("candidate-a", 30)
    assert opened().election("chief").campaign("b", 30) is None
    term = election.campaign("candidate-a", 30)
    assert term is not None
    assert term.epoch == 2


def test_a_put_whose_answer_was_lost_is_there_and_may_be_repeated(through: Engine, proxy: FaultProxy) -> None:
    store = through.store("results")
    proxy.cut_answer(b"marker")
    with pytest.raises(EngineUnavailableError):
        store.put("k", b"marker", fence=Fence(1, 1))
    assert store.get("k") == b"marker"
    store.put("k", b"marker", fence=Fence(1, 1))


def test_a_lost_connection_is_never_an_empty_queue(through: Engine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("x")
    proxy.refuse()
    for _ in range(3):
        with pytest.raises(MailboxConnectionError):
            mailbox.receive()
        with pytest.raises(MailboxConnectionError):
            mailbox.receive(1, 60, 5.0)
    proxy.heal()
    assert [message.body for message in mailbox.receive()] == ["x"]


def test_a_silent_network_ends_in_an_error_within_the_patience_of_the_url(through: Engine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("x")
    proxy.partition()
    begun = time.monotonic()
    with pytest.raises(MailboxConnectionError, match="did not answer within 1 s"):
        mailbox.receive()
    assert time.monotonic() - begun < 30
    proxy.drop()
    assert [message.body for message in mailbox.receive()] == ["x"]


def test_a_slow_network_is_only_slow(through: Engine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    proxy.delay(0.05)
    mailbox.send("x")
    (message,) = mailbox.receive(1, 60)
    message.acknowledge()


def test_sessions_that_the_server_closed_while_idle_are_replaced_unnoticed(
    kind: Kind, opened: Opened, proxy: FaultProxy, server: Any
) -> None:
    engine = opened("&pool=4", url=kind.url(server, proxy.port))
    mailbox = engine.mailbox("work")
    threads = [threading.Thread(target=mailbox.send, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    proxy.reset()
    time.sleep(0.1)
    assert sorted(message.body for message in mailbox.receive(10)) == list(range(8))


def test_a_long_poll_outlives_a_reset_of_all_connections(through: Engine, proxy: FaultProxy, opened: Opened) -> None:
    mailbox = through.mailbox("work")
    got: list[object] = []
    consumer = threading.Thread(target=lambda: got.extend(mailbox.receive(1, 60, 60.0)))
    consumer.start()
    until_nothing_is_asked(proxy)  # a claim that is under way has an unknown outcome, and raises
    proxy.reset()
    time.sleep(0.3)
    opened().mailbox("work").send("x")
    consumer.join(55)  # the poll itself would find the message when its 60 s are over, too
    assert len(got) == 1


def until_nothing_is_asked(proxy: FaultProxy) -> None:
    """Returns when the other side of the proxy has said something and then nothing for a second: it waits for a wake-up."""
    seen = 0
    while seen == 0 or proxy.chunks != seen:
        seen = proxy.chunks
        time.sleep(1.0)


def test_a_paused_server_is_an_error_and_afterwards_all_goes_on(opened: Opened, server: Any) -> None:
    engine = opened("&timeout=2")
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    server.pause()
    try:
        with pytest.raises(MailboxConnectionError):
            mailbox.depth()
    finally:
        server.resume()
    deadline = time.monotonic() + 60
    while True:
        try:
            assert mailbox.depth() == (1, 0, 0)
            break
        except MailboxConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_threads_that_find_the_server_gone_share_its_attempts_to_connect(
    kind: Kind, opened: Opened, proxy: FaultProxy, server: Any
) -> None:
    engine = opened("&pool=20&timeout=5", url=kind.url(server, proxy.port))
    mailbox = engine.mailbox("work")
    proxy.refuse()
    before, end = proxy.connections, time.monotonic() + 1.5
    errors: list[BaseException] = []

    def ask() -> None:
        while time.monotonic() < end:
            try:
                mailbox.depth()
            except MailboxConnectionError as error:
                errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) >= 16
    assert proxy.connections - before < 25
    proxy.heal()
    assert mailbox.depth() == (0, 0, 0)

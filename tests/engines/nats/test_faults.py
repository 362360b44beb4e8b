"""Servers that die and connections that break, under load: nothing acknowledged is lost, nothing comes twice, epochs only grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.case import Background
from tests.engines.load import Load
from tests.patience import wait_until
from tools.servers.nats import Nats, NatsCluster

from tenure.engines import Outgoing
from tenure.engines.nats import NatsEngine
from tenure.errors import EngineUnavailableError, MailboxConnectionError, ReceiptHandleExpiredError
from tools.servers import FaultProxy

pytestmark = pytest.mark.slow
Opened = Callable[..., NatsEngine]


@pytest.mark.parametrize("cut", ["cut_answer", "cut_after_request", "cut_request", "cut_mid_request"])
def test_a_send_over_a_connection_that_breaks_happens_once_and_is_told_so(
    through: NatsEngine, proxy: FaultProxy, opened: Opened, cut: str
) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("first")
    getattr(proxy, cut)(b"marker")
    mailbox.send("marker")
    assert proxy.fired == 1
    assert [message.body for message in opened().mailbox("work").receive(10)] == ["first", "marker"]


def test_settling_over_a_connection_that_breaks_replies_once(through: NatsEngine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    mailbox.send("x", reply_to="replies")
    (message,) = mailbox.receive()
    proxy.cut_answer(b"marker")
    message.settle("marker")
    assert proxy.fired == 1
    assert mailbox.depth() == (0, 0, 0)
    assert [reply.body for reply in through.mailbox("replies").receive(10)] == ["marker"]
    with pytest.raises(ReceiptHandleExpiredError):
        message.acknowledge()


def test_an_append_over_a_connection_that_breaks_is_written_once(through: NatsEngine, proxy: FaultProxy) -> None:
    journal = through.journal("log")
    assert journal.append([b"one"], epoch=1, expect=0, append_id="1") == 1
    proxy.cut_answer(b"marker")
    assert journal.append([b"marker"], epoch=1, expect=1, append_id="2") == 2
    assert proxy.fired == 1
    assert [entry.append_id for entry in journal.read()] == ["1", "2"]


def test_a_lost_connection_is_never_an_empty_queue(nats_server: Nats, proxy: FaultProxy, opened: Opened) -> None:
    through = opened("&timeout=1", url=nats_server.url_of(port=proxy.port))
    mailbox, journal = through.mailbox("work"), through.journal("log")
    journal.head()
    proxy.refuse()
    calls: list[Callable[[], object]] = [
        mailbox.receive,
        mailbox.depth,
        lambda: mailbox.receive(1, 60, 1),
        lambda: mailbox.send("x"),
    ]
    for call in calls:
        with pytest.raises(MailboxConnectionError):
            call()
    with pytest.raises(EngineUnavailableError):
        journal.append([b"x"], epoch=1, expect=0, append_id="lost")
    proxy.heal()
    opened().mailbox("work").send("y")
    bodies: list[str] = []

    def is_back() -> bool:
        try:
            bodies.extend(message.body for message in mailbox.receive(10, 60, 1))
        except MailboxConnectionError:
            return False
        return "y" in bodies

    wait_until(is_back)


def test_a_network_that_swallows_everything_ends_in_an_error_within_the_patience_of_the_url(
    through: NatsEngine, proxy: FaultProxy
) -> None:
    mailbox = through.mailbox("work")
    proxy.partition()
    begun = time.monotonic()
    with pytest.raises(MailboxConnectionError):
        mailbox.send("x")
    assert 2.5 < time.monotonic() - begun < 60
    proxy.heal()


def test_a_long_poll_outlives_a_reset_connection(through: NatsEngine, proxy: FaultProxy, opened: Opened) -> None:
    mailbox = through.mailbox("work")
    waiting = Background(lambda: [message.body for message in mailbox.receive(1, 60, 30)])
    time.sleep(0.2)
    proxy.reset()
    opened().mailbox("work").send("x")
    assert waiting.result(25) == ["x"]


def test_a_server_killed_and_restarted_under_load_loses_nothing(own_server: Callable[[Any], Any]) -> None:
    server: Nats = own_server(Nats())
    load = Load(f"{server.url}?timeout=4&compact=65536")
    try:
        load.goes_on("before")
        for _ in range(3):
            server.kill()
            time.sleep(0.2)
            server.restart()
            load.goes_on("after a restart")
        load.finish()
    finally:
        load.close()


def test_a_cluster_of_three_loses_a_server_and_then_the_leader_of_the_stream(own_server: Callable[[Any], Any]) -> None:
    cluster: NatsCluster = own_server(NatsCluster())
    load = Load(f"{cluster.url}?replicas=3&timeout=10")
    try:
        load.goes_on("before")
        leader = cluster.leader_of("tenure_log")
        other = next(server for server in cluster.servers if server is not leader)
        other.kill()
        load.goes_on("without a follower")
        other.restart()
        cluster.until_whole()
        load.goes_on("whole again")
        cluster.leader_of("tenure_log").kill()
        load.goes_on("without the old leader")
        load.finish()
    finally:
        load.close()


def test_a_batch_is_queued_whole_or_not_at_all(through: NatsEngine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    proxy.cut_mid_request(b"marker")
    assert len(mailbox.send_many([Outgoing("marker" + "x" * 1_000) for _ in range(50)])) == 50
    assert mailbox.depth() == (50, 0, 0)

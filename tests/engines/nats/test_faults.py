"""Servers that die and connections that break, under load: nothing acknowledged is lost, nothing comes twice, epochs only grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.case import Background, eventually
from tools.servers.nats import Nats, NatsCluster

from tenure.engines import Engine, Outgoing
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

    eventually(is_back)


def test_a_network_that_swallows_everything_ends_in_an_error_within_the_patience_of_the_url(
    through: NatsEngine, proxy: FaultProxy
) -> None:
    mailbox = through.mailbox("work")
    proxy.partition()
    begun = time.monotonic()
    with pytest.raises(MailboxConnectionError):
        mailbox.send("x")
    assert 2.5 < time.monotonic() - begun < 15
    proxy.heal()


def test_a_long_poll_outlives_a_reset_connection(through: NatsEngine, proxy: FaultProxy, opened: Opened) -> None:
    mailbox = through.mailbox("work")
    waiting = Background(lambda: [message.body for message in mailbox.receive(1, 60, 30)])
    time.sleep(0.2)
    proxy.reset()
    opened().mailbox("work").send("x")
    assert waiting.result(25) == ["x"]


class Load:
    """Sends and takes with all its might; remembers what was acknowledged to it."""

    def __init__(self, url: str) -> None:
        self.engines = [Engine.open(url) for _ in range(2)]
        self.sent: set[int] = set()
        self.settled: list[int] = []
        self.unsure: set[int] = set()
        self.epochs: list[int] = []
        self.entries: list[int] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._send, self._take, self._lead)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        mailbox, number = self.engines[0].mailbox("work"), 0
        while not self._stop.is_set():
            number += 1
            try:
                mailbox.send(number, reply_to="done")
            except EngineUnavailableError:
                self.unsure.add(number)
            else:
                self.sent.add(number)

    def _take(self) -> None:
        mailbox = self.engines[1].mailbox("work")
        while not self._stop.is_set():
            try:
                for message in mailbox.receive(10, 30, 0.2):
                    message.settle(message.body)
                    self.settled.append(message.body)
            except (EngineUnavailableError, ReceiptHandleExpiredError):
                continue

    def _lead(self) -> None:
        election, journal, seq = self.engines[0].election("e"), self.engines[0].journal("log"), 0
        while not self._stop.is_set():
            try:
                term = election.campaign("me", 30)
                assert term is not None
                self.epochs.append(term.epoch)
                seq = journal.append([b"x"], epoch=term.epoch, expect=seq, append_id=str(seq))
                self.entries.append(seq)
            except EngineUnavailableError:
                seq = self._resolve(journal, seq)

    def _resolve(self, journal: Any, seq: int) -> int:
        while not self._stop.is_set():
            try:
                found = journal.find(str(seq), after=seq)
                return seq if found is None else int(found)
            except EngineUnavailableError:
                continue
        return seq

    def finish(self) -> None:
        """Stop, take what is left, and check the promises."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        mailbox, replies = self.engines[0].mailbox("work"), self.engines[0].mailbox("done")
        while messages := mailbox.receive(100, 30):
            for message in messages:
                message.settle(message.body)
        assert mailbox.depth().ready == 0
        answers: list[int] = []
        while got := replies.receive(500, 30):
            answers += [reply.body for reply in got]
            replies.acknowledge_many(got)
        held = mailbox.depth().leased  # claims whose taker was told of nothing: they come back when their lease ends
        assert len(answers) == len(set(answers)), "a message was settled twice"
        assert set(self.settled) <= set(answers), "a settled reply was lost"
        missing = self.sent - set(answers)
        assert len(missing) <= held, f"lost: {sorted(missing)[:10]}"
        assert set(answers) <= self.sent | self.unsure
        assert self.epochs == sorted(set(self.epochs))
        entries = self.engines[1].journal("log").read(0, limit=100_000)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert [entry.epoch for entry in entries] == sorted(entry.epoch for entry in entries)
        assert len({entry.append_id for entry in entries}) == len(entries), "an entry was appended twice"
        assert len(entries) >= (max(self.entries) if self.entries else 0)

    def close(self) -> None:
        self._stop.set()
        for engine in self.engines:
            engine.close()

    def goes_on(self, what: str, within: float = 30.0) -> None:
        """Wait until more was settled and appended than now."""
        settled, entries, end = len(self.settled), len(self.entries), time.monotonic() + within
        while len(self.settled) < settled + 20 or len(self.entries) < entries + 5:
            assert time.monotonic() < end, f"{what}: nothing moved for {within} s"
            time.sleep(0.02)


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
        load.goes_on("without a follower", 60)
        other.restart()
        cluster.until_whole()
        load.goes_on("whole again", 60)
        cluster.leader_of("tenure_log").kill()
        load.goes_on("without the old leader", 60)
        load.finish()
    finally:
        load.close()


def test_a_batch_is_queued_whole_or_not_at_all(through: NatsEngine, proxy: FaultProxy) -> None:
    mailbox = through.mailbox("work")
    proxy.cut_mid_request(b"marker")
    assert len(mailbox.send_many([Outgoing("marker" + "x" * 1_000) for _ in range(50)])) == 50
    assert mailbox.depth() == (50, 0, 0)

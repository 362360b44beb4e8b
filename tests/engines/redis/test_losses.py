"""Servers that are killed, restarted and failed over: nothing acknowledged is lost, or the loss is noticed and said."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.patience import wait_until
from tools.servers.redis import DURABLE, VOLATILE

from tenure.engines import Engine
from tenure.engines.contracts import Level
from tenure.engines.redis.connections import script
from tenure.errors import (
    EngineRefusedError,
    EngineUnavailableError,
    EngineWentBackError,
    KeyRefusedError,
    MailboxConnectionError,
    ReceiptHandleExpiredError,
)
from tools.servers import FaultProxy, Redis, Valkey

pytestmark = pytest.mark.slow
Own = Callable[[Any], Any]


def insist(call: Callable[[], Any], within: float = 20.0) -> Any:
    """Again while the server is out of reach."""
    end = time.monotonic() + within
    while True:
        try:
            return call()
        except EngineUnavailableError:
            assert time.monotonic() < end
            time.sleep(0.02)


class Traffic:
    """Senders and consumers in threads that go on through every outage, and what they were told."""

    def __init__(self, engine: Engine) -> None:
        self.mailbox = engine.mailbox("work")
        self.acknowledged: set[str] = set()
        self.settled: dict[str, int] = {}
        self.held: dict[str, float] = {}
        self.twice: list[str] = []
        self.epochs: list[int] = []
        self.errors: list[BaseException] = []
        self.outages = 0
        self.sending = True
        self._engine, self._lock = engine, threading.Lock()
        self._threads = [threading.Thread(target=self._guard, args=(self._send, n)) for n in range(2)]
        self._threads += [threading.Thread(target=self._guard, args=(self._take, n)) for n in range(3)]
        self._threads.append(threading.Thread(target=self._guard, args=(self._lead, 0)))
        for thread in self._threads:
            thread.start()

    def _guard(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            self.errors.append(error)

    def _tried(self, call: Callable[[], Any]) -> Any:
        def counted() -> Any:
            try:
                return call()
            except EngineUnavailableError:
                self.outages += 1
                raise

        return insist(counted)

    def _send(self, sender: int) -> None:
        number = 0
        while self.sending:
            number += 1
            key = f"{sender}/{number}"
            with contextlib.suppress(KeyRefusedError):  # its answer was lost, and it had happened
                self._tried(lambda key=key: self.mailbox.send(key, key=key))
            self.acknowledged.add(key)
            time.sleep(0.002)

    def _take(self, number: int) -> None:
        """Two take one at a time, so that it is handed to them when they wait; the third claims what there is."""
        clock, most = self._engine.clock, (1, 1, 3)[number]
        while self.sending or len(self.settled) < len(self.acknowledged):
            for message in self._tried(lambda: self.mailbox.receive(most, 3.0, 0.2)):
                key = str(message.key)
                with self._lock:
                    if self.held.get(key, 0.0) > clock.boottime():
                        self.twice.append(key)
                    self.held[key] = message.lease_until
                self._settle(message, key)

    def _settle(self, message: Any, key: str) -> None:
        try:
            self._tried(message.acknowledge)
        except ReceiptHandleExpiredError as refused:
            if "settled" not in refused.reason:  # ours, whose answer was lost
                return
        with self._lock:
            self.held.pop(key, None)
            self.settled[key] = self.settled.get(key, 0) + 1

    def _lead(self, _: int) -> None:
        election = self._engine.election("chief")
        while self.sending:
            term = self._tried(lambda: election.campaign("me", 5))
            self.epochs.append(term.epoch)
            time.sleep(0.01)

    def flow(self, messages: int) -> None:
        """Returns when so many more messages were accepted: a fault that comes now comes under load, however busy the machine is."""
        enough = len(self.acknowledged) + messages
        wait_until(lambda: len(self.acknowledged) >= enough or self.errors, f"{messages} more accepted messages")

    def finish(self) -> None:
        self.sending = False
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        assert self.errors == []
        assert set(self.settled) == self.acknowledged
        assert self.twice == []
        assert self.epochs == sorted(set(self.epochs))


@pytest.mark.parametrize("kind", [Valkey, Redis])
def test_a_durable_server_that_is_killed_under_load_loses_nothing(own_server: Own, kind: type[Valkey]) -> None:
    server = own_server(kind(DURABLE))
    with Engine.open(f"{server.url}?timeout=5") as engine:
        traffic = Traffic(engine)
        for _ in range(2):
            traffic.flow(30)
            server.kill()
            before = traffic.outages
            wait_until(lambda before=before: traffic.outages > before, "a call that met the killed server")
            server.restart()
        traffic.flow(30)
        traffic.finish()
        assert engine.mailbox("work").depth() == (0, 0, 0)


def test_a_network_that_drops_delays_and_resets_in_mid_call_loses_and_repeats_nothing(own_server: Own) -> None:
    server, chance = own_server(Valkey(DURABLE)), Random(5)
    with FaultProxy(server.host, server.port) as proxy, behind(proxy, "") as engine:
        traffic = Traffic(engine)
        scripts = [script(name).sha for name in ("send_keyed", "exchange", "exchange", "campaign", "confirm")]
        for _ in range(12):
            traffic.flow(20)
            for fault in (proxy.cut_answer, proxy.cut_request, proxy.cut_mid_request, proxy.cut_after_request):
                fault(chance.choice(scripts))
            proxy.delay(chance.choice((0.0, 0.0, 0.01)))
            if chance.random() < 0.3:
                proxy.reset()
        proxy.heal()
        fired = proxy.fired
        traffic.finish()
        assert fired > 20
        assert traffic.outages > 20
        assert engine.mailbox("work").depth() == (0, 0, 0)


@pytest.mark.parametrize("kind", [Valkey, Redis])
def test_a_restart_without_persistence_is_noticed_by_every_call_and_not_taken_for_an_empty_queue(
    own_server: Own, caplog: pytest.LogCaptureFixture, kind: type[Valkey]
) -> None:
    server = own_server(kind(VOLATILE))
    with Engine.open(server.url) as sender, Engine.open(server.url) as reader:
        assert "nothing is kept on disk" in caplog.text
        sender.mailbox("work").send("x")
        reader.mailbox("work").depth()
        server.kill()
        server.restart()
        for engine in (sender, reader):  # the reader wrote nothing but its own registration
            calls: list[Callable[[], Any]] = [
                lambda e=engine: e.mailbox("work").receive(1, 60, 5),
                lambda e=engine: e.mailbox("work").send("y"),
                lambda e=engine: e.journal("log").head(),
                lambda e=engine: e.election("chief").campaign("me", 5),
                lambda e=engine: e.store("results").get("k"),
                engine.now,
            ]
            with pytest.raises(EngineWentBackError, match="writes that it acknowledged"):
                insist(calls[0])
            for call in calls:
                with pytest.raises(EngineWentBackError) as caught:
                    call()
            assert "lost" in caught.value.remedy
    caplog.clear()
    with Engine.open(server.url) as fresh:  # one that knows nothing of it says what it sees
        assert "holds nothing else" in caplog.text
        assert fresh.mailbox("work").depth() == (0, 0, 0)


def test_a_flushed_database_is_noticed(own_server: Own) -> None:
    server = own_server(Valkey(DURABLE))
    with Engine.open(server.url) as engine:
        engine.mailbox("work").send("x")
        server.command("FLUSHALL")
        with pytest.raises(EngineWentBackError):
            engine.mailbox("work").receive()


def behind(proxy: FaultProxy, options: str) -> Engine:
    return Engine.open(f"redis://127.0.0.1:{proxy.port}/0?timeout=2{options}")


def until_replicated(primary: Valkey, replica: Valkey) -> None:
    def offset(server: Valkey, field: str) -> str:
        return server.command("INFO", "replication").partition(f"{field}:")[2].split()[0]

    end = time.monotonic() + 10
    while offset(primary, "master_repl_offset") != offset(replica, "slave_repl_offset"):
        assert time.monotonic() < end
        time.sleep(0.01)


def fail_over(proxy: FaultProxy, primary: Valkey, replica: Valkey) -> None:
    """As whoever watches them does: the primary is gone, the replica takes over, and the address follows."""
    primary.kill()
    replica.command("REPLICAOF", "NO", "ONE")
    proxy.target = (replica.host, replica.port)
    proxy.reset()


def test_with_wait_nothing_acknowledged_is_lost_in_a_failover_to_a_caught_up_replica(own_server: Own) -> None:
    primary = own_server(Valkey(DURABLE))
    replica = own_server(Valkey(DURABLE, replica_of=primary))
    with FaultProxy(primary.host, primary.port) as proxy, behind(proxy, "&wait=1") as engine:
        traffic = Traffic(engine)
        time.sleep(1.0)
        fail_over(proxy, primary, replica)
        successor = own_server(Valkey(DURABLE, replica_of=replica))  # without it no write is acknowledged any more
        time.sleep(1.0)
        traffic.finish()
        assert traffic.outages > 0
        assert engine.mailbox("work").depth() == (0, 0, 0)
        successor.kill()


def test_with_wait_a_write_that_no_replica_has_is_refused_loudly(own_server: Own) -> None:
    primary = own_server(Valkey(DURABLE))
    with pytest.raises(EngineRefusedError, match="0 replica"):
        Engine.open(f"{primary.url}?wait=1")
    replica = own_server(Valkey(DURABLE, replica_of=primary))
    with Engine.open(f"{primary.url}?wait=1&timeout=0.6") as engine:
        mailbox, journal = engine.mailbox("work"), engine.journal("log")
        mailbox.send("x")
        replica.pause()
        try:
            with pytest.raises(MailboxConnectionError, match="0 of 1 replicas"):
                mailbox.send("y")
            with pytest.raises(EngineUnavailableError, match="0 of 1 replicas"):
                journal.append([b"e"], epoch=1, expect=0, append_id="1")
            assert mailbox.depth() == (2, 0, 0)  # looking needs no replica
        finally:
            replica.resume()
        assert journal.find("1", after=0) == 1
        insist(lambda: mailbox.send("z"))


def test_a_failover_to_a_replica_that_missed_writes_is_noticed_and_refused(own_server: Own) -> None:
    """Interleaving 20. Without wait, Redis had acknowledged what the replica never got."""
    primary = own_server(Valkey(DURABLE))
    with FaultProxy(primary.host, primary.port) as cable, FaultProxy(primary.host, primary.port) as proxy:
        replica = own_server(Valkey(DURABLE, replica_of=cable))
        with behind(proxy, "") as engine:
            mailbox = engine.mailbox("work")
            mailbox.send("both have it")
            until_replicated(primary, replica)
            cable.partition()
            mailbox.send("only the primary has it")
            cable.refuse()
            fail_over(proxy, primary, replica)
            with pytest.raises(EngineWentBackError, match="acknowledged"):
                insist(mailbox.depth)
            with pytest.raises(EngineWentBackError):
                mailbox.receive()
        cable.heal()


def test_a_primary_that_became_a_replica_is_an_outage_and_not_the_end(own_server: Own) -> None:
    server, other = own_server(Valkey(DURABLE)), own_server(Valkey(DURABLE))
    with Engine.open(f"{server.url}?timeout=2") as engine:
        mailbox = engine.mailbox("work")
        mailbox.send("x")
        server.command("CONFIG", "SET", "replica-serve-stale-data", "yes")
        server.command("REPLICAOF", other.host, "1")  # nobody is there: it keeps its data
        with pytest.raises(MailboxConnectionError, match="read only"):
            mailbox.send("y")
        server.command("REPLICAOF", "NO", "ONE")
        insist(lambda: mailbox.send("z"))
        assert Level.ERROR not in {finding.level for finding in engine.check()}

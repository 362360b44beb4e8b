"""A PostgreSQL that is killed and started again under load, and connections cut at random beside it.

What must hold, judged from what the clients were told: nothing acknowledged is lost, no message is delivered a second time while an
earlier delivery's lease holds, settled work never comes back, epochs never go back, and the journal has each
acknowledged append exactly once.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import pytest
from tests.soak import sized

from tenure.clock import SystemClock
from tenure.engines import Engine
from tenure.errors import (
    EngineBusyError,
    EngineUnavailableError,
    ReceiptHandleExpiredError,
    SequenceConflictError,
    StaleEpochError,
    TermLostError,
)
from tools.servers import FaultProxy, Postgres

pytestmark = pytest.mark.slow
SECONDS = sized("seconds of PostgreSQL crashing", short=8.0, long=60.0)
LEASE_S = 1.5
DRAIN_S = 60.0
TTL_S = 1.0
OUT_OF_REACH = (EngineUnavailableError, EngineBusyError)
BOOT = SystemClock()


class Delivery(NamedTuple):
    asked_at: float
    got_at: float
    lease_until: float
    count: int


@dataclass
class History:
    """What the clients were told."""

    sent: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    deliveries: dict[str, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    settled: dict[str, float] = field(default_factory=dict)
    epochs: list[tuple[float, int]] = field(default_factory=list)
    appended: dict[str, int] = field(default_factory=dict)
    errors: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_telling(self) -> bool:
        return len(self.sent) > 50 and self.errors > 0 and len(self.epochs) > 1


def produce(engine: Engine, history: History, name: str, stop: threading.Event) -> None:
    mailbox, number = engine.mailbox("work"), 0
    while not stop.is_set():
        number += 1
        body = f"{name}-{number}"
        try:
            mailbox.send(body)
            history.sent.add(body)
        except OUT_OF_REACH:
            history.unsure.add(body)
            history.errors += 1
        time.sleep(0.002)


def consume(engine: Engine, history: History, name: str, stop: threading.Event) -> None:
    mailbox, chance = engine.mailbox("work"), Random(name)
    while not stop.is_set():
        try:
            messages = mailbox.receive(chance.choice((1, 4)), LEASE_S, 0.5)
        except OUT_OF_REACH:
            history.errors += 1
            continue
        at = BOOT.boottime()
        with history.lock:
            for message in messages:
                history.deliveries[message.body].append(
                    Delivery(message.lease_until - LEASE_S, at, message.lease_until, message.delivery_count)
                )
        for message in messages:
            if chance.random() < 0.05:
                continue  # as if the worker had died: it must come back after its lease
            try:
                message.acknowledge()
                history.settled[message.body] = BOOT.boottime()
            except OUT_OF_REACH:
                history.errors += 1
            except ReceiptHandleExpiredError:
                pass


def lead(engine: Engine, history: History, name: str, stop: threading.Event) -> None:
    election, journal, number = engine.election("chief"), engine.journal("log"), 0
    while not stop.is_set():
        try:
            head = journal.head()
            term = election.campaign(name, TTL_S, above=head.epoch)
            if term is None:
                time.sleep(0.05)
                continue
            with history.lock:
                history.epochs.append((BOOT.boottime(), term.epoch))
            seq = journal.head().seq
            while not stop.is_set() and BOOT.boottime() < term.safe_until:
                number += 1
                seq = append(journal, history, f"{name}-{number}", term.epoch, seq)
                term = election.renew(term)
                time.sleep(0.005)
        except OUT_OF_REACH:
            history.errors += 1
        except (SequenceConflictError, StaleEpochError, TermLostError):
            continue


def append(journal: Any, history: History, append_id: str, epoch: int, seq: int) -> int:
    try:
        after = journal.append([append_id.encode()], epoch=epoch, expect=seq, append_id=append_id)
    except OUT_OF_REACH:
        found = journal.find(append_id, after=seq)  # never again with a fresh `expect`
        if found is None:
            raise
        after = found
    history.appended[append_id] = after
    return int(after)


def run(engines: list[Engine], break_things: Callable[[Random], None]) -> History:
    history, stop = History(), threading.Event()
    roles = [
        (produce, "p1"),
        (produce, "p2"),
        (consume, "c1"),
        (consume, "c2"),
        (consume, "c3"),
        (lead, "l1"),
        (lead, "l2"),
    ]
    failed: list[BaseException] = []

    def guarded(role: Any, *arguments: Any) -> None:
        try:
            role(*arguments)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [
        threading.Thread(target=guarded, args=(role, engines[at % len(engines)], history, name, stop))
        for at, (role, name) in enumerate(roles)
    ]
    for thread in threads:
        thread.start()
    end, chance, faults = time.monotonic() + SECONDS, Random(5), 0
    most = time.monotonic() + 100 + SECONDS
    # A slow machine is given the time to do, and to meet, what is judged.
    while not failed and (time.monotonic() < end or faults < 4 or not history.is_telling()) and time.monotonic() < most:
        time.sleep(0.3 + chance.random())
        break_things(chance)
        faults += 1
    stop.set()
    for thread in threads:
        thread.join(180)
        assert not thread.is_alive()
    assert failed == []
    return history


def drain(engine: Engine, history: History) -> None:
    """Take everything that is left, as one more consumer."""
    mailbox, quiet_since = engine.mailbox("work"), time.monotonic()
    while time.monotonic() - quiet_since < LEASE_S + 1:
        for message in mailbox.receive(100, DRAIN_S, 0.2):
            quiet_since = time.monotonic()
            asked_at = message.lease_until - DRAIN_S
            delivery = Delivery(asked_at, BOOT.boottime(), message.lease_until, message.delivery_count)
            history.deliveries[message.body].append(delivery)
            message.acknowledge()
            history.settled[message.body] = BOOT.boottime()
    assert mailbox.depth() == (0, 0, 0)


def judge(engine: Engine, history: History) -> None:
    assert len(history.sent) > 50, "there was no load"
    assert history.errors > 0, "no fault was met"
    lost = [body for body in history.sent if body not in history.deliveries]
    assert lost == [], "acknowledged, and never delivered"
    assert set(history.deliveries) <= history.sent | history.unsure, "delivered, and never sent"
    for body, deliveries in history.deliveries.items():
        deliveries.sort(key=lambda delivery: delivery.count)  # an answer may come late, when another has it already
        for first, second in itertools.pairwise(deliveries):
            assert second.got_at >= first.lease_until, f"{body} was delivered twice while its lease held: {deliveries}"
            assert second.count > first.count, f"the fence of {body} did not grow: {deliveries}"
        if body in history.settled:
            assert deliveries[-1].asked_at <= history.settled[body], f"{body} came back after it was settled"
    epochs = [epoch for _, epoch in sorted(history.epochs)]
    assert len(epochs) > 1
    assert epochs == sorted(set(epochs)), "epochs went back"
    entries = []
    while page := engine.journal("log").read(entries[-1].seq if entries else 0):
        entries += page
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.epoch for entry in entries] == sorted(entry.epoch for entry in entries)
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    written = {entry.append_id: entry.seq for entry in entries}
    assert len(written) == len(entries), "an append is there twice"
    assert history.appended.items() <= written.items(), "an acknowledged append is missing"


def test_a_server_killed_and_restarted_under_load_loses_nothing_and_repeats_nothing(
    own_server: Callable[[Any], Any],
) -> None:
    server: Postgres = own_server(Postgres({"fsync": "on"}))
    kills = 0

    def kill(chance: Random) -> None:
        nonlocal kills
        kills += 1
        server.kill()
        time.sleep(chance.random() * 0.3)
        server.restart()

    with Engine.open(server.url) as one, Engine.open(f"{server.url}?notify=off&poll=0.05") as other:
        history = run([one, other], kill)
        drain(one, history)
        judge(one, history)
    assert kills >= 4


def test_connections_cut_at_random_moments_lose_nothing_and_repeat_nothing(own_server: Callable[[Any], Any]) -> None:
    server: Postgres = own_server(Postgres())
    with FaultProxy(server.host, server.port) as proxy:

        def cut(chance: Random) -> None:
            for _ in range(3):
                fault = chance.choice(
                    [proxy.cut_answer, proxy.cut_request, proxy.cut_mid_request, proxy.cut_after_request, proxy.reset]
                )
                fault()
                time.sleep(chance.random() * 0.1)
            if chance.random() < 0.3:
                proxy.partition()
                time.sleep(0.5)
                chance.choice([proxy.heal, proxy.drop])()

        url = server.url_of("postgres", port=proxy.port)
        with Engine.open(f"{url}?timeout=2") as one, Engine.open(f"{url}?timeout=2") as other:
            history = run([one, other], cut)
            proxy.heal()
        with Engine.open(server.url) as direct:
            drain(direct, history)
            judge(direct, history)
        assert proxy.fired > 3

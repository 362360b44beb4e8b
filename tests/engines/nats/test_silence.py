"""A server that falls silent: calls end within their time, nothing piles up, and all goes on by itself once it answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.load import Load
from tests.soak import sized
from tools.servers.nats import Nats

from tenure.clock import SystemClock
from tenure.engines import Outgoing
from tenure.engines.nats.address import read_url
from tenure.engines.nats.connection import NatsConnection
from tenure.engines.nats.engine import open_nats
from tenure.engines.nats.streams import Follower
from tenure.errors import EngineUnavailableError
from tenure.randomness import Random
from tools.servers import FaultProxy

SILENT_S = sized("seconds of a silent NATS server", short=5.0, long=18.0)
TIMEOUT_S = sized("seconds of patience with it", short=1.0, long=5.0)
"""Longer than three pings, after which the client gives the connection up while the server is still silent."""
DELAYED_S = sized("seconds of changing delays before a NATS server", short=2.0, long=30.0)
SLACK_S = 30.0
"""What a busy machine may add to a call that ends at its deadline."""
GROWTH_BYTES = 64 * 2**20
IDLE_S = 4.0
"""For how long an idle engine is looked at."""


@pytest.fixture
def server(own_server: Callable[[Any], Any]) -> Nats:
    """Of this test alone: it is stopped, and others must not be."""
    started: Nats = own_server(Nats())
    return started


@pytest.fixture
def silence(server: Nats) -> Iterator[FaultProxy]:
    with FaultProxy(server.host, server.port) as started:
        yield started


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["frozen", "swallowed", "half-open"])
def test_all_goes_on_by_itself_after_a_silence(
    server: Nats, silence: FaultProxy, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load(f"{server.url_of(port=silence.port)}?timeout={TIMEOUT_S}")
    try:
        load.goes_on("before")
        before, load.slowest_s = resident(), 0.0
        if kind == "frozen":
            server.pause()
        elif kind == "swallowed":
            silence.partition()
        else:
            silence.abandon()
        time.sleep(SILENT_S)
        if kind == "frozen":
            server.resume()
        else:
            silence.heal()
        load.goes_on(f"after it was {kind}")
        assert load.slowest_s < TIMEOUT_S + SLACK_S
        assert resident() - before < GROWTH_BYTES
        load.finish()
        # Each follower says once that it lost its stream, and once that it is back, unless the connection noticed it first and said so.
        lost = sum(text.startswith("following tenure_log:") for text in caplog.messages)
        assert lost <= len(load.engines)
        assert lost or any("the connection was lost" in text for text in caplog.messages)
        assert sum(text.startswith("following tenure_log again after") for text in caplog.messages) == lost
    finally:
        server.resume()
        load.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_delays_that_change_all_the_time_cost_time_and_nothing_else(server: Nats, silence: FaultProxy) -> None:
    """Each piece of what either side says is held for up to a third of the patience, and no two for the same time."""
    load, chance = Load(f"{server.url_of(port=silence.port)}?timeout={TIMEOUT_S}"), Random(20)
    try:
        load.goes_on("before")
        before, load.slowest_s = resident(), 0.0
        end = time.monotonic() + DELAYED_S
        while time.monotonic() < end:
            silence.delay(chance.random() * TIMEOUT_S / 3)
            time.sleep(0.05)
        load.goes_on("with delays")
        silence.heal()
        load.goes_on("after them")
        assert load.slowest_s < TIMEOUT_S + SLACK_S
        assert resident() - before < GROWTH_BYTES
        load.finish()
    finally:
        load.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_large_messages_for_a_silent_server_pile_up_nowhere(server: Nats) -> None:
    """More than its socket and our buffers hold: then closing the old connection does not end by itself either."""
    load = Load(f"{server.url}?timeout={TIMEOUT_S}")
    body, stop, slowest = "x" * 400_000, threading.Event(), [0.0]

    def send() -> None:
        mailbox = load.engines[0].mailbox("large")
        while not stop.is_set():
            begun = time.monotonic()
            with contextlib.suppress(EngineUnavailableError):
                mailbox.send(body)
            slowest[0] = max(slowest[0], time.monotonic() - begun)

    threads = [threading.Thread(target=send) for _ in range(16)]
    try:
        load.goes_on("before")
        server.pause()
        for thread in threads:
            thread.start()
        end, waiting = time.monotonic() + SILENT_S, 0
        while time.monotonic() < end:
            waiting = max(waiting, load.engines[0].link.client.pending_data_size)
            time.sleep(0.05)
        stop.set()
        server.resume()
        load.goes_on("after it was frozen")
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert slowest[0] < TIMEOUT_S + SLACK_S
        assert waiting < 2 * 2**20
    finally:
        stop.set()
        server.resume()
        load.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_call_to_a_silent_server_raises_at_its_deadline(server: Nats) -> None:
    """All of them at once, so that one that hangs keeps none of the others from its deadline. A close does not wait for the server either."""
    engine = open_nats(f"{server.url}?timeout={TIMEOUT_S}", SystemClock())
    mailbox, journal = engine.mailbox("work", max_delivery_count=3), engine.journal("log")
    election, store, letters = engine.election("leader"), engine.store("values"), engine.mailbox("work").dead_letters
    term = election.campaign("me", 60)
    assert term is not None
    mailbox.send_many([Outgoing(number) for number in range(8)])
    held = mailbox.receive(8, 60)
    journal.append([b"x"], epoch=1, expect=0, append_id="1")
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: mailbox.send("x"),
        "send_many": lambda: mailbox.send_many([Outgoing("x"), Outgoing("y")]),
        "receive": mailbox.receive,
        "long poll": lambda: mailbox.receive(1, 60, TIMEOUT_S / 2),
        "acknowledge": held[0].acknowledge,
        "acknowledge_many": lambda: mailbox.acknowledge_many(held[1:3]),
        "nack": held[3].nack,
        "release": held[4].release,
        "extend": lambda: held[5].extend_visibility(60),
        "dead_letter": lambda: held[6].dead_letter("no"),
        "revoke": lambda: mailbox.revoke("key"),
        "depth": mailbox.depth,
        "purge": mailbox.purge,
        "dead letters": letters.list,
        "count": letters.count,
        "replay": lambda: letters.replay("1"),
        "delete dead": lambda: letters.delete("1"),
        "purge dead": letters.purge,
        "append": lambda: journal.append([b"y"], epoch=1, expect=1, append_id="2"),
        "head": journal.head,
        "read": journal.read,
        "follow": lambda: journal.follow(1, TIMEOUT_S / 2),
        "snapshot": lambda: journal.snapshot(b"state", 1, epoch=1),
        "latest_snapshot": journal.latest_snapshot,
        "truncate": lambda: journal.truncate(1),
        "campaign": lambda: election.campaign("me", 60),
        "renew": lambda: election.renew(term),
        "resign": lambda: election.resign(term),
        "current": election.current,
        "put": lambda: store.put("key", bytes(2_000_000)),
        "get": lambda: store.get("key"),
        "delete": lambda: store.delete("key"),
        "list": store.list,
        "now": engine.now,
    }
    outcomes: dict[str, tuple[float, Exception | None]] = {}

    def run(name: str) -> None:
        begun, error = time.monotonic(), None
        try:
            calls[name]()
        except Exception as raised:
            error = raised
        outcomes[name] = time.monotonic() - begun, error

    threads = [threading.Thread(target=run, args=(name,)) for name in calls]
    server.pause()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * (TIMEOUT_S + SLACK_S))
        assert set(outcomes) == set(calls), f"never ended: {set(calls) - set(outcomes)}"
        quiet = {name: error for name, (_, error) in outcomes.items() if not isinstance(error, EngineUnavailableError)}
        assert not quiet, "these did not raise that the engine is out of reach"
        late = {name: took for name, (took, _) in outcomes.items() if took > TIMEOUT_S + SLACK_S}
        assert not late
        begun = time.monotonic()
        engine.close()
        assert time.monotonic() - begun < SLACK_S
    finally:
        server.resume()
        engine.close()


@pytest.mark.slow
def test_an_idle_engine_with_a_waiting_consumer_hardly_wakes_up(server: Nats) -> None:
    """It woke up 33 times a second. Heartbeats of the server, one a second, are nearly all that is left."""
    with open_nats(server.url, SystemClock()) as engine:
        mailbox = engine.mailbox("idle")
        poll = threading.Thread(target=mailbox.receive, args=(1, 60, 60))
        poll.start()
        try:
            (loop,) = (thread for thread in threading.enumerate() if thread.name == "tenure-nats")
            time.sleep(1.0)  # the claim has come back, and what follows it is done
            before = wake_ups(loop)
            time.sleep(IDLE_S)
            assert wake_ups(loop) - before < 6 * IDLE_S
        finally:
            mailbox.close()
            poll.join(30)


def wake_ups(thread: threading.Thread) -> int:
    """How often the thread went to sleep of its own will. A busy machine does not change it."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


@pytest.mark.timeout(120)
def test_a_follower_without_a_connection_leaves_the_loop_to_others() -> None:
    """It span when it had to start over and could not: nothing else of its process ran any more, not even the reconnecting."""

    async def play() -> bool:
        link = NatsConnection(read_url("nats://127.0.0.1:1"), SystemClock(), Random(1))
        follower = Follower(link, "stream", lambda seq, at, data: True)
        follower.again()
        watch = asyncio.get_running_loop().create_task(follower._watch())
        for _ in range(20):  # a follower that spins gives us no second turn, and the test runs into its timeout
            await asyncio.sleep(0.01)
        try:
            return watch.done()
        finally:
            watch.cancel()

    assert not asyncio.run(play())

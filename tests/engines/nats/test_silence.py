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
from tests.engines.nats.load import Load
from tests.soak import sized
from tools.servers.nats import Nats

from tenure.clock import SystemClock
from tenure.engines.nats.address import read_url
from tenure.engines.nats.connection import NatsConnection
from tenure.engines.nats.streams import Follower
from tenure.errors import EngineUnavailableError
from tenure.randomness import Random
from tools.servers import FaultProxy

SILENT_S = sized("seconds of a silent NATS server", short=5.0, long=18.0)
TIMEOUT_S = sized("seconds of patience with it", short=1.0, long=5.0)
"""Longer than three pings, after which the client gives the connection up while the server is still silent."""
SLACK_S = 8.0
"""What a busy machine may add to a call that ends at its deadline."""
GROWTH_BYTES = 64 * 2**20


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
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["frozen", "swallowed", "half-open"])
def test_all_goes_on_by_itself_after_a_silence(server: Nats, silence: FaultProxy, kind: str) -> None:
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
    finally:
        server.resume()
        load.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
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


@pytest.mark.timeout(30)
def test_a_follower_without_a_connection_leaves_the_loop_to_others() -> None:
    """It span when it had to start over and could not: nothing else of its process ran any more, not even the reconnecting."""

    async def play() -> int:
        link = NatsConnection(read_url("nats://127.0.0.1:1"), SystemClock(), Random(1))
        follower = Follower(link, "stream", lambda seq, at, data: True)
        follower.again()
        watch, turns = asyncio.get_running_loop().create_task(follower._watch()), 0
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            await asyncio.sleep(0.01)
            turns += 1
        assert not watch.done()
        watch.cancel()
        return turns

    assert asyncio.run(play()) > 5

"""The other side of the contest, inside a peer's own environment: submits work when it is told to. Standard library only.

A `peer_*.py` is two things at once: the module with the tasks that the peer's own worker imports, and this driver, which
fills its queue, submits single jobs, and says how its worker is started. `contest.py` speaks with it in lines of JSON. The
jobs are seen from outside, in the same way for every peer: a no-op appends one byte to a file, a ping sends one datagram.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import socket
import sys
import time
from typing import Any

RUN = os.environ["PEERS_RUN"]
URL = os.environ["PEERS_URL"]
CONFIG = os.environ.get("PEERS_CONFIG", "")
COUNT_FILE = os.path.join(RUN, "count")
SOCKET_FILE = os.path.join(RUN, "pings")

FEWEST = 3
"""Samples of a peer that is slower than the time given."""

_count: int | None = None
_pings: socket.socket | None = None


def mark() -> None:
    """The body of a no-op job."""
    global _count
    if _count is None:
        _count = os.open(COUNT_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(_count, b".")


def answer_ping(number: int) -> int:
    """The body of a ping: tells the driver that it was begun, and when. The monotonic clock is one for all processes of a machine."""
    begun = time.monotonic()
    global _pings
    if _pings is None:
        _pings = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    _pings.sendto(f"{number} {begun}".encode(), SOCKET_FILE)
    return number


class Peer:
    """What each peer says of itself."""

    settings = ""
    """How it is set up, in words."""

    def worker(self) -> list[str]:
        """The command that starts one worker process."""
        raise NotImplementedError

    def reset(self) -> None:
        """Empty its queue, and make what it needs."""

    def fill(self, count: int) -> None:
        """Queue so many no-ops, as fast as it can."""
        raise NotImplementedError

    def filled(self) -> None:
        """Before the drain: on PostgreSQL, ANALYZE what wants it."""

    def ping(self, number: int) -> None:
        """Submit one ping, one call."""
        raise NotImplementedError

    def ask(self, number: int) -> Any:
        """Submit one job and wait for its result."""
        raise NotImplementedError

    _loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Any) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(work)


def tool(name: str) -> str:
    """A program of the peer's environment."""
    return os.path.join(os.path.dirname(sys.executable), name)


def itself(module: str, word: str = "worker") -> list[str]:
    return [sys.executable, f"{module}.py", word]


_numbers = itertools.count()


def pickups(peer: Peer, samples: int, budget_s: float) -> list[float]:
    """Milliseconds from before the submission to the first line of the job, one by one, with pauses in between."""
    if os.path.exists(SOCKET_FILE):
        os.unlink(SOCKET_FILE)
    chance, taken = random.Random(), []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(SOCKET_FILE)
        heard.settimeout(30)
        started = time.monotonic()
        for number in itertools.islice(_numbers, samples):
            time.sleep(chance.uniform(0.005, 0.03))
            sent = time.monotonic()
            peer.ping(number)
            told, begun = -1, 0.0
            while told != number:  # a job of before may come again
                first, second = heard.recv(64).split()
                told, begun = int(first), float(second)
            taken.append((begun - sent) * 1e3)
            if len(taken) >= FEWEST and time.monotonic() - started > budget_s:
                break
    return taken


def results(peer: Peer, samples: int) -> list[float]:
    """Milliseconds from before the submission until its result is here, one by one, with pauses in between."""
    chance, taken = random.Random(), []
    for number in range(samples):
        time.sleep(chance.uniform(0.005, 0.03))
        sent = time.monotonic()
        peer.ask(number)
        taken.append((time.monotonic() - sent) * 1e3)
    return taken


def serve(peer: Peer) -> None:
    """Do what the lines on standard input say, until it ends."""
    talk = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is not part of the talk
    for line in sys.stdin:
        order, *values = json.loads(line)
        try:
            if order == "worker":
                answer: Any = peer.worker()
            elif order == "settings":
                answer = peer.settings
            elif order == "pickups":
                answer = pickups(peer, *values)
            elif order == "results":
                answer = results(peer, *values)
            elif order == "measure":
                answer = getattr(peer, f"measure_{values[0]}")(*values[1:])
            elif order == "fill":
                peer.reset()
                answer = peer.fill(*values)
                peer.filled()
            else:
                answer = peer.reset()
        except Exception as error:
            talk.write(json.dumps({"error": f"{order}: {type(error).__name__}: {error}"}) + "\n")
        else:
            talk.write(json.dumps({"answer": answer}) + "\n")

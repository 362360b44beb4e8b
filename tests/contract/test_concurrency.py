"""Many at once: threads, processes, and processes that are killed at any point. Nothing lost, nothing held twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.contract.case import Background, EngineCase
from tests.contract.worker import MESSAGES
from tests.patience import wait_until

from tenure.engines import Engine, Outgoing

ROOT = Path(__file__).resolve().parents[2]


def test_threads_that_send_and_take_at_once_lose_nothing_and_get_nothing_twice(case: EngineCase, live: Engine) -> None:
    engines, each = [live, case.live()], 50
    got: list[str] = []
    stop = threading.Event()

    def produce(number: int) -> None:
        mailbox = engines[number % 2].mailbox("work")
        for n in range(each // 2):
            mailbox.send(f"{number}/{n}")
        mailbox.send_many([Outgoing(f"{number}/{n}") for n in range(each // 2, each)])

    def consume(number: int) -> None:
        mailbox = engines[number % 2].mailbox("work")
        while not stop.is_set():
            for message in mailbox.receive(1 + number, 300, 0.5):
                got.append(message.body)
                message.acknowledge()

    workers = [Background(lambda n=n: consume(n)) for n in range(4)]
    for producer in [Background(lambda n=n: produce(n)) for n in range(4)]:
        producer.result(60)
    wait_until(lambda: len(got) >= 4 * each)
    stop.set()
    for worker in workers:
        worker.result(60)
    assert Counter(got) == Counter(f"{number}/{n}" for number in range(4) for n in range(each))
    assert live.mailbox("work").approximate_count() == 0


def test_of_many_that_send_the_same_key_at_once_one_is_accepted(case: EngineCase, live: Engine) -> None:
    engines = [live, case.live()]

    def send(number: int) -> list[bool]:
        mailbox = engines[number % 2].mailbox("work")
        return [mailbox.send_many([Outgoing(f"{number}", key=f"k{round_}")])[0].refused is None for round_ in range(10)]

    senders = [Background(lambda n=n: send(n)) for n in range(4)]
    accepted = [sender.result(60) for sender in senders]
    assert [sum(each) for each in zip(*accepted, strict=True)] == [1] * 10
    assert len(live.mailbox("work").receive(100)) == 10


def test_of_an_acknowledgement_and_a_replacement_at_once_one_wins(case: EngineCase, live: Engine) -> None:
    """Either the old one was settled before, or it is dead: never both results."""
    mailbox, other = live.mailbox("work"), case.live().mailbox("work")
    for round_ in range(10):
        key = f"k{round_}"
        mailbox.send("old", key=key, generation=1, reply_to="replies")
        (old,) = mailbox.receive(1, 60)
        barrier = threading.Barrier(2)

        def settle(old: Any = old, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            old.settle(old.key)

        settled = Background(settle)
        barrier.wait()
        other.send("new", key=key, generation=2)
        refused = False
        try:
            settled.result(20)
        except Exception as error:
            refused = type(error).__name__ == "ReceiptHandleExpiredError"
            assert refused
        (new,) = mailbox.receive(1, 60)
        assert new.body == "new"
        new.acknowledge()
        assert len(live.mailbox("replies").receive(10)) == (0 if refused else 1)


class Crew:
    """Processes that are started, killed and replaced."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.running: dict[str, tuple[str, str, subprocess.Popen[bytes]]] = {}
        self._started = 0

    def start(self, role: str, name: str | None = None) -> None:
        """A consumer or leader gets a new name with each start, as every node does; a producer goes on with its own."""
        self._started += 1
        started = f"{role}-{self._started}"
        log, name = self.folder / f"{started}.log", name or started
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.worker", role, self.url, str(log), name],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        )
        self.running[started] = (role, name, process)

    def kill(self, started: str) -> None:
        process = self.running.pop(started)[2]
        process.send_signal(signal.SIGKILL)
        process.wait(60)

    def replace(self, started: str) -> None:
        role, name, process = self.running[started]
        had_ended = process.poll() is not None
        self.kill(started)
        if not had_ended:
            self.start(role, name if role == "produce" else None)

    def alive(self, role: str) -> list[str]:
        return [name for name, (of, _, process) in self.running.items() if of == role and process.poll() is None]

    def has_written(self, started: str) -> bool:
        log = self.folder / f"{started}.log"
        return log.exists() and log.stat().st_size > 0

    def broken(self) -> list[str]:
        """Those that ended by themselves, and not well."""
        return [name for name, (_, _, process) in self.running.items() if process.poll() not in (None, 0)]

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.folder.glob("*.log")):
            for line in path.read_bytes().split(b"\n"):
                if line.endswith(b"}"):
                    found.append(json.loads(line))
        return found


@pytest.fixture
def crew(case: EngineCase, live: Engine, tmp_path: Path) -> Iterator[Crew]:
    folder = tmp_path / "logs"
    folder.mkdir()
    live.mailbox("work")  # so that the data is there before several processes open it
    found = Crew(case.live_url, folder)
    yield found
    for name in list(found.running):
        found.kill(name)


@pytest.mark.slow
@pytest.mark.processes
def test_processes_killed_at_random_points_lose_nothing_and_repeat_no_result(crew: Crew, live: Engine) -> None:
    """Each key is sent until its sender knows that it was, and answered exactly once, whoever is killed and when."""
    chance = Random(20_26)
    producers = ["p1", "p2"]
    for name in producers:
        crew.start("produce", name)
    for _ in range(3):
        crew.start("consume")

    def all_done() -> bool:
        finished = {line["finished"] for line in crew.lines() if "finished" in line}
        return finished == set(producers) and live.mailbox("work").approximate_count() == 0

    victims = ["produce"] * 4 + ["consume"] * 6
    chance.shuffle(victims)
    for role in victims:
        victim = chance.choice(crew.alive(role) or crew.alive("consume"))
        # In the midst of its work, at whatever point that is: after its first line, before its last.
        wait_until(lambda v=victim: crew.has_written(v) or all_done())
        time.sleep(chance.random() * 0.05)
        crew.replace(victim)
    wait_until(all_done)
    assert crew.broken() == []

    keys = {f"{name}/{number}" for name in producers for number in range(MESSAGES)}
    replies = live.mailbox("replies").receive(1_000)
    assert Counter(reply.body for reply in replies) == Counter(keys)
    lines = crew.lines()
    assert max(Counter(line["settled"] for line in lines if "settled" in line).values()) == 1
    assert_no_two_held_at_once(lines, keys)
    assert any(line.get("count", 1) > 1 for line in lines), "nobody was killed while it held a message"
    assert any("known" in line for line in lines), "no producer was killed"


def assert_no_two_held_at_once(lines: list[dict[str, Any]], keys: set[str]) -> None:
    deliveries: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if "got" in line:
            deliveries.setdefault(line["got"], []).append(line)
    assert set(deliveries) <= keys
    for key, of_key in deliveries.items():
        of_key.sort(key=lambda line: line["at"])
        counts = [line["count"] for line in of_key]
        assert counts == sorted(set(counts)), f"{key}: the fence did not grow: {of_key}"
        for before, after in pairwise(of_key):
            assert after["at"] >= before["until"], f"{key} was delivered while its lease held: {before}, {after}"


@pytest.mark.slow
@pytest.mark.processes
def test_leaders_killed_at_random_points_leave_one_history(crew: Crew, live: Engine) -> None:
    """Every append that its leader heard of is there, once; each epoch has one leader; epochs and sequences only grow."""
    chance = Random(7)
    for _ in range(3):
        crew.start("lead")
    journal = live.journal("log")
    wait_until(lambda: journal.head().seq > 0)
    for _ in range(5):
        time.sleep(0.2 + 0.3 * chance.random())
        leader = live.election("chief").current()
        # Mostly the leader itself, sometimes one that waits.
        victim = leader.candidate if leader and chance.random() < 0.7 else chance.choice(sorted(crew.running))
        if victim in crew.running:
            crew.replace(victim)
    epoch = journal.head().epoch
    wait_until(lambda: journal.head().epoch > epoch or live.election("chief").current() is not None)
    assert crew.broken() == []
    for name in list(crew.running):
        crew.kill(name)

    entries, after = [], 0
    while page := journal.read(after):
        entries += page
        after = page[-1].seq
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.epoch for entry in entries] == sorted(entry.epoch for entry in entries)
    assert len({entry.append_id for entry in entries}) == len(entries)
    assert len({entry.epoch for entry in entries}) == len({(entry.epoch, entry.events[0]) for entry in entries})
    by_seq = {entry.seq: entry for entry in entries}
    heard = [line for line in crew.lines() if "append_id" in line]
    assert heard
    for line in heard:
        assert (by_seq[line["seq"]].append_id, by_seq[line["seq"]].epoch) == (line["append_id"], line["epoch"])
    elected = [line["elected"] for line in crew.lines() if "elected" in line]
    assert len(elected) == len(set(elected)), "two terms of one epoch"

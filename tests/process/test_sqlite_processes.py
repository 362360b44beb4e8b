"""The SQLite engine among real processes: full disks, missing rights, locks, forks, kills and wake-ups."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.process.sqlite_child import LEASE_S

from tenure.clock import SystemClock
from tenure.engines.sqlite import open_sqlite

ROOT = Path(__file__).resolve().parent.parent.parent


class Child:
    """One process of sqlite_child.py."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.sqlite_child", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hears(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it said nothing and ended with {self.process.wait(180)}"
        return line

    def tells(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.line())
        return told

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> int:
        code = self.process.wait(180)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        return code


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tenure.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def count_in(path: Path, mailbox: str = "work") -> int:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (count,) = connection.execute("SELECT count(*) FROM message WHERE mailbox = ?", (mailbox,)).fetchone()
        return int(count)
    finally:
        connection.close()


def test_a_full_disk_is_a_clear_error_and_work_goes_on_when_there_is_room(url: str, path: Path) -> None:
    child = Child("full_disk", url, 2_000_000)
    told = child.tells()
    assert child.end() == 0
    assert told["error"] == "EngineFullError", told
    assert told["retryable"]
    assert str(path) in told["said"]
    assert told["sent"] > 50
    assert told["readable"] == told["sent"]  # nothing that was acknowledged is lost, nothing half-written shows
    assert told["after"] == told["sent"] + 1
    assert count_in(path) == told["after"]


def test_a_disk_that_is_full_from_the_start_is_told_when_it_is_opened(url: str) -> None:
    child = Child("full_from_the_start", url)
    assert child.tells()["error"] == "EngineFullError"
    child.end()


@pytest.mark.parametrize("there", [True, False], ids=["existing file", "new file"])
def test_a_folder_that_may_not_be_written_is_told_with_the_user_who_may_not(open_folder: Path, there: bool) -> None:
    path = open_folder / "tenure.db"
    if there:
        open_sqlite(f"sqlite:///{path}", SystemClock()).close()
        shutil.rmtree(f"{path}-bells")
    before = sorted(os.listdir(open_folder))
    open_folder.chmod(0o555)
    child = Child("without_rights", f"sqlite:///{path}")
    told = child.tells()
    child.end()
    assert told["error"] == "EngineReadOnlyError", told
    assert str(open_folder) in told["said"]
    assert "must be able to write" in told["said"]
    open_folder.chmod(0o755)
    assert sorted(os.listdir(open_folder)) == before


def test_a_file_that_another_process_locks_is_busy_until_it_lets_go(url: str, path: Path) -> None:
    open_sqlite(url, SystemClock()).close()
    holder = Child("hold", url, path)
    assert holder.tells() == {"holding": True}
    waiter = Child("report_opening", f"{url}?busy_timeout=0.3")
    told = waiter.tells()
    assert waiter.end() == 0
    assert told["error"] == "EngineBusyError"
    assert "fuser" in told["said"]
    patient = Child("open_at_once", f"{url}?busy_timeout=60", 0)
    time.sleep(0.5)
    assert patient.process.poll() is None
    holder.hears()
    assert holder.end() == 0
    assert patient.tells() == {"ok": True}
    assert patient.end() == 0
    assert count_in(path) == 1


@pytest.mark.slow
def test_processes_that_create_the_file_at_the_same_moment_share_it(url: str, path: Path) -> None:
    for _ in range(2):
        at = time.time() + 1.0
        children = [Child("open_at_once", f"{url}?busy_timeout=180", at) for _ in range(5)]
        assert [child.tells() for child in children] == [{"ok": True}] * 5
        assert [child.end() for child in children] == [0] * 5
        assert count_in(path) == 5
        for left in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            left.unlink(missing_ok=True)


def test_parent_and_child_go_on_with_the_same_engine_after_a_fork(url: str, path: Path) -> None:
    count = 150
    child = Child("fork_while_waiting", url, count)
    assert child.line() == "closed\n"
    child.hears()
    told = child.tells()
    assert told == {"child_received": 1, "child_column": told["child_column"]}
    assert child.tells() == {"status": 0}
    assert child.end() == 0
    assert count_in(path) == 3 * count  # "before" was acknowledged by the child
    with open_sqlite(url, SystemClock()) as engine:
        found = [tuple(message.body) for message in engine.mailbox("work").receive(1_000)]
    assert len(found) == len(set(found)) == 3 * count - 1  # one is held by the child


def test_a_fork_that_python_did_not_see_is_refused_in_the_child_and_harms_nobody(url: str, path: Path) -> None:
    child = Child("fork_unseen", url)
    assert child.tells() == {"status": 42, "count": 2}
    assert child.end() == 0
    assert count_in(path) == 2


def test_a_consumer_in_another_process_is_woken_at_once(url: str) -> None:
    count = 30
    child = Child("echo", url, count)
    assert child.tells() == {"ready": True}
    delays = []
    with open_sqlite(url, SystemClock()) as engine:
        mailbox = engine.mailbox("work")
        for _ in range(count):
            time.sleep(0.02)
            sent_at = time.monotonic()
            mailbox.send("x")
            delays.append(child.tells()["arrived"] - sent_at)
    child.end()
    # The figure is the benchmark's (p50 under 2 ms); here, that it is no look once in a second: each message comes right after one, so all would wait for the next.
    assert min(delays) < 0.5, delays


def check_ledger(lines: list[str]) -> dict[str, int]:
    """What may never happen, whoever was killed when."""
    sent, acknowledged = set(), {}
    got: dict[str, list[tuple[float, float]]] = defaultdict(list)
    late = set()
    for line in sorted(lines, key=lambda line: float(line.split()[0])):
        at, what, message, _, lease_until = line.split()
        if what == "sent":
            sent.add(message)
        elif what == "got":
            got[message].append((float(lease_until), float(at)))
        elif what == "acknowledged":
            assert message not in acknowledged, f"{message} was acknowledged twice"
            acknowledged[message] = float(at)
        elif what == "late":
            late.add(message)
    lost = sent - set(got)
    assert not lost, f"sent and never delivered: {sorted(lost)[:5]}"
    unfinished = sent - set(acknowledged)
    doubles = 0
    for message, deliveries in got.items():
        deliveries.sort()  # by their leases: a machine that stood still may have noted an earlier one later
        for (lease_until, _), (_, noted) in pairwise(deliveries):
            doubles += 1
            assert noted >= lease_until, f"{message} was delivered twice while its lease held"
        if message in acknowledged:
            claimed = deliveries[-1][0] - LEASE_S
            assert claimed <= acknowledged[message], f"{message} came back after it was acknowledged"
    return {"sent": len(sent), "doubles": doubles, "unfinished": len(unfinished), "late": len(late)}


@pytest.mark.slow
def test_producers_and_consumers_killed_at_random_points_lose_nothing(url: str, path: Path, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # shown when it fails
    chance = random.Random(seed)
    ledger = tmp_path / "ledger"
    ledger.touch()  # on a busy machine, 14 of them may be killed before the first one notes anything
    numbers = itertools.count(0, 100_000)  # as many as a slow machine needs

    def producer() -> Child:
        return Child("produce", url, ledger, next(numbers))

    def consumer() -> Child:
        return Child("consume", url, ledger)

    producers, consumers = [producer() for _ in range(2)], [consumer() for _ in range(3)]
    kills, most = 0, time.monotonic() + 180
    # On a slow machine for as long as it takes until there is something to lose.
    while kills < 14 or (ledger.read_text().count(" sent ") < 150 and time.monotonic() < most):
        kills += 1
        time.sleep(chance.uniform(0.2, 0.6))
        group, make = chance.choice([(producers, producer), (consumers, consumer)])
        victim = chance.randrange(len(group))
        group[victim].kill()
        group[victim] = make()
    for child in producers:
        child.kill()
    drain(url)
    for child in consumers:
        child.kill()
    facts = check_ledger(ledger.read_text().splitlines())
    # A consumer killed between its acknowledge and its note leaves a message that is neither noted nor there.
    assert facts["unfinished"] <= kills + len(consumers)
    assert facts["sent"] > 100
    assert count_in(path) == 0
    with open_sqlite(url, SystemClock()) as engine:
        engine.mailbox("idle").receive(1, 60, 0.01)
        assert sorted(os.listdir(f"{path}-bells")) == ["0", "page"]  # our own; what the killed ones left is gone
    assert os.listdir(f"{path}-bells") == ["page"]


def drain(url: str) -> None:
    """Until the consumers have taken everything."""
    with open_sqlite(url, SystemClock()) as engine:
        mailbox = engine.mailbox("work")
        end = time.monotonic() + 180
        while mailbox.approximate_count():
            assert time.monotonic() < end, mailbox.depth()
            time.sleep(0.05)

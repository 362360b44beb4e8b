"""A datacenter whose machines are wrong: a clock an hour off, no managers for a while, a full disk. With real processes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node
from tests.soak import sized

from tenure.engines import Engine
from tenure.jobs import JobState

OFFSET = Path(__file__).with_name("offset_manager.py")
AWAY_S = sized("seconds without any manager", short=3.0, long=60.0)


def ran(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3_600, -3_600])
def test_a_leader_whose_clock_is_an_hour_off_keeps_every_deadline(
    datacenter: Datacenter, tmp_path: Path, seconds: int
) -> None:
    Engine.open(
        datacenter.url
    ).close()  # the engine's time begins with whoever makes the file: somebody whose clock is right
    node = Node(tmp_path, "wrong", datacenter.url, "wrong", str(seconds), program=(str(OFFSET),))
    wrong = datacenter.joined("wrong", node)
    datacenter.until_led()
    datacenter.manager("right")
    datacenter.worker("--slots", "2", "--lease", "5")
    client, log = datacenter.client, tmp_path / "log"
    client.submit("beat_for", {"seconds": 60, "log": str(log)}, job_id="too-long", timeout_seconds=6, grace=0)
    client.submit("step", {"n": 1, "log": str(tmp_path / "steps")}, job_id="short")
    assert client.wait("short", 180).state is JobState.COMPLETED
    view = client.job("too-long")
    assert view.deadline == view.submitted_at + 6
    assert abs(view.submitted_at - time.time()) < 600, "times are the engine's, not those of the leader's clock"
    wrong.kill()  # the next leader's clock is right, and the deadline stays where it was
    datacenter.until_led()
    ended = client.wait("too-long", 180)
    assert (ended.state, ended.deadline) == (JobState.TIMED_OUT, view.deadline), client.why("too-long").text
    assert ended.ended_at >= ended.deadline


@pytest.mark.slow
def test_workers_go_on_without_any_manager_and_nothing_is_lost(datacenter: Datacenter, tmp_path: Path) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker = datacenter.worker("--slots", "2", "--lease", "30")
    client, log = datacenter.client, tmp_path / "log"
    for n in range(60):
        client.submit("step", {"n": n, "log": str(log), "seconds": 0.2}, job_id=f"j-{n}")
    wait_until(lambda: len(ran(log)) > 5, datacenter.said)
    datacenter.managers["m-1"].kill()
    before = len(ran(log))
    time.sleep(AWAY_S)
    # What was dispatched goes on.
    wait_until(lambda: len(ran(log)) >= min(before + 4, 60), why=datacenter.said)
    assert worker.process.poll() is None
    datacenter.manager("m-2")
    client = datacenter.new_client(first="m-2")
    for n in range(60):
        view = client.wait(f"j-{n}", 180)
        assert (view.state, view.workflows[0].result, view.workflows[0].attempt) == (JobState.COMPLETED, 2 * n, 1)
    assert sorted(map(int, ran(log))) == list(range(60))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that can be filled."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(
            f"NOT RUN: a full disk needs a small file system, and mounting one failed: {mounted.stderr.strip()}"
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=False)


@pytest.mark.slow
def test_a_full_disk_holds_everything_up_and_loses_nothing(
    datacenter: Datacenter, tmp_path: Path, small_disk: Path
) -> None:
    datacenter.url = f"sqlite:///{small_disk}/t.db"
    datacenter.manager("m-1")
    datacenter.until_led()
    datacenter.manager("m-2")
    datacenter.worker("--slots", "2", "--lease", "5")
    client, log = datacenter.client, tmp_path / "log"
    for n in range(20):
        client.submit("step", {"n": n, "log": str(log), "seconds": 0.1}, job_id=f"j-{n}")
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as full:
        try:
            while True:
                full.write(b"x" * 4_096)
        except OSError:
            pass
    # Nobody can renew the term, and nobody can be elected.
    wait_until(lambda: datacenter.misses_its_engine() > 2, datacenter.said)
    ballast.unlink()
    for n in range(20):
        view = client.wait(f"j-{n}", 180)
        assert (view.state, view.workflows[0].result) == (JobState.COMPLETED, 2 * n), client.why(view.job_id).text
    assert client.submit("step", {"n": 99, "log": str(log)}, job_id="after")
    assert client.wait("after", 180).state is JobState.COMPLETED
    epochs = datacenter.epochs()
    assert epochs == sorted(epochs)

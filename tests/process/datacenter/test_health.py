"""A worker that is stopped and goes on, with real processes and signals: suspected, evicted, its work done elsewhere, and back."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.process.datacenter.conftest import Datacenter, Node
from tests.process.stillness import Stillness
from tests.soak import sized

from tenure.control.messages.nodes import ListNodes
from tenure.gossip import format_key
from tenure.jobs import JobState

HEALTHCHECK_S = 10


def starts(worker: Node) -> list[str]:
    """The incarnations that it has had."""
    return re.findall(r"incarnation (\w+): \d+ slots", worker.said(), re.MULTILINE)


@pytest.mark.slow
def test_a_stopped_worker_is_evicted_its_work_done_by_another_and_when_it_goes_on_it_comes_back_as_somebody_new(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text(f"{format_key(bytes(range(32)))}\n")
    key = ("--gossip-key-file", str(tmp_path / "keys"))  # and neither --gossip nor --join: the engine knows the rest
    # Ten seconds, because a machine that is busy may well keep a healthy worker from reporting for four.
    manager = datacenter.manager("m-1", "--healthcheck", str(HEALTHCHECK_S), *key)
    datacenter.until_led()
    assert re.search(r"gossips on 127.0.0.1:\d+", manager.said())
    options = (*key, "--slots", "2", "--lease", "30", "--queue", "default", "--queue", "more", "--priority", "0")
    workers = {name: datacenter.worker("--name", name, *options) for name in ("anna", "berta")}
    client, log = datacenter.client, tmp_path / "log"
    # Nobody writes it: what runs here runs until it is cancelled.
    enough = {"told": str(tmp_path / "enough"), "log": str(log)}
    client.submit("beat_until", enough, job_id="long")
    wait_until(lambda: client.job("long").state is JobState.RUNNING, datacenter.said)
    wait_until(lambda: datacenter.said().count("joined the gossip of") == 2, datacenter.said)
    first = client.job("long").workflows[0].worker
    assert first in workers
    second = next(name for name in workers if name != first)

    datacenter.stop_between_transactions(workers[first])
    wait_until(lambda: client.job("long").workflows[0].attempt == 2, datacenter.said)
    wait_until(lambda: client.job("long").workflows[0].worker == second, datacenter.said)
    text = client.why("long").text
    assert f"{first} was evicted" in text
    assert f"{first} leaves it to others while there are any" in text

    # Its other slot runs on, and knows that nobody attends to it: it takes nothing that others would have to wait for.
    for n in range(4):
        client.submit("step", {"n": n, "log": str(tmp_path / "steps")}, job_id=f"step-{n}")
        view = client.wait(f"step-{n}", PATIENCE_S)
        assert (view.state, view.workflows[0].worker) == (JobState.COMPLETED, second), client.why(f"step-{n}").text

    workers[first].signal(signal.SIGCONT)
    wait_until(lambda: len(starts(workers[first])) == 2, datacenter.said)
    assert "is evict: " in workers[first].said()
    # The other is busy: what is submitted now, to another of its queues, is done by the one that came back.
    client.submit("beat_until", enough, job_id="busy")
    client.submit("beat_until", enough, job_id="more", queue="more")
    ran_on = lambda job: client.job(job).workflows[0].worker  # noqa: E731
    wait_until(lambda: ran_on("busy") != "" and ran_on("more") != "", datacenter.said)
    assert first in (ran_on("busy"), ran_on("more"))
    assert client.job("long").workflows[0].attempt == 2
    for job in ("long", "busy", "more"):
        client.cancel(job)


@pytest.mark.slow
def test_a_slot_that_is_slow_to_stop_earns_its_worker_time_and_moves_no_job(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    """Its work is silent beyond every threshold, and its grace is long: nobody ends it, so the worker's own deadline nears. It has
    advanced before, so the worker is granted an extension, outlives that deadline, and is well again as soon as the work moves.
    """
    files = {key: str(tmp_path / key) for key in ("silent", "busy", "log")}
    datacenter.manager("m-1", "--healthcheck", str(HEALTHCHECK_S))
    datacenter.until_led()
    datacenter.worker("--name", "anna", "--slots", "1", "--grace", "300")
    client = datacenter.client
    told = lambda: client.why("slow").text  # noqa: E731
    with Stillness() as machine:
        client.submit("hard_to_stop", files, job_id="slow", stall=1, stuck=500, timeout=600)
        wait_until(lambda: client.job("slow").state is JobState.RUNNING, datacenter.said)
        before = client.job("slow").deadline
        wait_until(lambda: "was granted" in told() or "was evicted" in told(), datacenter.said)
    Path(files["silent"]).touch()
    if "was evicted" in told():
        # It could not ask in time: only a machine that stood still excuses that, and then there is no more to see.
        assert machine.excuses(HEALTHCHECK_S / 3), told()
        return
    assert (
        f"anna was granted {HEALTHCHECK_S} s (grant 1, {HEALTHCHECK_S} s in all): the first of a series needs no proof"
        in told()
    )
    assert client.job("slow").deadline == before  # a job earns its own time, near its own deadline
    # The work moves again, and so does the deadline: it is not needed any more.
    wait_until(lambda: client.ask(ListNodes()).workers[0].left_s > HEALTHCHECK_S / 2, datacenter.said)
    Path(files["busy"]).touch()
    wait_until(lambda: client.job("slow").ended, datacenter.said)
    assert "was evicted" not in told() or machine.excuses(HEALTHCHECK_S / 3)


SCALE = sized("share of the default healthcheck, lease and stall", short=0.2, long=1.0)
"""Their ratios are those that users have, also where they are a fifth of the defaults."""
DEFAULTS = {"healthcheck": 30 * SCALE, "lease": 60 * SCALE, "stall": 300 * SCALE}


def silent_job(datacenter: Datacenter, tmp_path: Path, *names: str, declared_s: float = 0.0) -> Path:
    """Starts these workers and a job that is silent from its first step on. Returns the file that ends its silence."""
    datacenter.manager("m-1", "--healthcheck", str(DEFAULTS["healthcheck"]))
    datacenter.until_led()
    for name in names:
        datacenter.worker(
            "--name", name, "--slots", "1", "--lease", str(DEFAULTS["lease"]), "--stall", str(DEFAULTS["stall"])
        )
    done, log = tmp_path / "done", tmp_path / "log"
    arguments = {"done": str(done), "log": str(log), "declared_s": declared_s}
    datacenter.client.submit("think", arguments, job_id="quiet", stuck=500, timeout=900)
    wait_until(lambda: log.exists() and "silent 1" in log.read_text(), datacenter.said)
    return done


@pytest.mark.slow
def test_a_worker_whose_only_work_is_silent_as_it_may_be_asks_is_granted_and_lives(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    """Its deadline ends 12 s after the last step, and with the grant 18 s after it. It lives, because the silence may last for 60 s."""
    healthcheck_s = DEFAULTS["healthcheck"]
    with Stillness() as machine:
        done = silent_job(datacenter, tmp_path, "anna")
        began = time.monotonic()
        told = lambda: datacenter.client.why("quiet").text  # noqa: E731
        wait_until(lambda: "was denied more time" in told() or "was evicted" in told(), datacenter.said)
        wait_until(lambda: time.monotonic() - began > 4.5 * healthcheck_s)
    text = told()
    if "was evicted" in text:  # its reports did not arrive in time: only a machine that stood still excuses that
        assert machine.excuses(healthcheck_s / 3), text
        return
    assert f"anna was granted {healthcheck_s:g} s (grant 1, {healthcheck_s:g} s in all)" in text
    assert "anna was denied more time: No progress since last extension" in text
    [anna] = datacenter.client.ask(ListNodes()).workers
    done.touch()
    silent_s = time.monotonic() - began
    view = datacenter.client.wait("quiet", PATIENCE_S)
    assert view.state is JobState.COMPLETED, told()
    if (
        silent_s < DEFAULTS["stall"] - 5
    ):  # it took this test longer than the silence may last: then an attempt was ended, rightly
        # It was denied more: no new work, and yet it lives. The leader of another term begins with a verdict of its own.
        assert anna.verdict == "drain" or datacenter.said().count("leads with epoch") > 1
        assert anna.left_s > 0
        assert view.workflows[0].attempt == 1, told()


@pytest.mark.slow
def test_a_worker_that_is_killed_in_a_long_declared_silence_is_evicted_after_one_healthcheck(
    datacenter: Datacenter, tmp_path: Path
) -> None:

    done = silent_job(datacenter, tmp_path, "anna", "berta", declared_s=900 * SCALE)
    wait_until(lambda: datacenter.client.job("quiet").workflows[0].worker != "", datacenter.said)
    first = datacenter.client.job("quiet").workflows[0].worker
    datacenter.workers[["anna", "berta"].index(first)].signal(signal.SIGKILL)
    killed = time.monotonic()
    wait_until(lambda: f"evicted {first} (" in datacenter.said(), datacenter.said)
    # Sooner than the declared silence ends. That it is one healthcheck to the second is held in virtual time (tests/health).
    assert time.monotonic() - killed < 900 * SCALE
    done.touch()
    view = datacenter.client.wait("quiet", PATIENCE_S)
    assert (view.state, view.workflows[0].worker == first) == (JobState.COMPLETED, False)

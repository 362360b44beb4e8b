"""SIGKILL and SIGSTOP of a supervisor or a slot at each moment of the hand-over: nothing is lost, stranded or started twice under one receipt."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.slots.conftest import APP, Desk

from tenure.engines import Outgoing
from tenure.work.delivery import WorkItem

JOBS = 60
LEASE = ("--slots", "2", "--lease", "2", "--grace", "0.3")
STOPPED_S = 2.5
STRUCK = str(APP.with_name("struck_worker.py"))
MODULES = (str(APP.with_name("struck_app.py")),)


def send(desk: Desk, log: Path) -> None:
    items = [WorkItem(workflow="count", args={"one": n, "log": str(log)}, job_id=str(n)) for n in range(JOBS)]
    desk.work.send_many([Outgoing(item, reply_to="replies") for item in items])


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("point", ["claim", "hand-over", "start", "result", "settle"])
def test_a_worker_that_is_struck_loses_nothing_and_starts_nothing_twice_under_one_receipt(
    desk: Desk, tmp_path: Path, point: str, number: str
) -> None:
    log, struck = tmp_path / "log", tmp_path / "struck"
    send(desk, log)
    first = desk.start(*LEASE, modules=MODULES, program=STRUCK, TENURE_TEST_STRIKE=f"{point}:{number}:{struck}")
    wait_until(lambda: struck.exists() and bool(struck.read_text()), first.said)
    pid = int(struck.read_text())
    desk.start(*LEASE, modules=MODULES)
    if number == "SIGSTOP":
        # It wakes after its leases ran out, while another worker has its work. A slot was killed by its supervisor by then.
        time.sleep(STOPPED_S)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    answers = [desk.answer() for _ in range(JOBS)]
    assert Counter(int(answer.job_id) for answer in answers) == Counter(range(JOBS))
    assert all(answer.ok for answer in answers)
    first.end()
    receipts = Counter(line.split()[2] for line in log.read_text().splitlines())
    assert receipts.most_common(1)[0][1] == 1, "one delivery was started twice"
    assert desk.replies.depth().ready == 0
    assert desk.work.dead_letters.count() == 0
    assert sum(desk.work.depth()) == 0


def test_a_thousand_short_jobs_are_not_held_up_by_one_that_hangs(desk: Desk, tmp_path: Path) -> None:
    worker = desk.start("--slots", "2", "--lease", "60", "--grace", "0.3")
    for n in range(100):
        desk.send("add", one=n)  # the worker learns how short they are, and claims ahead
    for _ in range(100):
        desk.answer()
    told, log = tmp_path / "told", tmp_path / "hangs"
    desk.send("beat_until", told=str(told), log=str(log), job="hangs")
    items = [WorkItem(workflow="add", args={"one": n}, job_id=str(n)) for n in range(1_000)]
    for start in (0, 500):
        desk.work.send_many([Outgoing(item, reply_to="replies") for item in items[start : start + 500]])
    answers = {desk.answer().job_id for _ in range(1_000)}
    assert answers == {str(n) for n in range(1_000)}, worker.said()
    assert log.read_text().count("start") == 1
    told.touch()
    assert desk.answer().job_id == "hangs"

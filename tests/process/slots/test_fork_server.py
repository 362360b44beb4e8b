"""Slots that are forked from a process which imported the modules once: real processes, real signals."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.process.slots.conftest import Desk, Worker, is_running, shown, wait_until

from tenure.work.slots.fork_messages import SLOT_NAME
from tenure.work.slots.processes import all_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="slots are forked on Linux only")
APP = str(Path(__file__).parent / "forked_app.py")
FORKED = ("--slots", "2", "--grace", "0.3", "--lease", "60", "--stall", "60", "--slot-start")


def start(desk: Desk, mode: str = "auto", **env: str) -> Worker:
    return desk.start(*FORKED, mode, modules=(APP,), **env)


def told(desk: Desk) -> dict[str, Any]:
    desk.send("tell")
    return msgspec.json.decode(desk.answer().result, type=dict[str, Any])


def forked(worker: Worker) -> list[int]:
    return [pid for pid in worker.slots() if shown(pid, "comm") == SLOT_NAME]


def wait_for_forks(worker: Worker) -> list[int]:
    """Waits for two slots and the spare one, and for the server; returns the slots."""
    wait_until(lambda: len(forked(worker)) == 3 and len(worker.fork_servers()) == 1, worker.said)
    return forked(worker)


def test_slots_are_children_of_the_supervisor_and_share_one_import(desk: Desk) -> None:
    worker = start(desk, PYTHONUNBUFFERED="")
    slots, said = wait_for_forks(worker), told(desk)
    assert said["pid"] in slots
    assert said["parent"] == worker.process.pid
    assert [said["imported_in"]] == worker.fork_servers()
    assert said["session"] == said["pid"]
    assert worker.end() == 0
    assert worker.said().count("imported in") == 1


def test_a_killed_fork_server_takes_no_slot_with_it_and_is_replaced(desk: Desk, tmp_path: Path) -> None:
    worker, log, go = start(desk), tmp_path / "log", tmp_path / "go"
    slots, [server] = wait_for_forks(worker), worker.fork_servers()
    desk.send("hold", log=str(log), told=str(go))
    wait_until(log.exists, worker.said)
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: "another one takes its place" in worker.said(), worker.said)
    assert set(slots) <= set(forked(worker))
    go.touch()
    assert msgspec.json.decode(desk.answer().result) in slots
    os.kill(slots[0], signal.SIGKILL)  # only now a server is wanted again
    wait_until(lambda: server not in worker.fork_servers() and slots[0] not in worker.slots(), worker.said)
    wait_for_forks(worker)


def test_a_killed_slot_is_forked_anew_and_its_work_done_again(desk: Desk, tmp_path: Path) -> None:
    worker, log, go = start(desk), tmp_path / "log", tmp_path / "go"
    wait_for_forks(worker)
    desk.send("hold", log=str(log), told=str(go))
    wait_until(lambda: log.exists() and bool(log.read_text()), worker.said)
    first = int(log.read_text().split()[1])
    os.kill(first, signal.SIGKILL)
    go.touch()
    assert msgspec.json.decode(desk.answer().result) != first
    assert first not in wait_for_forks(worker)


def test_slots_and_server_die_with_a_killed_supervisor(desk: Desk) -> None:
    worker = start(desk)
    gone = {*wait_for_forks(worker), *worker.fork_servers()}
    worker.signal(signal.SIGKILL)
    worker.ended()
    wait_until(lambda: not any(is_running(pid) for pid in gone), worker.said)


def test_forked_slots_draw_other_numbers(desk: Desk) -> None:
    worker = start(desk)
    wait_for_forks(worker)
    first = told(desk)
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: first["pid"] not in worker.slots(), worker.said)
    second = told(desk)
    assert first["pid"] != second["pid"]
    assert first["drawn"] != second["drawn"]


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        ("thread", "started a thread: 'pump' (threading.Event.wait)"),
        ("generator", "holds a random generator in forked_app.DICE"),
        ("file", "left a file open"),
    ],
)
def test_what_a_fork_would_break_has_slots_spawned_and_the_log_names_it(desk: Desk, left: str, reason: str) -> None:
    worker = start(desk, TENURE_TEST_LEAVES=left)
    said = told(desk)
    assert (said["parent"], said["imported_in"]) == (worker.process.pid, said["pid"])
    assert f"{APP}, or a module that it imports, {reason}" in worker.said()
    # The server became a slot, so that nothing was imported for nothing; the others were spawned.
    wait_until(lambda: len(worker.slots()) == 3 and len(forked(worker)) == 1, worker.said)
    assert worker.fork_servers() == []


def test_a_worker_that_must_fork_refuses_modules_with_which_it_cannot(desk: Desk) -> None:
    worker = start(desk, "fork", TENURE_TEST_LEAVES="thread")
    assert worker.ended() == 2
    assert "slots cannot be forked" in worker.said()


def test_a_module_that_cannot_be_imported_ends_a_worker_that_forks(desk: Desk, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    worker = desk.start(*FORKED, "auto", modules=(str(broken),))
    assert worker.ended() == 2
    assert "No module named 'nothing_of_that_name'" in worker.said()


def test_a_worker_that_spawns_its_slots_ends_the_server_that_was_begun_for_it(desk: Desk) -> None:
    worker = start(desk, "spawn")
    wait_until(lambda: len(worker.slots()) == 3, worker.said)
    # Also no zombie: the server was buried.
    assert {p.pid for p in all_processes() if p.parent == worker.process.pid} == set(worker.slots())
    assert worker.end() == 0


def test_a_server_that_dies_while_it_imports_leaves_the_rest_to_spawned_slots(desk: Desk) -> None:
    worker = start(desk, TENURE_TEST_LEAVES="crash")
    wait_until(lambda: "while it imported the modules: slots are spawned" in worker.said(), worker.said)
    wait_until(lambda: "slots keep dying" in worker.said(), worker.said)
    assert worker.end() == 0

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tenure.service_manager import ServiceManager


def test_a_process_that_no_service_manager_started_says_nothing() -> None:
    service = ServiceManager({}, pid=7)
    service.ready("serves")
    service.turned(0.0, ready=True)
    service.stopping()
    assert service.watchdog_s is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),  # the watchdog of another process
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_the_one_that_was_set_for_this_process(given: dict[str, str], expected: float | None) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/run/notify", **given}, pid=7).watchdog_s == expected


def test_turns_of_a_supervisor_are_signs_of_life_at_a_third_of_the_watchdogs_time(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(path)
        heard.setblocking(False)
        service = ServiceManager({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000"}, pid=7)

        def said() -> list[str]:
            found = []
            try:
                while True:
                    found.append(heard.recv(4_096).decode())
            except BlockingIOError:
                return found

        service.turned(100.0, ready=False)
        service.turned(109.9, ready=False)
        assert said() == ["WATCHDOG=1"]
        service.turned(110.0, ready=True)
        service.turned(111.0, ready=True)
        assert said() == ["READY=1\nSTATUS=serves", "WATCHDOG=1"]


def test_a_service_manager_that_is_gone_disturbs_nobody(tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "1"}, pid=7).ready("serves")
